"""Sandboxes on this machine, spoken to by the unmodified `e2b` SDK.

    SDK ──REST──▶ api.py ──▶ fleet.py ──▶ sandbox.py ──socket──▶ agent.py (inside the sandbox)
     └──Connect──▶ process_service.py, filesystem_service.py, files.py ──┘

One process serves every sandbox. `isolation.py` decides how a sandbox is held (bubblewrap with a
filter of system calls, or a plain process), `network.py` and `egress.py` what it can reach,
`watchdog.py` how much memory it has.
"""
