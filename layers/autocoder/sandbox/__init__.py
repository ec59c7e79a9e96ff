"""What runs in a sandbox (runner.py) and how the functions reach it (client.py, jobs.py)."""
