"""`regard demo`: train a model on dates, let it read dates it never saw, and look at it."""

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.tasks import Translation, Translator
    from regard.training import Config

# None of these days occurs in training, in any way of writing: they are of the test split.
ENGLISH = ("the eighth of May 1945", "Friday, October 9, 2015", "14 Feb 1988")
KOREAN = ("이천십오년 시월 구일", "1945년 5월 8일 화요일", "1988. 2. 14.")


def demo(
    out: Annotated[Path, typer.Option("--out", help="The run directory.")] = Path("runs/dates"),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Train again, and remove the run that is there.")
    ] = False,
) -> None:
    """Train dates into runs/dates, translate dates it never saw, and show where it looked.

    A run that is there is shown again, or finished if it was interrupted; --fresh trains anew.
    """
    from regard.tasks import load

    start = time.monotonic()
    _train(out, fresh=fresh)
    translator = load(out)
    found = translator.translate([*ENGLISH, *KOREAN], return_map=True)
    print("\nDates that were not in training, in any way of writing:\n")
    for text, one in zip([*ENGLISH, *KOREAN], found, strict=True):
        print(f"  {_padded(text, 30)} → {one.text}")
    for text, one in ((ENGLISH[0], found[0]), (KOREAN[0], found[len(ENGLISH)])):
        print(f"\nWhere it looked in `{text}` for each character that it wrote:\n")
        _draw(one)
    _figures(out, {"english": found[0], "korean": found[len(ENGLISH)]})
    right, count = _exact(translator)
    print(f"\nExact match on {count:,} unseen dates: {right / count:.2%} ({count - right} wrong)")
    print(f"All of it took {time.monotonic() - start:.0f} s. To use the model:\n")
    print(f"  echo 'March 3rd, 2031' | regard translate {out}")


def _train(run: Path, *, fresh: bool) -> None:
    """A finished run, whatever is there now."""
    from regard.cli.train import progress
    from regard.recipes import load_recipe
    from regard.tasks import TASKS
    from regard.training import read_config, read_run_config, train

    there = (run / "config.toml").is_file()
    if there and fresh:
        shutil.rmtree(run)
        there = False
    config = read_run_config(run) if there else read_config(load_recipe("dates"))
    if config.data.get("name") != "dates":
        raise ValueError(f"{run} holds another run: choose another place with --out")
    task = TASKS[config.task].from_config(config, run if there else None)
    if there and (run / "model.safetensors").is_file():
        print(f"{run} is there already: this is its model. regard demo --fresh trains anew.")
    else:
        print(_introduction(config))
    sys.stdout.flush()
    outcome = train(task, config, run, resume=there, progress=progress())
    if outcome.reason == "interrupted":
        print("stopped and saved; regard demo goes on from there", file=sys.stderr)
        raise typer.Exit(130)
    print(f"Trained in {outcome.seconds:.0f} s, {outcome.step:,} steps.")


def _introduction(config: "Config") -> str:
    from regard.data.dates import WAYS

    return (
        f"Learning to read dates, written in {len(WAYS)} English and Korean ways, from "
        f"{config.data['count']:,} examples."
    )


def _exact(translator: "Translator") -> tuple[int, int]:
    """How many of the test split were written exactly, of how many."""
    pairs = translator.pairs("test")
    found = translator.translate(list(pairs.sources))
    right = sum(one.text == want for one, want in zip(found, pairs.targets, strict=True))
    return right, len(pairs)


def _draw(one: "Translation") -> None:
    from regard.visual import heatmap

    assert one.map is not None
    print(heatmap(one.map[:-1], one.tokens[:-1], one.source))  # the last token is the end


def _figures(run: Path, found: "dict[str, Translation]") -> None:
    """The same maps as pictures, where matplotlib is installed."""
    try:
        from regard.visual.figure import heatmap
    except ImportError:
        print("\n(For pictures, install matplotlib: pip install 'regard[visual]')")
        return
    folder = run / "figures"
    folder.mkdir(exist_ok=True)
    for name, one in found.items():
        assert one.map is not None
        path = heatmap(one.map[:-1], one.tokens[:-1], one.source, folder / f"{name}.png")
        print(f"{'' if name != 'english' else chr(10)}The same as a picture: {path}")


def _padded(text: str, width: int) -> str:
    from regard.visual.display_width import display_width

    return text + " " * (width - display_width(text))
