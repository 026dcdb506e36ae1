"""Progress bars that can be silenced with one argument."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(title: str, *, total: int, show: bool) -> Iterator[Callable[[int, str], None]]:
    """Yields `report(done, note)`; draws nothing unless `show` is true and the output is a terminal.

    Args:
        title: text before the bar.
        total: the value of `done` at the end.
        show: False silences the bar.
    """
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, transient=True, disable=not show) as bar:
        bar.disable = bar.disable or not bar.console.is_terminal
        task = bar.add_task(title, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)
