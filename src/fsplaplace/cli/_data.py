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
    """Print for each data set which files are right, or what is wrong; an error at the end if any is."""
    wrong = []
    for name in names or datasets.names():
        try:
            for file, sha256 in datasets.verify(name).items():
                print(f"{name}: {file} ok ({sha256[:12]})")
        except datasets.DatasetUnavailableError as error:
            wrong.append(name)
            print(f"{name}: {error}")
    if wrong:
        raise datasets.DatasetUnavailableError(
            f"{len(wrong)} of {len(names or datasets.names())} data sets are missing or damaged; get them with "
            f"`fsplaplace data fetch {' '.join(wrong)}`"
        )
