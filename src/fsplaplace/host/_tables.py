"""Tables as plain text."""

from rich.console import Console
from rich.table import Table


def table_text(table: Table, *, width: int = 100) -> str:
    """The table as it would be printed, without colours, in lines of at most `width` characters."""
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()
