"""The frame of every HTML page: one file that loads nothing and runs no script but its own."""

import base64
import hashlib
from html import escape
from pathlib import Path

from regard.system.files import atomic_file

LANGUAGES = ("en", "ko")


def check_language(language: str) -> None:
    """Raise `ValueError` if pages are not written in this language."""
    if language not in LANGUAGES:
        raise ValueError(f"the language of a page is {' or '.join(LANGUAGES)}, got {language!r}")


def html_page(
    body: str, *, title: str, style: str, language: str = "en", script: str | None = None
) -> str:
    """An HTML document whose content security policy forbids every request.

    The policy allows one script, by its hash. What stands in `body` must be escaped already.

    >>> page = html_page("<p>1 &lt; 2</p>", title="a < b", style="p { margin: 0 }")
    >>> "<title>a &lt; b</title>" in page, "script-src 'none'" in page
    (True, True)

    Args:
        body: the content, as HTML
        title: of the window, as text
        style: CSS
        language: of the content, "en" or "ko"
        script: a JavaScript module that runs when the body is complete
    """
    allowed, code = "'none'", ""
    if script is not None:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
        allowed, code = f"'sha256-{digest}'", f'<script type="module">{script}</script>'
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src {allowed}; base-uri 'none'; form-action 'none'"
    )
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,">'
        f"<style>{style}</style></head>\n<body>{body}\n{code}</body></html>\n"
    )


def write_html(html: str, path: str | Path) -> Path:
    """Write a page atomically, creating missing directories, and return its path.

    Raises:
        ValueError: a file name that does not end in .html or .htm
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"expected a file name that ends in .html, got {path.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as part:
        part.write_text(html, encoding="utf-8", newline="\n")
    return path
