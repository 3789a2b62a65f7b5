"""One HTML file that carries its modules, its style and its data, and asks the network nothing."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files

from regard.trace import Trace
from regard.visual.page.encode import Chunks
from regard.visual.page.payload import payload

LANGUAGES = ("en", "ko")
START = 'import { start } from "regard/page.js"; await start();'


def document(traces: Trace | Mapping[str, Trace], *, language: str = "en") -> str:
    """The page of a trace, or of several (such as the checkpoints of a run) with a slider.

    The JavaScript modules stand in an import map as data: addresses, unchanged. A content
    security policy forbids every request, and every script but ours.

    >>> import torch
    >>> trace = Trace.of_maps({"cross": torch.eye(2)}, queries=["<b>", "a"], keys=["x", "y"])
    >>> html = document(trace)
    >>> html.startswith("<!doctype html>"), "<b>" in html
    (True, False)

    Args:
        traces: one, or several by what to call them, in order
        language: of the interface to begin with, "en" or "ko"

    Raises:
        ValueError: another language, or what `payload` refuses
    """
    if language not in LANGUAGES:
        raise ValueError(f"a page speaks {' or '.join(LANGUAGES)}, got {language!r}")
    named = {"": traces} if isinstance(traces, Trace) else traces
    chunks = Chunks()
    data = payload(named, language=language, chunks=chunks)
    imports = _json({"imports": {f"regard/{name}": _address(name) for name in _modules()}})
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"script-src data: {_hash(imports)} {_hash(START)}; base-uri 'none'; form-action 'none'"
    )
    packed = "".join(
        f'<script type="text/plain" id="{name}">{text}</script>\n'
        for name, text in chunks.texts.items()
    )
    title = escape(data["title"] or "regard")
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title}</title><link rel="icon" href="data:,"><style>{_read("style.css")}</style>'
        f'<script type="importmap">{imports}</script></head>\n<body><regard-page></regard-page>\n'
        f'<script type="application/json" id="regard-data">{_json(data)}</script>\n{packed}'
        f'<script type="module">{START}</script></body></html>\n'
    )


def iframe(html: str, *, height: int = 900) -> str:
    """A document inside a notebook's cell, shut off from the notebook.

    >>> iframe("<p>1 & 2</p>", height=50)[:60]
    '<iframe title="regard" sandbox="allow-scripts" style="border'
    """
    style = f"border:0;width:100%;height:{height}px"
    return (
        f'<iframe title="regard" sandbox="allow-scripts" style="{style}" '
        f'srcdoc="{escape(html)}"></iframe>'
    )


def _json(data: object) -> str:
    """JSON that is safe inside a script element: no < can end it, whatever a token says."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return safe.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair is no text


@cache
def _modules() -> list[str]:
    folder = files("regard.visual.page") / "web"
    return sorted(file.name for file in folder.iterdir() if file.name.endswith(".js"))


@cache
def _read(name: str) -> str:
    return (files("regard.visual.page") / "web" / name).read_text(encoding="utf-8")


def _address(name: str) -> str:
    code = base64.b64encode(_read(name).encode()).decode("ascii")
    return f"data:text/javascript;charset=utf-8;base64,{code}"


def _hash(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"
