"""`regard bench`: measure this machine, side by side with other libraries, in one run."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from regard.cli.options import file_option, flag, option
from regard.cli.output import check_output

bench = typer.Typer(
    help="Measure regard side by side with other libraries.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Quick = Annotated[bool, flag("--quick", "Small cases, fewer rounds.")]
Rows = Annotated[Path | None, file_option("Also write the rows here.", name="--json")]
JoeyNMT = Annotated[
    Path | None,
    option("Also run JoeyNMT 2.3 in this virtual environment, created if missing.", "VENV",
           name="--joeynmt", file_okay=False),
]  # fmt: skip


@bench.callback()
def _group() -> None:
    """Measure regard side by side with other libraries, in one run, on the same tensors.

    Each row is printed as soon as it is measured; Ctrl-C keeps those printed so far.
    """


@bench.command(epilog="Example: regard bench attention --quick --only causal")
def attention(
    quick: Quick = False,
    json: Rows = None,
    chart: Annotated[
        Path | None, file_option("Draw time and memory against length.", "FILE.png")
    ] = None,
    only: Annotated[str, option("Only cases whose name contains this.", "TEXT")] = "",
    memory: Annotated[
        bool, typer.Option(help="Measure peak memory, each case in a fresh process.")
    ] = True,
) -> None:
    """Attention against textbook PyTorch, SDPA, torch.compile.

    Each peer is first checked to give the same answer. A ratio above 1 means regard is faster.
    """
    _check(json, chart)
    if chart is not None:
        import matplotlib  # noqa: F401  # now, not after the measurements
    benchmark = _benchmark("attention")
    _select(benchmark, only, quick=quick)
    benchmark.main(quick=quick, json_file=json, chart_file=chart, only=only, memory=memory)


@bench.command(epilog="Example: regard bench training --quick")
def training(quick: Quick = False, json: Rows = None, joeynmt: JoeyNMT = None) -> None:
    """Training a small Transformer against a plain PyTorch loop.

    Multi30k, English to German, in target tokens per second: `regard data get multi30k`.
    """
    _check(json)
    _benchmark("training").main(quick=quick, json_file=json, joeynmt=joeynmt)


@bench.command(epilog="Example: regard bench decoding --quick --beam 5")
def decoding(
    quick: Quick = False,
    json: Rows = None,
    joeynmt: JoeyNMT = None,
    beam: Annotated[int, option("Beam size.", "N", 2, 1000)] = 5,
    sentences: Annotated[int, option("Sentences in a batch.", "N", 1, 100_000)] = 128,
    only: Annotated[str, option("Only peers whose name contains this.", "TEXT")] = "",
    run: Annotated[
        Path | None, option("Take the weights of this run of multi30k, not random.", "RUN")
    ] = None,
) -> None:
    """Greedy and beam search against plain loops and CTranslate2.

    1,000 sentences of Multi30k: `regard data get multi30k`.
    """
    _check(json)
    benchmark = _benchmark("decoding")
    _select(benchmark, only)
    benchmark.main(
        quick=quick,
        json_file=json,
        joeynmt=joeynmt,
        beam=beam,
        sentences=sentences,
        only=only,
        run=run,
    )


@bench.command(epilog="Example: regard bench recommend --quick --recbole recbole-venv")
def recommend(
    data: Annotated[
        Path | None, option("A folder of MovieLens, or a CSV. [default: generated]", "PATH")
    ] = None,
    quick: Annotated[
        bool, flag("--quick", "Without tuned factorisation and other variants of ours.")
    ] = False,
    json: Rows = None,
    recbole: Annotated[
        Path | None,
        option("Also train RecBole 1.2.1 in this virtual environment, created if missing, on "
               "MovieLens-100k, which comes with it.", "VENV", name="--recbole", file_okay=False),
    ] = None,
    minutes: Annotated[float, option("Longest training of a model of RecBole.", "N", 0)] = 120.0,
) -> None:  # fmt: skip
    """The recommender against baselines and RecBole.

    The last choice of each user is ranked among all items that the user does not have.
    """
    _check(json)
    if data is not None and recbole is not None:
        raise typer.BadParameter("--recbole brings its own data: leave out --data")
    _benchmark("recommend").main(
        data=data, quick=quick, json_file=json, recbole=recbole, minutes=minutes
    )


def _check(*files: Path | None) -> None:
    for file in files:
        if file is not None:
            check_output(file, option="", new_folders=False)


def _select(benchmark: ModuleType, only: str, **options: bool) -> None:
    try:
        benchmark.select(only, **options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _benchmark(name: str) -> ModuleType:
    """Import a module of the benchmarks folder, which is in the source tree only."""
    root = Path(__file__).parents[3]
    if not (root / "benchmarks" / f"{name}.py").is_file():
        raise FileNotFoundError(
            "the benchmarks are part of the source tree: clone the repository, install it with "
            "pip install -e '.[all,bench]' and run regard bench there"
        )
    sys.path.insert(0, str(root))
    return import_module(f"benchmarks.{name}")
