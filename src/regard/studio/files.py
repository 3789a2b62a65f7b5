"""What a room shows, as a file."""

import tempfile
from pathlib import Path

from regard.studio.edits import edited_outcome
from regard.studio.look import find_input
from regard.studio.messages import File, WhyWord
from regard.studio.runs import Runs
from regard.tasks import why
from regard.trace import Trace
from regard.visual import why as visual

MEDIA = {
    "png": "image/png",
    "svg": "image/svg+xml",
    "html": "text/html; charset=utf-8",
    "attn": "application/octet-stream",
}


def file(runs: Runs, given: File) -> tuple[bytes, str]:
    """Return the attention of an input, after edits if there are any, and the media type."""
    predictor = runs.predictor(given.run, given.checkpoint)
    input = find_input(runs, predictor, given)
    beam = 1 if given.edits else given.beam
    done = edited_outcome(predictor, input, given.edits, beam, given.prefix)
    return trace_file(done.trace, given.format, given.language), MEDIA[given.format]


def why_page(runs: Runs, given: WhyWord) -> bytes:
    """Return the page on why a word of an output was written."""
    predictor = runs.predictor(given.run, given.checkpoint)
    input = predictor.parse(given.text)
    found = why(predictor, input, at=given.at, written=given.written)
    return visual.why_page(found, language=given.language).encode()


def trace_file(trace: Trace, format: str, language: str) -> bytes:
    """Return a trace in the format of a suffix: png, svg, html or attn."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"view.{format}"
        if format == "attn":
            trace.save(path)
        elif format == "html":
            trace.page(path, language=language)
        else:
            trace.figure(path)
        return path.read_bytes()
