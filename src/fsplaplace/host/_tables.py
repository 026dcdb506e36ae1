"""Tables as plain text, for what `print` shows of a record."""

from rich.console import Console
from rich.table import Table


def table_text(*parts: Table | str, width: int = 100) -> str:
    """The tables and lines below each other, without colours.

    Args:
        parts: tables of rich, and lines of text; brackets in a line are printed as they are.
        width: characters in a line; longer lines are wrapped.
    """
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        for part in parts:
            console.print(part, markup=False)
    return capture.get()
