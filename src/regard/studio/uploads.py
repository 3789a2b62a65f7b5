"""Files that a person drops on the page: checked, previewed, and kept for a training."""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from regard.core.files import atomic_file
from regard.data import read_pairs
from regard.recipes import load_recipe
from regard.studio.messages import Preview, Upload

SHOWN_ROWS = 8
WORDS = 4.0  # words of a text on average, above which a text is split into subwords


def preview(folder: Path, given: Upload) -> Preview:
    """Check a file, keep it below `folder`, and return what is in it.

    Raises:
        ValueError: if it has no pairs
    """
    suffix = Path(given.name).suffix
    content = given.text.encode("utf-8", "replace")
    name = hashlib.sha256(content).hexdigest()[:16] + suffix
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / Path(given.name).name
        file.write_bytes(content)
        pairs = read_pairs(file, bad="skip")
    if not len(pairs):
        raise ValueError(f"{given.name} has no pairs: each line should be a text, a tab and a text")
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / name) as part:
        part.write_bytes(content)
    report = pairs.report
    return Preview(
        upload=name,
        rows=[[str(source), target] for source, target in pairs[:SHOWN_ROWS]],
        count=len(pairs),
        skipped=report.count,
        problems=[f"{report.unit} {line}: {reason}" for line, reason in report.examples],
    )


def configuration(folder: Path, upload: str) -> dict[str, Any]:
    """Return the configuration of a training on an uploaded file.

    Raises:
        FileNotFoundError: if there is none of this name
    """
    if Path(upload).name != upload or not (folder / upload).is_file():
        raise FileNotFoundError("the uploaded file is not there any more: choose it again")
    pairs = read_pairs(folder / upload, bad="skip")
    tables = load_recipe("dates")
    some = pairs[:200]
    words = sum(len(str(source).split()) for source in some.sources) / len(some)
    kind = "bpe" if words > WORDS else "characters"
    data: dict[str, Any] = {"train": str((folder / upload).resolve()), "bad": "skip"}
    data |= {"source_tokenizer": kind, "target_tokenizer": kind, "sentences": 50}
    return {**tables, "data": data}
