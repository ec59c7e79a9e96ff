"""What runs in a sandbox (runner.py, packer.py); how functions reach it (client.py, jobs.py)."""
