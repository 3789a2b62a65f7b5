"""What a translator has written, and the trace of how it was written."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data import Tokenizer, collate
from regard.trace import Trace, capture
from regard.visual.notebook import matrix_html

LONGEST_REPR = 60  # letters of a translation that its repr shows
LIKELIEST = 5  # next tokens that a trace keeps for each position


class Translation(NamedTuple):
    """What was written for a source."""

    text: str
    tokens: list[str]  # of the text, with the end-of-sequence token
    score: float  # log-probability, with the end-of-sequence token
    map: Tensor | None  # (tokens, source); None unless return_map
    source: list[str]  # the source tokens
    maps: dict[str, Tensor] | None  # by module, (heads, tokens, source) each

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= LONGEST_REPR else self.text[:LONGEST_REPR] + "…"
        shape = "" if self.map is None else f", map={tuple(self.map.shape)}"
        return f"Translation({text!r}, score={self.score:.3f}{shape})"

    def _repr_html_(self) -> str:
        """The text, and the map where it was kept, for notebooks."""
        title = f"{self.text} ({self.score:.3f})"
        if self.map is None:
            return f"<p>{escape(title)}</p>"
        return matrix_html(self.map, self.tokens, self.source, title)


@torch.no_grad()
def trace_translation(
    model: Any,
    tokenizer: Tokenizer,
    source: Any,
    ids: Sequence[int],
    written: Translation,
    text: str,
) -> Trace:
    """Run a model on its own translation and record all attention; see `Translator.trace`.

    Args:
        model: an encoder–decoder of `regard.models`
        tokenizer: of the target
        source: ids or frames
        ids: of the translation, EOS included
        written: the translation
        text: the source as it was given, empty for frames
    """
    batch = collate([(source, ())])
    device = model.output.weight.device
    before = torch.tensor([[tokenizer.bos, *ids[:-1]]], device=device)  # (1, T)
    with warnings.catch_warnings(), capture(model, inputs=True) as recorded:
        warnings.filterwarnings("ignore", "capture recorded nothing")  # without attention
        memory = model.encode(batch.source.to(device), batch.source_lengths.to(device))
        features = model.decode(memory, before)  # (1, T, D)
    scores = model.output(features)[0].log_softmax(-1)  # (T, vocabulary)
    own_scores = scores[range(len(ids)), ids]
    tokens = {
        "source": written.source if any(written.source) else [str(i) for i in range(len(source))],
        "target": written.tokens,
        "prefix": tokenizer.tokens(before[0].tolist()),
    }
    calls = [
        replace(call, keys="prefix") if call.keys == "target" else call
        for call in recorded.label(**tokens).stitched().of(0).calls
    ]
    about = {
        **recorded.about,
        "task": "translate",
        "text": text,
        "translation": written.text,
        "outputs": {"target": likeliest(scores.exp(), tokenizer)},
        "log_probabilities": {"target": [round(score, 5) for score in own_scores.tolist()]},
    }
    return Trace(calls, tokens, about)


def likeliest(shares: Tensor, tokenizer: Any) -> list[list[list[Any]]]:
    """The likeliest next tokens after each position: token, probability and id.

    Args:
        shares: probabilities, (T, vocabulary)
        tokenizer: whose `tokens` names ids
    """
    values, indices = shares.topk(min(LIKELIEST, shares.shape[-1]))
    return [
        [
            [token, round(share, 5), number]
            for token, share, number in zip(tokenizer.tokens(ids), row, ids, strict=True)
        ]
        for ids, row in zip(indices.tolist(), values.tolist(), strict=True)
    ]
