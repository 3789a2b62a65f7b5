"""`regard train`: from a recipe or a configuration file to a run directory."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Set, flag, option
from regard.cli.output import check_output

if TYPE_CHECKING:
    from regard.training import Config, Outcome, Progress, Task


def recipe_names(incomplete: str) -> list[str]:
    """Complete the name of a recipe in the shell."""
    from regard.recipes import describe_recipes

    return [name for name in describe_recipes() if name.startswith(incomplete)]


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE|CONFIG.toml|RUN",
            help="A recipe of --list, a file of your own, or the run to --resume.",
            show_default=False,
            autocompletion=recipe_names,
        ),
    ] = None,
    settings: Set = None,
    out: Annotated[Path | None, option("Run directory. [default: runs/NAME]", "DIR")] = None,
    resume: Annotated[
        bool, flag("--resume", "Continue a run; without one, the latest of runs/.")
    ] = False,
    accept_changed_data: Annotated[
        bool, flag("--accept-changed-data", "Resume although the data has changed.")
    ] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "Print the model, the data and the time it needs.")
    ] = False,
    listing: Annotated[bool, flag("--list", "List the recipes, with a sentence each.")] = False,
    keys: Annotated[
        bool, flag("--keys", "List every key of the configuration, or of RECIPE's.")
    ] = False,
) -> None:
    """Train a model into a run directory.

    Ctrl-C saves, and --resume continues from there. A resumed run keeps its own config.toml; --set
    can change its [training] table only.
    """
    if listing or keys:
        return _list_recipes() if listing else _list_keys(recipe)
    if accept_changed_data and not resume:
        raise typer.BadParameter("--accept-changed-data is for --resume")
    from regard.tasks.run import make_task
    from regard.training import read_run_config
    from regard.training import train as run_training
    from regard.training.processes import continues, launched
    from regard.training.run_directory import check_free
    from regard.training.settings import SettingsError

    run, source = _resumed(recipe, out) if resume else _new(recipe, out)
    again = continues(run)  # torchrun started the command again as it was
    resume = resume or again
    check_output(run)
    if resume and isinstance(source, Path) and not again:
        _note_changes(source, read_run_config(run).model_dump(exclude_none=True), run)
    try:
        config, task = make_task(source, settings or [], resume=run if resume else None, note=_note)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error
    if dry_run:
        return _dry_run(task, config, None if resume else config.training.init)
    if not resume:
        check_free(run)
    outcome = run_training(
        task,
        config,
        run,
        resume=resume,
        accept_changed_data=accept_changed_data,
        progress=progress(),
    )
    if launched()[0] == 0:
        _report(run, outcome)


def progress() -> "Progress":
    """Return a bar if standard error is a terminal, else plain lines."""
    from regard.training.progress import Bar, Lines

    if not sys.stderr.isatty():
        return Lines(sys.stderr)
    from rich.console import Console

    return Bar(Console(stderr=True, highlight=False))


def _list_recipes() -> None:
    from regard.recipes import describe_recipes

    for name, sentence in describe_recipes().items():
        print(f"{name:<21}{sentence}")


def _list_keys(recipe: str | None) -> None:
    from regard.cli.keys import describe_keys
    from regard.training import read_config

    task = None if recipe is None else read_config(_resolve(recipe)[1]).task
    print(describe_keys(task))


def _resolve(recipe: str) -> tuple[str, Any]:
    from regard.recipes import resolve_recipe

    try:
        return resolve_recipe(recipe)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _new(recipe: str | None, out: Path | None) -> tuple[Path, Any]:
    """Return the directory of a new run, and its tables or file."""
    if recipe is None:
        raise typer.BadParameter("give a recipe, such as dates, or a configuration file")
    name, source = _resolve(recipe)
    return out if out is not None else Path("runs") / name, source


def _resumed(recipe: str | None, out: Path | None) -> tuple[Path, Any]:
    """Return the directory of a run to resume, and the file that was given for it, if any."""
    if recipe is None:
        return out if out is not None else _latest_run(Path("runs")), None
    if Path(recipe).is_dir() and (out is not None or (Path(recipe) / "config.toml").is_file()):
        if out is not None:
            raise typer.BadParameter("give the run to resume once, as RUN or as --out")
        return Path(recipe), None
    return _new(recipe, out)


def _latest_run(folder: Path) -> Path:
    """Return the run that was written to last."""
    runs = [path.parent for path in folder.glob("*/config.toml")]
    if not runs:
        raise FileNotFoundError(f"there is no run in {folder} to resume: give RUN")
    run = max(runs, key=lambda run: max(file.stat().st_mtime for file in run.iterdir()))
    print(f"resuming {run}", file=sys.stderr)
    return run


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def _note_changes(file: Path, own: dict[str, Any], run: Path) -> None:
    """Print what differs in a configuration file that is given to resume: the run keeps its own."""
    from regard.training import read_config
    from regard.training.config import changed_keys, load_toml

    given = load_toml(file)
    values = read_config(given).model_dump(exclude_none=True)
    for key, was, now in changed_keys(own, values):
        table, _, name = key.partition(".")
        if table == "versions" or (name not in given.get(table, {}) if name else key not in given):
            continue  # a default
        advice = f"; to change it, add --set {key}={now}" if table == "training" else ""
        print(f"note: {run} keeps its own {key} = {was}; {file} has {now}{advice}", file=sys.stderr)


def _report(run: Path, outcome: "Outcome") -> None:
    from regard.training.progress import duration

    metrics = ", ".join(f"{name} {value:.4f}" for name, value in outcome.metrics.items())
    if outcome.reason == "interrupted":
        print(
            f"stopped after step {outcome.step:,}, which is saved; to continue: "
            f"regard train --resume {run}",
            file=sys.stderr,
        )
        raise typer.Exit(130)
    ended = f"training.{outcome.reason} after {outcome.step:,} steps"
    if outcome.already:
        more = f"to train longer, add --set training.{outcome.reason}=N"
        print(f"{run}: {metrics}; was finished already, by {ended}; {more}")
    else:
        print(f"{run}: {metrics}; finished by {ended} and {duration(outcome.seconds)}")


def _dry_run(task: "Task", config: "Config", init: str | None) -> None:
    import torch

    from regard.models.summary import summary
    from regard.training.config import dump_config
    from regard.training.estimate import estimate
    from regard.training.progress import duration
    from regard.training.weights import start_from

    torch.manual_seed(config.seed)
    model = task.build()
    start_from(model, init)
    print(dump_config(config))
    print(summary(model), "\n")
    print(task.describe(), "\n")
    found = estimate(task, config, model)
    print(
        f"time: about {duration(found.seconds)} without evaluation, {found.steps:,} steps of "
        f"{found.step_seconds:.3f} s ({found.per_second:,.0f} {task.unit}/s)"
    )
