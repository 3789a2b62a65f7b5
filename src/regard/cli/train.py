"""`regard train`: from a configuration to a run directory."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.training import Config, Outcome, Progress, Task


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="[RECIPE|CONFIG.toml]",
            help="A recipe of --list, or a file of your own.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Such as training.lr=1e-3; again for more."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The run directory; by default runs/NAME.", show_default=False),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run from its newest checkpoint.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and how long it would take.")
    ] = False,
    accept_changed_data: Annotated[
        bool,
        typer.Option("--accept-changed-data", help="Resume although the data has changed."),
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="List the recipes, with a sentence each.")
    ] = False,
) -> None:
    """Train a model into a run directory. Ctrl-C saves, and --resume goes on from there.

    A resumed run goes by its own config.toml, of which --set can change the training table.
    """
    if listing:
        from regard.recipes import describe_recipes

        for name, sentence in describe_recipes().items():
            print(f"{name:<21}{sentence}")
        return
    from regard.training import read_run_config
    from regard.training import train as run_training
    from regard.training.run_directory import check_free

    if recipe is None and not (resume and out is not None):
        raise typer.BadParameter("give a recipe, such as dates, or a configuration file")
    name, source = _resolve(recipe) if recipe is not None else ("", None)
    run = out if out is not None else Path("runs") / name
    if resume:
        file = source if isinstance(source, Path) else None
        source = read_run_config(run).model_dump(exclude_none=True)
        _note_changes(file, source, run)
    resolved = _read(source, settings or [])
    if dry_run:
        _dry_run(_task(resolved, run if resume else None), resolved)
        return
    if not resume:
        check_free(run)
    outcome = run_training(
        _task(resolved, run if resume else None),
        resolved,
        run,
        resume=resume,
        accept_changed_data=accept_changed_data,
        progress=progress(),
    )
    _report(run, outcome)


def _resolve(recipe: str) -> tuple[str, Any]:
    from regard.recipes import resolve_recipe

    try:
        return resolve_recipe(recipe)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _read(source: Any, settings: list[str]) -> "Config":
    from regard.training import read_config

    try:
        return read_config(source, settings)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _note_changes(config: Path | None, own: dict[str, Any], run: Path) -> None:
    """Print what differs in a configuration file that is given to resume: the run keeps its own."""
    from regard.training import read_config
    from regard.training.config import changed_keys, load_toml

    if config is None:
        return
    given = load_toml(config)
    values = read_config(given).model_dump(exclude_none=True)
    for key, was, now in changed_keys(own, values):
        table, _, name = key.partition(".")
        if table == "versions" or (name not in given.get(table, {}) if name else key not in given):
            continue  # a default
        advice = f"; to change it, add --set {key}={now}" if table == "training" else ""
        print(
            f"note: {run} keeps its own {key} = {was}; {config} has {now}{advice}", file=sys.stderr
        )


def _task(config: "Config", run: Path | None = None) -> "Task":
    from regard.core.names import did_you_mean
    from regard.tasks import TASKS
    from regard.training.settings import SettingsError

    if config.task not in TASKS:
        raise typer.BadParameter(
            f"unknown task = {config.task!r}{did_you_mean(config.task, TASKS)}"
        )
    try:
        return TASKS[config.task].from_config(config, run)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error


def progress() -> "Progress":
    """A bar if standard error is a terminal, else plain lines."""
    from regard.training.progress import Lines

    if not sys.stderr.isatty():
        return Lines(sys.stderr)
    from rich.console import Console

    from regard.training.progress import Bar

    return Bar(Console(stderr=True, highlight=False))


def _report(run: Path, outcome: "Outcome") -> None:
    from regard.training.progress import duration

    figures = ", ".join(f"{name} {value:.4f}" for name, value in outcome.metrics.items())
    if outcome.reason == "interrupted":
        print(
            f"stopped after step {outcome.step:,}, which is saved; to go on: "
            f"regard train --resume --out {run}",
            file=sys.stderr,
        )
        raise typer.Exit(130)
    ended = f"training.{outcome.reason} after {outcome.step:,} steps"
    if outcome.already:
        more = f"to train longer, add --set training.{outcome.reason}=N"
        print(f"{run}: {figures}; was finished already, by {ended}; {more}")
    else:
        print(f"{run}: {figures}; finished by {ended} and {duration(outcome.seconds)}")


def _dry_run(task: "Task", config: "Config") -> None:
    import torch

    from regard.models.summary import summary
    from regard.training.config import dump_config
    from regard.training.estimate import estimate
    from regard.training.progress import duration

    torch.manual_seed(config.seed)
    model = task.build()
    print(dump_config(config))
    print(summary(model), "\n")
    print(task.describe(), "\n")
    found = estimate(task, config, model)
    print(
        f"time: about {duration(found.seconds)} without evaluation, {found.steps:,} steps of "
        f"{found.step_seconds:.3f} s ({found.per_second:,.0f} {task.unit}/s)"
    )
