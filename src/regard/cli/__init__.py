"""The `regard` command. One file per subcommand; `main` is the entry point."""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from types import FrameType


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    0 done, 1 failed, 2 bad usage, 130 interrupted.

    Args:
        arguments: what follows `regard`; by default those of the process
    """
    if arguments is None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _exit)
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        from regard.system.extras import install_hint

        names = " and ".join(missing)
        print(f"regard: this command needs {names}: {install_hint(missing[0])}", file=sys.stderr)
        return 1

    from regard.cli.app import run

    return run(sys.argv[1:] if arguments is None else arguments)


def _exit(number: int, frame: FrameType | None) -> None:
    """Exit at once. A KeyboardInterrupt could be lost, or print a traceback, while modules load.

    Files are written atomically, and `training` handles the signal itself to save first.
    """
    os.write(2, b"regard: interrupted\n")
    os._exit(130)
