"""The `regard` command. One file per subcommand; `main` is the entry point."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    0 done, 1 failed, 2 bad usage, 130 interrupted.

    Args:
        arguments: what follows `regard`; by default those of the process
    """
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        print(f"regard: this command needs {names}: pip install '.[cli]'", file=sys.stderr)
        return 1

    from regard.cli.app import run

    return run(sys.argv[1:] if arguments is None else arguments)
