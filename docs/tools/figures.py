"""A hook of mkdocs: the scripts of live figures, on the pages that have one.

A page opened from disk loads no module and fetches nothing, so all that a figure needs is one
classic script: docs/figures/ and what it imports of the pages of `regard see`.
"""

import re
from pathlib import Path
from posixpath import dirname, relpath
from typing import Any

from regard.visual.page.document import bundle

FIGURES = Path(__file__).parents[1] / "figures"
COMMENT = re.compile(r"^ *(?://[^\n]*|/\*\*.*?\*/)\n", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r'^modules\["(.*?)"\] = ', re.MULTILINE)


def scripts() -> dict[str, str]:
    """The classic scripts by name: the figures, and their steps, which are loaded when opened.

    >>> [name for name in scripts()]
    ['figure.js', 'figure_steps.js']
    """
    figure = bundle("figure.js", FIGURES)
    steps = bundle("figure_steps.js", FIGURES, without=frozenset(MODULE.findall(figure)))
    return {"figure.js": _classic(figure), "figure_steps.js": _classic(steps)}


def _classic(code: str) -> str:
    """Modules in a function, without comments and indentation; all scripts share what they fill."""
    code = re.sub(r"^ +", "", COMMENT.sub("", code), flags=re.MULTILINE)
    return f"(() => {{\nconst modules = (globalThis.regardModules ??= {{}});\n{code}}})();\n"


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Load the script on a page with a figure."""
    if "<attention-figure" not in output:
        return output
    source = relpath("assets/figure.js", dirname(page.url) or ".")
    return output.replace("</body>", f'<script src="{source}"></script></body>')


def on_post_build(config: Any, **_: Any) -> None:
    """Write the scripts beside the other assets of the site."""
    folder = Path(config["site_dir"], "assets")
    folder.mkdir(parents=True, exist_ok=True)
    for name, code in scripts().items():
        (folder / name).write_text(code, "utf-8")
