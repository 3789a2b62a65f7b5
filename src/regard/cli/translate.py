"""What `regard translate` adds to `regard predict`: beams, samples, scores, traces of lines."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.inputs import Record

if TYPE_CHECKING:
    from regard.tasks import Translation, Translator
    from regard.tasks.search import SearchOptions

LONGEST = 2048
CHECKED = 100  # lines that are searched for one of unknown tokens
TRACED = 16  # lines that a trace holds at most
SAMPLING = ("temperature", "top_k", "top_p", "seed")  # fields of `Sampling`
SEARCH = ("beam", "n_best", "penalty", "mbr")  # fields of `SearchOptions`


def read_search(given: dict[str, Any]) -> "SearchOptions":
    """Take the options of a search out of those of a command line."""
    from regard.tasks.search import search_options

    sampling = {name: given.pop(name) for name in SAMPLING if name in given}
    options = {name: given.pop(name) for name in SEARCH if name in given}
    if given.pop("sample", False):
        if "mbr" in options:
            raise typer.BadParameter("--mbr samples by itself: leave out --sample")
    elif sampling and "mbr" not in options:
        flags = "--temperature, --top-k, --top-p and --seed"
        raise typer.BadParameter(f"{flags} are for samples: add --sample or --mbr")
    elif not sampling:
        sampling = None
    try:
        return search_options(**options, sampling=sampling)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


class BatchTranslator:
    """Translations of one batch after the other, of which the first are traced."""

    def __init__(self, translator: "Translator", given: dict[str, Any]) -> None:
        self.translator = translator
        self.longest = given.pop("longest", LONGEST)
        self.scores = given.pop("scores", False)
        self.to_trace = TRACED if given.pop("trace", None) is not None else 0
        self.traced: list[Translation] = []
        self.prefix = given.pop("prefix", "")
        self.seen = self.done = 0
        self.search = read_search(given)
        own = self.search.model_fields_set
        self.options: dict[str, Any] = {name: getattr(self.search, name) for name in own} | given
        if self.search.sampling is not None:
            self.options["sampling"] = self.search.drawing

    def check(self, inputs: Iterator[tuple[Record, Any]]) -> Iterator[tuple[Record, Any]]:
        """Yield the inputs again; raise at one that is too long, and note one that is unknown."""
        tokenizer = self.translator.source
        to_check = CHECKED
        for record, text in inputs:
            # There are no more tokens than bytes.
            if tokenizer is not None and len(text.encode(errors="replace")) > self.longest:
                count = len(tokenizer.encode(text))
                if count > self.longest:
                    raise ValueError(
                        f"{record.place} has {count:,} tokens, more than --longest "
                        f"{self.longest:,}: split it, or raise --longest"
                    )
            if tokenizer is not None and to_check:
                ids = tokenizer.encode(text)
                to_check -= 1
                if 2 * ids.count(tokenizer.unk) > len(ids):
                    to_check = 0
                    note = "did not occur in training (<unk>): what is written for it means little"
                    print(f"note: most of {record.place} {note}", file=sys.stderr)
            yield record, text

    def __call__(self, batch: list[tuple[Record, Any]]) -> list[tuple[str, Any]]:
        sources = [parsed for _, parsed in batch]
        split = max(self.to_trace - len(self.traced), 0)
        found = self._some(sources[:split], return_map=True)
        self.traced += [translations[0] for translations in found]
        found += self._some(sources[split:])
        rows = []
        for translations in found:
            self.done += 1
            rows.append((self._text(translations), self._json(translations)))
        return rows

    def _some(self, sources: list[Any], **more: Any) -> "list[list[Translation]]":
        if not sources:
            return []
        if self.prefix:
            more["prefix"] = [self.prefix] * len(sources)
        found = self.translator.predict(sources, first=self.seen, **self.options, **more)
        self.seen += len(sources)
        return found if self.search.n_best > 1 else [[one] for one in found]

    def _ranking(self, one: "Translation") -> float:
        """Return the score by which a beam sorts; samples are not sorted."""
        from regard.decoding.search import length_penalty

        search = self.search
        return one.score / (
            1 if search.samples else length_penalty(len(one.tokens), search.penalty)
        )

    def _text(self, translations: "list[Translation]") -> str:
        rows = []
        for one in translations:
            text = self.translator.to_text(one)
            if self.search.n_best > 1:
                rows.append(f"{self.done}\t{self._ranking(one):.4f}\t{text}")
            else:
                rows.append(f"{one.score:.4f}\t{text}" if self.scores else text)
        return "\n".join(rows)

    def _json(self, translations: "list[Translation]") -> Any:
        rows = [
            self.translator.to_json(one) | {"ranking": self._ranking(one)} for one in translations
        ]
        return rows if self.search.n_best > 1 else self.translator.to_json(translations[0])


def store_trace(found: "list[Translation]", path: Path) -> None:
    """Store the maps of some translations as one trace, padded to the longest."""
    import torch
    from torch.nn.functional import pad

    from regard.core.map import AttentionMap
    from regard.trace.call import Call
    from regard.trace.trace import Trace

    real = [one for one in found if one.maps]
    if not real:
        raise ValueError("there is nothing to trace: no lines, or a model without attention")
    rows, columns = max(len(one.tokens) for one in real), max(len(one.source) for one in real)
    calls = []
    for name in real[0].maps or {}:
        maps = [one.maps[name] for one in real if one.maps]
        whole = [pad(m, (0, columns - m.shape[2], 0, rows - m.shape[1])) for m in maps]
        calls.append(Call(name, AttentionMap.of(torch.stack(whole)), "target", "source"))
    tokens = {"target": [one.tokens for one in real], "source": [one.source for one in real]}
    Trace(calls, tokens, {"task": "translate"}).save(path)
