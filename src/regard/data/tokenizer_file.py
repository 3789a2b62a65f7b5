"""How a tokenizer is stored: one JSON file, and the ids that all of them share."""

import json
from pathlib import Path
from typing import Any

from regard.core.files import atomic_file

FORMAT = "regard tokenizer"
VERSION = 1
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")  # ids 0, 1, 2, 3; how they are displayed
REPLACEMENT = "\ufffd"  # what an unknown piece decodes to


class Stored:
    """The part that all tokenizers have in common: special ids, and saving as JSON."""

    kind: str
    pad, bos, eos, unk = range(4)

    def state(self) -> dict[str, Any]:
        """All that must be stored, as JSON."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Store as JSON, for `load_tokenizer`; the file is there whole or not at all."""
        content = {"format": FORMAT, "version": VERSION, "kind": self.kind, "state": self.state()}
        with atomic_file(path) as part:
            part.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
