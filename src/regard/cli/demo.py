"""`regard demo`: train a model on dates, translate dates it has not seen, and look at it."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import flag, option
from regard.cli.output import check_output

if TYPE_CHECKING:
    from regard.tasks import Translation, Translator
    from regard.training import Config

# None of these days occurs in training, in any way of writing: they are of the test split.
ENGLISH = ("the eighth of May 1945", "Friday, October 9, 2015", "14 Feb 1988")
KOREAN = ("이천십오년 시월 구일", "1945년 5월 8일 화요일", "1988. 2. 14.")
FIGURES = {"english": ENGLISH[0], "korean": KOREAN[0]}


def demo(
    out: Annotated[Path, option("Run directory.", "DIR")] = Path("runs/dates"),
    fresh: Annotated[bool, flag("--fresh", "Remove the run there and train again.")] = False,
) -> None:
    """Train a small model on dates and show its attention.

    A run that is there is shown again, or finished if it was interrupted. --fresh removes nothing
    but a run of this command.
    """
    from regard.tasks import load
    from regard.visual.display_width import pad

    check_output(out)
    start = time.monotonic()
    _train(out, fresh=fresh)
    translator = load(out)
    texts = [*ENGLISH, *KOREAN]
    found = dict(zip(texts, translator.translate(texts, return_map=True), strict=True))
    print("\nDates that were not in training, in any way of writing:\n")
    for text, one in found.items():
        print(f"  {pad(text, 30)} → {one.text}")
    for text in FIGURES.values():
        print(f"\nWhere it looked in `{text}` for each character that it wrote:\n")
        _draw(found[text])
    _figures(out, {name: found[text] for name, text in FIGURES.items()})
    right, count = _exact(translator)
    print(f"\nExact match on {count:,} unseen dates: {right / count:.2%} ({count - right} wrong)")
    print(f"All of it took {time.monotonic() - start:.0f} s. To use the model:\n")
    print(f"  regard translate {out} 'March 3rd, 2031'")
    print(f"  regard see {out} 'March 3rd, 2031' --out see.html    # a page to explore")
    print(f"  regard studio {out}                                  # the model in the browser")


def _train(run: Path, *, fresh: bool) -> None:
    """Train the run, or finish the one that is there."""
    from regard.cli.train import progress
    from regard.recipes import load_recipe
    from regard.tasks.run import make_task
    from regard.training import read_config, train
    from regard.training.checkpoint import OtherVersionError
    from regard.training.run_directory import remove_run

    file = run / "config.toml"
    there = file.is_file()
    config = read_config(file if there else load_recipe("dates"))
    if config.data.get("name") != "dates":
        raise ValueError(f"{run} holds another run: choose another directory with --out")
    if there and fresh:
        remove_run(run, also=["figures", *(f"figures/{name}.png" for name in FIGURES)])
        there = False
    try:
        config, task = make_task(load_recipe("dates"), resume=run if there else None)
    except OtherVersionError as error:
        raise ValueError(f"{error}: regard demo --fresh") from error
    if there and (run / "model.safetensors").is_file():
        print(f"{run} is there already: this is its model. regard demo --fresh trains anew.")
    else:
        print(_introduction(config))
    sys.stdout.flush()
    outcome = train(task, config, run, resume=there, progress=progress())
    if outcome.reason == "interrupted":
        print("stopped and saved; regard demo continues from there", file=sys.stderr)
        raise typer.Exit(130)
    print(f"Trained in {outcome.seconds:.0f} s, {outcome.step:,} steps.")


def _introduction(config: "Config") -> str:
    from regard.data.dates import WAYS

    return (
        f"Learning to read dates, written in {len(WAYS)} English and Korean ways, from "
        f"{config.data['count']:,} examples."
    )


def _exact(translator: "Translator") -> tuple[int, int]:
    """Return how many of the test split are translated exactly, of how many."""
    pairs = translator.pairs("test")
    found = translator.translate(list(pairs.sources))
    right = sum(one.text == want for one, want in zip(found, pairs.targets, strict=True))
    return right, len(pairs)


def _draw(one: "Translation") -> None:
    from regard.visual import heatmap

    assert one.map is not None
    print(heatmap(one.map[:-1], one.tokens[:-1], one.source))  # the last token is the end


def _figures(run: Path, translations: "dict[str, Translation]") -> None:
    """Draw the same maps as figures, where matplotlib is installed."""
    from regard.system.extras import install_hint

    try:
        from regard.visual.figure import heatmap
    except ImportError:
        print(f"\n(For figures, install matplotlib: {install_hint('matplotlib')})")
        return
    folder = run / "figures"
    folder.mkdir(exist_ok=True)
    print("\nThe same as figures:\n")
    for name, one in translations.items():
        assert one.map is not None
        path = folder / f"{name}.png"
        heatmap(one.map[:-1], one.tokens[:-1], one.source, path)
        print(f"  {path}")
