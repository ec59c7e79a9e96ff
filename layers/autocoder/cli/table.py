"""Tables for people: as wide as they must be, and in a terminal no wider than it is."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autocoder.cli.shown import columns
from autocoder.text import printable

NO_END = 10_000  # a pipe has no width


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> None:
    """Print rows under their heads; the last so many columns are numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, head in enumerate(heads):
        right = place >= len(heads) - numbers
        table.add_column(head, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console(width=columns() or NO_END, highlight=False).print(table)
