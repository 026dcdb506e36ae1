"""`fsplaplace data`: list, fetch and verify."""

from rich.console import Console
from rich.table import Table

from fsplaplace import datasets
from fsplaplace.datasets import entry


def show(console: Console) -> None:
    """One line per data set."""
    table = Table("name", "what", "to know")
    for name in datasets.names():
        table.add_row(name, entry(name).description, entry(name).note)
    console.print(table)


def fetch(names: list[str] | None) -> None:
    """Print where each file is."""
    for name in names or datasets.names():
        for file, path in datasets.fetch(name).items():
            print(f"{name}: {file} at {path}")


def verify(names: list[str] | None) -> None:
    """Print each file whose hash is right; the first that is not is an error."""
    for name in names or datasets.names():
        for file, sha256 in datasets.verify(name).items():
            print(f"{name}: {file} ok ({sha256[:12]})")
