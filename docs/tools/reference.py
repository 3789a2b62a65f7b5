"""Write the pages of the reference that are generated: commands, recipes, keys (`make reference`).

What the API page shows comes from the docstrings, by mkdocstrings, when the site is built.
"""

import re
from functools import partial
from importlib.resources import files

import typer.main

from docs.tools.pages import ROOT
from regard.cli.app import app
from regard.cli.keys import describe_keys
from regard.recipes import describe_recipes, load_recipe
from regard.system.compatibility import table

DOCS = ROOT / "docs"
WIDTH = 100


def commands() -> str:
    """Return the page of commands: what `--help` prints, for each."""
    parts = [
        "# Commands\n",
        "What `regard COMMAND --help` prints. `--set` takes the keys of a configuration file, see\n"
        "[configuration](../configuration.md).\n",
    ]
    for name, command in typer.main.get_command(app).commands.items():
        parts.append(f"## regard {name}\n")
        for words, one in [(name, command), *_inner(name, command)]:
            context = command.context_class(one, info_name=f"regard {words}", terminal_width=WIDTH)
            parts.append(f"```text\n{one.get_help(context)}\n```\n")
    return "\n".join(parts)


def _inner(name: str, command: typer.main.TyperCommand) -> list:
    """Return the commands of a group, such as `regard data`."""
    return [(f"{name} {inner}", one) for inner, one in getattr(command, "commands", {}).items()]


def results() -> dict[str, str]:
    """Return the test result of each recipe that a row of docs/results.md names in code font."""
    row = re.compile(r"^\|[^|]*`([\w-]+)`[^|]*\|(.*)\|$", re.MULTILINE)
    rows = row.findall((DOCS / "results.md").read_text("utf-8"))
    return {recipe: cells.split("|")[2].strip() for recipe, cells in rows}


def recipes() -> str:
    """Return the page of recipes, by task: each with its result and its file."""
    described, measured = describe_recipes(), results()
    by_task: dict[str, list[str]] = {}
    for name in described:
        by_task.setdefault(load_recipe(name)["task"], []).append(name)
    parts = [
        "# Recipes\n",
        "`regard train NAME` trains a recipe into `runs/NAME`, `--set KEY=VALUE` changes a\n"
        "[key](../configuration.md), and `regard train --list` lists them all. Those marked\n"
        "*generated* need no data; `regard data get` fetches that of the others. How results were\n"
        "measured is in [results](../results.md) and on the page of each task.\n",
    ]
    for task, names in sorted(by_task.items()):
        page = "../results.md" if task == "translate" else f"../tasks/{task}.md"
        parts.append(f"## Task: {task}\n\nWhat its models reach: [{task}]({page}).\n")
        for name in names:
            text = files("regard.recipes").joinpath(f"{name}.toml").read_text("utf-8")
            result = f" Test: {measured[name]}." if name in measured else ""
            parts.append(f"### {name}\n\n{described[name]}{result}\n")
            parts.append(f"```toml\n{text.partition(chr(10))[2]}```\n")
    return "\n".join(parts)


def configuration() -> str:
    """Return the page of configuration with its list of keys as it is now."""
    before, _, rest = (DOCS / "configuration.md").read_text("utf-8").partition("```text\n")
    return f"{before}```text\n{describe_keys()}\n```{rest.partition('```')[2]}"


def compatibility(name: str) -> str:
    """Return the page of compatibility with the runs of the tests as they are now."""
    before, start, rest = (DOCS / name).read_text("utf-8").partition("make reference -->\n")
    return f"{before}{start}\n{table()}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}"


PAGES = {
    "reference/cli.md": commands,
    "reference/recipes.md": recipes,
    "configuration.md": configuration,
    "compatibility.md": partial(compatibility, "compatibility.md"),
    "compatibility.ko.md": partial(compatibility, "compatibility.ko.md"),
}

if __name__ == "__main__":
    for name, write in PAGES.items():
        (DOCS / name).write_text(write(), "utf-8")
        print("docs/" + name)
