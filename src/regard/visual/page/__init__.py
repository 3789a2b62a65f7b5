"""A trace as one HTML file with linked views, for any browser, without a network."""

from collections.abc import Mapping
from pathlib import Path

from regard.trace import Trace
from regard.visual.page.document import document, iframe

__all__ = ["document", "iframe", "write"]


def write(traces: Trace | Mapping[str, Trace], path: str | Path, *, language: str = "en") -> Path:
    """Write the page of a trace, or of several by name, to one HTML file; folders are made.

    Args:
        traces: one, or several in order, such as the checkpoints of a run
        path: the file, .html
        language: of the interface, "en" or "ko"

    Returns: the path

    Raises:
        ValueError: another suffix, or what `document` refuses
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a page is written as .html, got {path.name!r}")
    html = document(traces, language=language)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")
    return path
