"""One clear sentence and an exit code for a user's mistake; a traceback only for ours."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fsplaplace.datasets import DatasetUnavailableError

# What the library raises when the caller's input is at fault, and what the system says of files.
_USER = (ValueError, TypeError, OSError, MemoryError, FloatingPointError, DatasetUnavailableError, ImportError)
_NOTHING_KEPT = "nothing was written"


@contextmanager
def user_errors(*, interrupted: str = _NOTHING_KEPT) -> Iterator[None]:
    """Exit 1 with the message on stderr for an error that the user can mend; 130 for an interrupt.

    Args:
        interrupted: what an interrupt leaves behind.
    """
    try:
        yield
    except KeyboardInterrupt:
        print(f"interrupted; {interrupted}", file=sys.stderr)
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Who reads the output has seen enough, as `head` has; Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(141) from None
    except _USER as error:
        print(f"error: {_sentence(error)}", file=sys.stderr)
        raise typer.Exit(1) from error


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split()) or type(error).__name__
