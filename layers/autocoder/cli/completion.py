"""What a shell offers for a value when Tab is pressed; nothing heavy is imported for it."""

from itertools import islice

OFFERED = 50  # of the newest tasks


def examples(incomplete: str) -> list[str]:
    """The ready examples."""
    from autocoder.cli.examples import names

    return [name for name in [*names(), "list"] if name.startswith(incomplete)]


def statuses(incomplete: str) -> list[str]:
    """The statuses that tasks have."""
    from autocoder.record import STATUSES

    return [status.lower() for status in STATUSES if status.lower().startswith(incomplete.lower())]


def task_ids(incomplete: str) -> list[str]:
    """The newest tasks of a running local cloud; AWS is not asked because of a Tab."""
    from autocoder.cli.records import newest_first
    from autocoder.cli.service import open_service
    from autocoder.cli.target import Target
    from autocoder.errors import Mendable
    from autocoder.record import STATUSES

    try:
        rows = newest_first(open_service(Target(local=True)), STATUSES)
        found = [row["task_id"] for row in islice(rows, OFFERED)]
    except (Mendable, OSError):
        return []  # in the middle of a command line nobody can be told
    return [task_id for task_id in found if task_id.startswith(incomplete)]
