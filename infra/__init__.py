"""The service as a CDK stack: stack.py composes, the other files each build one concern."""
