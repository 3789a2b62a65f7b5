"""The page of a trace: one HTML file that carries its scripts, style and data."""

import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable

from regard.trace import Trace
from regard.visual.html import check_language, html_page
from regard.visual.page.encode import Chunks
from regard.visual.page.payload import payload

IMPORT = re.compile(r'^import (?:(\{.*?\}) from )?"regard/([\w.]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:class|function|const) (\w+))", re.MULTILINE)


def document(traces: Trace | Mapping[str, Trace], *, language: str = "en") -> str:
    """The page of a trace, or of several (such as the checkpoints of a run) with a slider.

    >>> import torch
    >>> trace = Trace.of_maps({"cross": torch.eye(2)}, queries=["<b>", "a"], keys=["x", "y"])
    >>> html = document(trace)
    >>> html.startswith("<!doctype html>"), "<b>" in html
    (True, False)

    Args:
        traces: one, or several by label, in order
        language: of the interface at first, "en" or "ko"

    Raises:
        ValueError: another language, or traces that `payload` refuses
    """
    check_language(language)
    named = {"": traces} if isinstance(traces, Trace) else traces
    chunks = Chunks()
    data = payload(named, language=language, chunks=chunks)
    packed = "".join(
        f'<script type="text/plain" id="{name}">{text}</script>\n'
        for name, text in chunks.texts.items()
    )
    body = (
        "<regard-page></regard-page>\n"
        f'<script type="application/json" id="regard-data">{_json(data)}</script>\n{packed}'
    )
    title = " → ".join(filter(None, (data["input"], data["output"]))) or data["model"] or "regard"
    script = f'const modules = {{}};\n{bundle("page.js")}await modules["page.js"].start();'
    return html_page(body, title=title, style=_style(), language=language, script=script)


def iframe(html: str, *, height: int = 900) -> str:
    """A document in the cell of a notebook, without access to the notebook.

    >>> iframe("<p>1 & 2</p>", height=50)[:60]
    '<iframe title="regard" sandbox="allow-scripts" style="border'
    """
    style = f"border:0;width:100%;height:{height}px"
    return (
        f'<iframe title="regard" sandbox="allow-scripts" style="{style}" '
        f'srcdoc="{escape(html)}"></iframe>'
    )


def _json(data: object) -> str:
    """JSON that is safe inside a script element: no < can end it, whatever a token contains."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return safe.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair has no UTF-8


@cache
def bundle(main: str, *folders: Traversable, without: frozenset[str] = frozenset()) -> str:
    """A module of `web/` and all that it imports as statements that fill `modules` by their names.

    A style sheet is imported as `style`. Each has a scope of its own. Modules that import each
    other by name would need addresses, and a page that allows scripts from data: addresses allows
    any script. In a function, the statements are a classic script, which browsers load from disk,
    where they load no module.

    Args:
        main: the name of the module
        folders: of other modules, looked through before `web/`
        without: names of modules that are there already
    """
    scopes: dict[str, str] = {}

    def add(name: str) -> None:
        if name in scopes or name in without:
            return
        files = (folder / name for folder in (*folders, _web()))
        code = next(file for file in files if file.is_file()).read_text(encoding="utf-8")
        if name.endswith(".css"):
            scopes[name] = f'modules["{name}"] = {{ style: {json.dumps(code)} }};\n'
            return
        for _, imported in IMPORT.findall(code):
            add(imported)
        exports = ", ".join(exported for _, exported in EXPORT.findall(code))
        code = IMPORT.sub(
            lambda m: f'const {m[1].replace(" as ", ": ")} = modules["{m[2]}"];' if m[1] else "",
            code,
        )
        code = EXPORT.sub(r"\1", code)
        scopes[name] = f'modules["{name}"] = (() => {{\n{code}\nreturn {{ {exports} }};\n}})();\n'

    add(main)
    return "".join(scopes.values())


@cache
def _style() -> str:
    return "".join((_web() / name).read_text("utf-8") for name in ("style.css", "steps.css"))


def _web() -> Traversable:
    return files("regard.visual.page") / "web"
