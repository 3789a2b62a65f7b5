"""The page of a trace: linked views in one HTML file, for any browser, without a network."""

from collections.abc import Mapping
from pathlib import Path

from regard.trace import Trace
from regard.visual.html import write_html
from regard.visual.page.document import document, iframe

__all__ = ["document", "iframe", "write"]


def write(traces: Trace | Mapping[str, Trace], path: str | Path, *, language: str = "en") -> Path:
    """Write the page of a trace, or of several by label, to one HTML file.

    Args:
        traces: one, or several in order, such as the checkpoints of a run
        path: the file, .html; missing directories are created
        language: of the interface, "en" or "ko"

    Returns: the path

    Raises:
        ValueError: another suffix, or traces that `document` refuses
    """
    return write_html(document(traces, language=language), path)
