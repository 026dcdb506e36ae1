"""One clear sentence and an exit code for a user's mistake; a traceback only for ours."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

from fsplaplace.datasets import DatasetUnavailableError

# What the library raises when the caller's input is at fault, and what the system says of files.
_USER = (ValueError, TypeError, OSError, MemoryError, FloatingPointError, DatasetUnavailableError, ImportError)


@contextmanager
def user_errors(*, writes: Path | None = None, kept: str = "") -> Iterator[None]:
    """Exit 1 with the message on stderr for an error that the user can mend; 130 for an interrupt.

    Args:
        writes: the file or directory that the command writes; an interrupt says what of it is new.
        kept: what is said of files that were written before an interrupt.
    """
    _Work.begin(writes, kept)
    try:
        yield
    except KeyboardInterrupt:
        _Work.is_on = False
        sys.stderr.write(_Work.interrupted())
        raise typer.Exit(130) from None
    except BrokenPipeError:
        _drop_output()
        raise typer.Exit(141) from None
    except _USER as error:
        print(f"error: {_sentence(error)}", file=sys.stderr)
        raise typer.Exit(1) from error
    finally:
        _Work.is_on = False


class _Work:
    """Whether a command is at work, where it writes, and since when."""

    is_on = False
    writes: Path | None = None
    kept = ""
    began = 0

    @classmethod
    def begin(cls, writes: Path | None, kept: str) -> None:
        # File systems date files by a clock that is some milliseconds late.
        cls.is_on, cls.writes, cls.kept, cls.began = True, writes, kept, time.time_ns() - 10**7

    @classmethod
    def interrupted(cls) -> str:
        return f"interrupted; {_written(cls.writes, cls.began, cls.kept)}\n"


@contextmanager
def heard_interrupts() -> Iterator[None]:
    """Ctrl-C ends the command with one sentence at any time, also while it imports what it needs.

    Work is interrupted by `KeyboardInterrupt`, as ever. Not so an import, which may catch it or make another error of it, nor the
    reading of the arguments, in which typer says "Aborted!", nor the answer to an interrupt before: there the process ends at once.
    """
    # A program that `nohup` or a shell's `&` started ignores Ctrl-C, and goes on doing so.
    is_ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if is_ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(_: int, frame: FrameType | None) -> None:
    if _Work.is_on and not _is_importing(frame):
        raise KeyboardInterrupt
    os.write(2, _Work.interrupted().encode(errors="replace"))
    os._exit(130)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def flush_output() -> None:
    """Write what is left of the output; nobody may be reading any more."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()


def _drop_output() -> None:
    """Who reads the output has seen enough, as `head` has; Python would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _written(place: Path | None, began: int, kept: str) -> str:
    """What an interrupted command has written, by its files."""
    files = [] if place is None else [place, *place.rglob("*")] if place.is_dir() else [place]
    new = [file for file in files if file.is_file() and file.suffix != ".part" and file.stat().st_mtime_ns >= began]
    if not new:
        return "nothing was written"
    names = ", ".join(str(file) for file in new[:3]) + (f" and {len(new) - 3} more" if len(new) > 3 else "")
    return f"finished files are kept: {names}" + (f"; {kept}" if kept else "")


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split()) or type(error).__name__
