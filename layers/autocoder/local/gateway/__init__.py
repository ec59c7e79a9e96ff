"""The model on loopback: Claude Code and the planner ask it, and never hold a key.

    request ─► server.py ─┬─► replay.py    a task that has a scenario: answered from it
                          └─► forward.py   any other: sent to Anthropic, with the user's key
                                ├─ budget.py     what the task may still spend
                                ├─ meter.py      what an answer cost, read as it passes
                                └─ recorder.py   request and answer, kept for `autocoder record`

`asker.py` knows who asks by the token, and for which run by the prompt.
"""
