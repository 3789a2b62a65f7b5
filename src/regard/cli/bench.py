"""`regard bench`: measure this machine, beside the peers, in one run."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

import regard

bench = typer.Typer(
    help="Measure regard beside its peers, in one run, on the same tensors.", no_args_is_help=True
)


Json = Annotated[
    Path | None, typer.Option("--json", help="Write the rows to this file.", dir_okay=False)
]
JoeyNMT = Annotated[
    Path | None,
    typer.Option(
        "--joeynmt",
        help="Also run JoeyNMT 2.3 in this virtual environment, which is made if need be.",
        file_okay=False,
    ),
]


@bench.callback()
def _group() -> None:
    """Measure regard beside its peers, in one run, on the same tensors."""


@bench.command()
def attention(
    quick: Annotated[bool, typer.Option("--quick", help="Small cases, fewer rounds.")] = False,
    json: Json = None,
    chart: Annotated[
        Path | None,
        typer.Option(
            "--chart", help="Draw time and memory against length to this PNG.", dir_okay=False
        ),
    ] = None,
    only: Annotated[str, typer.Option("--only", help="Cases whose name contains this.")] = "",
    memory: Annotated[
        bool, typer.Option(help="Measure peak memory, each case in a fresh process.")
    ] = True,
) -> None:
    """Every way of computing attention against textbook PyTorch, SDPA, torch.compile and others.

    Each peer is first checked to give the same answer. A ratio above 1 means regard is faster.
    """
    _check_folders(json, chart)
    _benchmarks("attention").main(
        quick=quick, json_file=json, chart_file=chart, only=only, memory=memory
    )


@bench.command()
def training(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer steps and rounds.")] = False,
    json: Json = None,
    joeynmt: JoeyNMT = None,
) -> None:
    """Transformer-tiny on Multi30k en→de against a plain PyTorch loop, in target tokens a second.

    The data is read from REGARD_DATA: `regard data get multi30k` fetches it.
    """
    _check_folders(json)
    _benchmarks("training").main(quick=quick, json_file=json, joeynmt=joeynmt)


@bench.command()
def decoding(
    quick: Annotated[bool, typer.Option("--quick", help="Few sentences, one round.")] = False,
    json: Json = None,
    joeynmt: JoeyNMT = None,
    beam: Annotated[int, typer.Option(min=2, help="Size of the beams.")] = 5,
    sentences: Annotated[int, typer.Option(min=1, help="In a batch.")] = 128,
    only: Annotated[str, typer.Option("--only", help="Peers whose name contains this.")] = "",
    run: Annotated[
        Path | None,
        typer.Option(help="A trained run of multi30k whose weights to take, not random ones."),
    ] = None,
) -> None:
    """Greedy and beam search against plain loops, CTranslate2 and JoeyNMT on equal weights.

    1,000 sentences of Multi30k, from the folder that REGARD_DATA names.
    """
    _check_folders(json)
    _benchmarks("decoding").main(
        quick=quick,
        json_file=json,
        joeynmt=joeynmt,
        beam=beam,
        sentences=sentences,
        only=only,
        run=run,
    )


def _check_folders(*files: Path | None) -> None:
    """Raise now, not after minutes of measuring, if a file could not be written."""
    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise ValueError(f"there is no folder {file.absolute().parent} to write {file.name} to")


def _benchmarks(name: str) -> ModuleType:
    """A module of the benchmarks folder, which is in the source tree, not in the package."""
    root = Path(regard.__file__).parents[2]
    if not (root / "benchmarks" / f"{name}.py").is_file():
        raise FileNotFoundError(
            "the benchmarks are part of the source tree: clone the repository, install it with "
            "pip install -e '.[all,bench]' and run regard bench there"
        )
    sys.path.insert(0, str(root))
    return import_module(f"benchmarks.{name}")
