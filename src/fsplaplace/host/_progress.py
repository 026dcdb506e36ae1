"""Progress bars that can be silenced with one argument, and a line for each phase of a fit."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich import get_console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_SAID = ContextVar("phases are said", default=False)


@contextmanager
def saying_phases(show: bool) -> Iterator[None]:
    """Let every `phase` inside print its line, if `show` is true."""
    before = _SAID.set(show)
    try:
        yield
    finally:
        _SAID.reset(before)


@contextmanager
def phase(title: str) -> Iterator[Callable[[str], None]]:
    """Yields `chose(what)`; at the end a line says the title, the seconds and what was chosen, inside `saying_phases(True)`.

    Nothing is printed for a phase that ends in an error.
    """
    chosen: list[str] = []
    began = time.perf_counter()
    yield chosen.append
    if _SAID.get():
        print(f"{title:<9}{time.perf_counter() - began:8.1f} s  {'; '.join(chosen)}".rstrip(), flush=True)


@contextmanager
def progress_bar(title: str, *, total: int, show: bool) -> Iterator[Callable[[int, str], None]]:
    """Yields `report(done, note)`; draws nothing unless `show` is true and the output is a terminal.

    Args:
        title: text before the bar.
        total: the value of `done` at the end.
        show: False silences the bar.
    """
    if not (show and get_console().is_terminal):
        # No bar at all: some versions of rich (13.0) print an empty line for one that is disabled.
        yield lambda done, note: None
        return
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)
