"""Recipes: packaged training configurations, one TOML file each, known to work.

The comment on the first line of a file is its description.
"""

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

DATA = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".gz", ".zst", ".parquet")  # no configurations


@cache
def _texts() -> dict[str, str]:
    """Return the text of every recipe by name, sorted."""
    entries = sorted(files(__name__).iterdir(), key=lambda entry: entry.name)
    return {
        entry.name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        for entry in entries
        if entry.name.endswith(".toml")
    }


def describe_recipes() -> dict[str, str]:
    """Return the name of every recipe with the sentence that describes it.

    >>> describe_recipes()["copy"]
    'Random letters, copied (generated).'
    """
    return {name: text.partition("\n")[0].lstrip("# ") for name, text in _texts().items()}


def load_recipe(name: str) -> dict[str, Any]:
    """Return the tables of a recipe.

    >>> load_recipe("copy")["task"]
    'translate'

    Raises:
        ValueError: if the recipe is unknown
    """
    if name not in _texts():
        from regard.core.names import did_you_mean, find_name
        from regard.models.build import KINDS

        if kind := find_name(name, KINDS):
            raise ValueError(
                f"{name!r} is a kind of model, not a recipe; choose both, such as: "
                f"regard train dates --set model.kind={kind}"
            )
        raise ValueError(f"unknown recipe {name!r}{did_you_mean(name, _texts())}")
    return tomllib.loads(_texts()[name])


def resolve_recipe(source: str) -> tuple[str, dict[str, Any] | Path]:
    """Return the name and the tables of a recipe, or the stem and path of a TOML file.

    An existing file wins over a recipe of the same name.

    Raises:
        FileNotFoundError: if it is written like a file and does not exist
        ValueError: if it is a file of data, or the recipe is unknown
    """
    path = Path(source)
    if path.is_file() and path.suffix in DATA:
        raise ValueError(
            f"{source} is data, not a configuration: train with a TOML file that has a task and "
            f'data.train = "{source}"'
        )
    if path.is_file() or (path.exists() and source not in _texts()):
        return path.stem, path
    if path.suffix or path.name != source:
        raise FileNotFoundError(f"file {source} does not exist{_nearest_toml(path)}")
    if source not in _texts() and path.with_suffix(".toml").is_file():
        raise ValueError(f"unknown recipe {source!r}; did you mean the file {source}.toml?")
    return source, load_recipe(source)


def _nearest_toml(path: Path) -> str:
    """How an error about a missing file goes on: a TOML file beside it with a similar name."""
    from difflib import get_close_matches

    names = [entry.name for entry in path.parent.glob("*.toml")]
    close = get_close_matches(path.name, names, n=1, cutoff=0.8)
    return f"; did you mean {path.parent / close[0]}?" if close else ""
