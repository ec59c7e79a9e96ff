"""Workflow: the last step of every task, however it went. Releases what it held, writes the end."""

from autocoder.ending import Finished, end
from autocoder.services import Services, step
from autocoder.task import State


def run(state: State, services: Services) -> Finished:
    """End the task as what the service saw of it says."""
    return end(state, services)


handler = step(run)
