"""`regard data`: what data there is; fetch it with a checksum; generate it."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

data = typer.Typer(help="What data there is; fetch it; generate it.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder", help="The data folder; by default REGARD_DATA, else the user's cache."
    ),
]


@data.callback()
def _group() -> None:
    """What data there is; fetch it; generate it."""


@data.command("list")
def listing(
    folder: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Every task with its data: generated, or read from files, and whether they are there."""
    rows = list(_rows(folder))
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        print(f"{row['name']:<16}{row['about']}")
        if row["kind"] == "generated":
            print(f"{'':<16}generated: regard data make {row['name']} --out FILE")
            continue
        how = (
            f"regard data get {row['name']}"
            if row["fetched"]
            else f"reads local files, not fetched: put {', '.join(row['files'])} into "
            f"{row['folder']}, from {row['home']}"
        )
        print(f"{'':<16}{'here, in ' + row['folder'] if row['here'] else 'not here; ' + how}")
        print(f"{'':<16}licence: {row['licence']}")


@data.command()
def get(
    name: Annotated[str, typer.Argument(help="A dataset of `regard data list`.")],
    folder: Folder = None,
    url: Annotated[
        str | None, typer.Option("--url", help="Fetch the dataset's only file from here instead.")
    ] = None,
    sha256: Annotated[
        str | None, typer.Option("--sha256", help="The checksum of what --url gives.")
    ] = None,
) -> None:
    """Fetch the files of a dataset, check them against their checksums, and print the licence.

    An interrupted download goes on where it stopped when the command is run again.
    """
    from regard.data.datasets import Remote, data_folder, find_dataset
    from regard.data.fetch import fetch
    from regard.data.generated import GENERATED

    if name in GENERATED:
        raise typer.BadParameter(f"{name} is generated: regard data make {name} --out FILE")
    try:
        dataset = find_dataset(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if (url is None) != (sha256 is None):
        raise typer.BadParameter("--url and --sha256 belong together")
    remote = dataset.remote
    if url is not None and sha256 is not None:
        if len(dataset.files) != 1:
            raise typer.BadParameter(f"{name} has {len(dataset.files)} files, --url fetches one")
        remote = (Remote(dataset.files[0], url, sha256),)
    if not remote:
        raise ValueError(
            f"{name} reads local files: put {', '.join(dataset.files)} into {data_folder(folder)}, "
            f"from {dataset.home}, or give --url and --sha256"
        )
    for file in remote:
        path = data_folder(folder) / file.path
        new = fetch(file.url, path, file.sha256, _Progress(path.name))
        print(f"{path} {'fetched' if new else 'is there already'}, sha256 {file.sha256}")
    print(f"licence of {name}: {dataset.licence}")


@data.command()
def make(
    name: Annotated[str, typer.Argument(help="A generated task of `regard data list`.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write.", dir_okay=False)],
    count: Annotated[int, typer.Option("--count", min=1, help="How many pairs.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed", help="Where the pairs come from.")] = 0,
    split: Annotated[str, typer.Option("--split", help="train, valid or test.")] = "train",
) -> None:
    """Write pairs of a generated task as TSV; `signal`, whose sources are frames, as npz."""
    from regard.core.names import did_you_mean
    from regard.data.frames import write_frames
    from regard.data.generated import GENERATED, SPLITS, generate

    for what, given, known in (("task", name, GENERATED), ("split", split, SPLITS)):
        if given not in known:
            raise typer.BadParameter(f"unknown {what} {given!r}{did_you_mean(given, known)}")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {out.absolute().parent} to write {out.name} to")
    frames = GENERATED[name].source is None
    if frames != (out.suffix == ".npz"):
        wanted = "an npz file, since its sources are frames" if frames else "TSV, not npz"
        raise typer.BadParameter(f"{name} is written as {wanted}: got --out {out}")
    pairs = generate(name, split, count=count, seed=seed)
    if frames:
        write_frames(pairs, out)
    else:
        part = out.with_name(f"{out.name}.{os.getpid()}.part")
        try:
            with part.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{source}\t{target}\n" for source, target in pairs)
            part.replace(out)
        finally:
            part.unlink(missing_ok=True)
    print(f"{out}: {len(pairs)} pairs of {name}, {split}, seed {seed}")


def _rows(folder: Path | None) -> Iterator[dict[str, Any]]:
    from regard.data.datasets import DATASETS, data_folder
    from regard.data.generated import GENERATED

    where = data_folder(folder)
    for name, task in GENERATED.items():
        yield {"name": name, "kind": "generated", "about": task.about}
    for name, dataset in DATASETS.items():
        yield {
            "name": name,
            "kind": "dataset",
            "about": dataset.about,
            "licence": dataset.licence,
            "home": dataset.home,
            "folder": str(where),
            "files": list(dataset.files),
            "here": all((where / file).is_file() for file in dataset.files),
            "fetched": bool(dataset.remote),
        }


class _Progress:
    """Bytes so far on standard error: one line that is rewritten, or nothing if nobody looks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.shown = -1

    def __call__(self, done: int, total: int | None) -> None:
        share = done * 100 // total if total else done >> 20
        whole = total is not None and done >= total
        if share == self.shown or not (sys.stderr.isatty() or whole):
            return
        self.shown = share
        amount = f"{share} % of {total:,} bytes" if total else f"{done:,} bytes"
        front, end = ("\r", "\n" if whole else "") if sys.stderr.isatty() else ("", "\n")
        print(f"{front}{self.name}: {amount}", end=end, file=sys.stderr, flush=True)
