"""The `fsplaplace` command before the package is there: importing it takes a second, in which Ctrl-C is heard, too.

A module of its own, because `import fsplaplace.cli` would first import all of `fsplaplace`.
"""

import os
import signal


def main() -> None:
    """Entry point of the `fsplaplace` command: imports the command line and runs it."""
    # A program that `nohup` or a shell's `&` started ignores Ctrl-C, and goes on doing so.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)
    from fsplaplace.cli import main as run

    try:
        run()
    finally:
        # The work is done, or has said what it kept: the interpreter ends in peace.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end(*_) -> None:
    # Not by an exception: a library that is being imported may catch it, or make another one of it.
    os.write(2, b"interrupted; nothing was written\n")
    os._exit(130)
