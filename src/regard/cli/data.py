"""`regard data`: list the datasets, fetch them with a checksum, generate them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import Command, Json, file_option, option
from regard.cli.output import StatusLine, check_output, write_json

data = typer.Typer(
    help="List, fetch and generate datasets.", no_args_is_help=True, rich_markup_mode=None
)

Folder = Annotated[
    Path | None, option("Where data is; else REGARD_DATA, else the user's cache.", "DIR")
]


@data.callback()
def _group() -> None:
    """List, fetch and generate datasets."""


@data.command("list", epilog="Example: regard data list --json")
def list_datasets(
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """List every dataset, how to get it and whether it is there."""
    rows = list(_rows(folder))
    if as_json:
        return write_json(rows, indent=2)
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
        state = f"here, in {row['folder']}" if row["here"] else f"not here; {how}"
        print(f"{'':<16}{state}\n{'':<16}licence: {row['licence']}")


@data.command(cls=Command, epilog="Example: regard data get multi30k")
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A dataset of `regard data list`.")],
    folder: Folder = None,
    url: Annotated[
        str | None, option("Fetch the dataset's only file from here instead.", "URL")
    ] = None,
    sha256: Annotated[str | None, option("The checksum of the file at --url.", "SHA256")] = None,
) -> None:
    """Fetch a dataset, check it, and print its licence.

    An interrupted download continues where it stopped when the command is run again.
    """
    from regard.data.datasets import LOCAL_FILES, Remote, data_folder, find_dataset
    from regard.data.fetch import fetch
    from regard.data.generated import GENERATED

    if name in LOCAL_FILES:
        local = LOCAL_FILES[name]
        raise ValueError(
            f"{name} reads local files: put {', '.join(local.files)} into {data_folder(folder)}, "
            f"from {local.home}"
        )
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
        new = fetch(file.url, path, file.sha256, _progress(path.name))
        print(f"{path} {'fetched' if new else 'is there already'}, sha256 {file.sha256}")
    print(f"licence of {name}: {dataset.licence}")


@data.command(cls=Command, epilog="Example: regard data make dates --out dates.tsv --count 1000")
def make(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A generated dataset of `regard data list`.")
    ],
    out: Annotated[Path, file_option("File to write.")],
    count: Annotated[int, option("Number of pairs.", "N", 1, 100_000_000)] = 10_000,
    seed: Annotated[int, option("Seed of the random pairs.")] = 0,
    split: Annotated[str, option("train, valid or test.", "SPLIT")] = "train",
) -> None:
    """Generate a dataset of pairs as TSV.

    `signal`, whose sources are float frames, is written as npz.
    """
    from regard.core.names import did_you_mean
    from regard.data.frames import write_frames
    from regard.data.generated import GENERATED, SPLITS, generate
    from regard.system.files import atomic_file

    for what, given, known in (("dataset", name, GENERATED), ("split", split, SPLITS)):
        if given not in known:
            raise typer.BadParameter(f"unknown {what} {given!r}{did_you_mean(given, known)}")
    check_output(out, new_folders=False)
    frames = GENERATED[name].source is None
    if frames != (out.suffix == ".npz"):
        wanted = "an npz file, since its sources are frames" if frames else "TSV, not npz"
        raise typer.BadParameter(f"{name} is written as {wanted}: got --out {out}")
    pairs = generate(name, split, count=count, seed=seed)
    if frames:
        write_frames(pairs, out)
    else:
        with atomic_file(out) as part, part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{source}\t{target}\n" for source, target in pairs)
    print(f"{out}: {len(pairs)} pairs of {name}, {split}, seed {seed}")


def _rows(folder: Path | None) -> Iterator[dict[str, Any]]:
    from regard.data.datasets import DATASETS, LOCAL_FILES, Dataset, LocalFiles, data_folder
    from regard.data.generated import GENERATED

    where = data_folder(folder)
    for name, generated in GENERATED.items():
        yield {"name": name, "kind": "generated", "about": generated.about}
    known: dict[str, Dataset | LocalFiles] = {**DATASETS, **LOCAL_FILES}
    for name, dataset in known.items():
        yield {
            "name": name,
            "kind": "dataset",
            "about": dataset.about,
            "licence": dataset.licence,
            "home": dataset.home,
            "folder": str(where),
            "files": list(dataset.files),
            "here": all((where / file).is_file() for file in dataset.files),
            "fetched": isinstance(dataset, Dataset) and bool(dataset.remote),
        }


def _progress(name: str) -> Callable[[int, int | None], None]:
    status = StatusLine()

    def show(done: int, total: int | None) -> None:
        if total:
            whole = done >= total
            status.show(f"{name}: {done * 100 // total} % of {total:,} bytes", done=whole)
        else:
            status.show(f"{name}: {done:,} bytes")

    return show
