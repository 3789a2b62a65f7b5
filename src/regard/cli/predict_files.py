"""`regard predict --out`: a file of predictions for each file, shared by several processes."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

import typer

from regard.cli.output import StatusLine, check_output


def predict_files(
    answers: Callable[[str], Iterator[str]], patterns: Sequence[str], folder: Path, suffix: str
) -> None:
    """Write the predictions of each file, which is complete under its name or not there.

    Under torchrun each process takes its share of the files. What was finished before stays; what
    a killed process was writing is written again.

    Args:
        answers: yields the lines of a file
        patterns: files, or patterns of files such as "shards/*.jsonl.gz"
        folder: to write into
        suffix: of the files written
    """
    from regard.system.files import UNFINISHED, atomic_file
    from regard.training.processes import launched

    targets = _targets(patterns, folder, suffix)
    check_output(folder / "file")
    folder.mkdir(parents=True, exist_ok=True)
    rank, world = launched()
    own = list(targets.items())[rank::world]
    left = [(file, target) for file, target in own if not target.exists()]
    status = StatusLine()
    for number, (file, target) in enumerate(left, start=1):
        for part in folder.glob(f"{UNFINISHED}*-{target.name}"):
            part.unlink(missing_ok=True)
        with atomic_file(target) as part, part.open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(f"{line}\n" for line in answers(file))
        status.show(f"rank {rank}: {number} of {len(left)} files")
    seconds = time.monotonic() - status.start
    done = f"{len(left)} files in {seconds:.0f} s, {len(own) - len(left)} were finished before"
    print(f"rank {rank}: {done}", file=sys.stderr)


def _targets(patterns: Sequence[str], folder: Path, suffix: str) -> dict[str, Path]:
    """Return the file to write for each file to read."""
    from regard.data.files import COMPRESSED, readable

    files: list[str] = []
    for pattern in patterns:
        found = sorted(glob(pattern)) if has_magic(pattern) else [str(readable(pattern))]
        if not found:
            raise FileNotFoundError(f"no file matches {pattern}")
        files += found
    targets: dict[str, Path] = {}
    for file in files:
        name = Path(file).name
        for ending in COMPRESSED:
            name = name.removesuffix(ending)
        target = folder / Path(name).with_suffix(suffix)
        if target in targets.values():
            raise typer.BadParameter(f"two files would be written to {target}: rename one")
        if target.exists() and target.samefile(file):
            raise typer.BadParameter(f"{target} would replace what is read: choose another --out")
        targets[file] = target
    if not targets:
        raise typer.BadParameter("--out needs files to read")
    return targets
