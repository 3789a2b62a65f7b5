"""How well the encoder–decoder attention of a translator aligns words, against gold alignments."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from regard.analysis import AlignmentScore, Gold, merge_words, rank_heads
from regard.data import Pairs, collate
from regard.decoding.search import encoder_decoder_attentions, evaluating
from regard.tasks.guided import (
    HEAD,
    check_links,
    guided_attention,
    joined_map,
    recorded,
    word_numbers,
)
from regard.tasks.predictor import check_traceable
from regard.tasks.translator import Translator

ROWS = 64  # pairs of a batch


class MapScore(NamedTuple):
    """How well the map of a head, or the average of a layer, aligns words."""

    kind: str  # "average", "best head", which is chosen on these pairs, or "guided head"
    attention: str  # the name of the module
    head: int | None  # None for an average
    shift: int  # by how many rows the map was moved up to fit best
    score: AlignmentScore

    def as_dict(self) -> dict[str, Any]:
        """The score in types that JSON can represent."""
        *place, (aer, precision, recall) = self
        names = (*self._fields[:-1], "aer", "precision", "recall")
        return dict(zip(names, (*place, aer, precision, recall), strict=True))


def score_alignments(translator: Translator, pairs: Pairs, gold: Sequence[Gold]) -> list[MapScore]:
    """Run the model on given pairs and compare what it attends to with their gold alignments.

    Each target word is linked to the source word with the largest weight; weights of the pieces of
    a source word are added up, and those of a target word averaged. A row may belong to the word
    that is written or to the one that is read, which is a row later: the better counts.

    Raises:
        ValueError: for a link outside of its pair, or a model without encoder–decoder attention
    """
    if len(gold) != len(pairs):
        raise ValueError(f"expected gold alignments of {len(pairs)} pairs, got {len(gold)}")
    model = translator.model
    check_traceable(model)
    guided = guided_attention(model)
    names = encoder_decoder_attentions(model)
    maps: list[dict[str, Tensor]] = []
    for first in range(0, len(pairs), ROWS):
        maps += _word_maps(translator, pairs[first : first + ROWS], gold[first:], first)
    means = [{name: each.mean(0, keepdim=True) for name, each in one.items()} for one in maps]
    averages = {each.name: each for each in rank_heads(means, gold)}
    heads = rank_heads(maps, gold)
    found = [MapScore("average", name, None, *averages[name][2:]) for name in names.values()]
    found.append(MapScore("best head", *heads[0]))
    if translator.config is not None and translator.config.loss.get("guided"):
        own = next(each for each in heads if each[:2] == (names[guided], HEAD))
        found.append(MapScore("guided head", *own))
    return found


def _word_maps(
    translator: Translator, pairs: Pairs, gold: Sequence[Gold], first: int
) -> list[dict[str, Tensor]]:
    """For each pair, maps (heads, target words, source words) by the name of the attention."""
    model, source, target = translator.model, translator.source, translator.target
    texts: Sequence[Any] = pairs.sources
    sources = texts if source is None else [source.encode(text) for text in texts]
    batch = collate(zip(sources, map(target.encode, pairs.targets), strict=True))
    device = model.output.weight.device
    names = encoder_decoder_attentions(model)
    with evaluating(model), recorded(names) as calls:
        inputs = (batch.source, batch.source_lengths, batch.target[:, :-1])
        model(*(each.to(device) for each in inputs))
        maps = {
            name: joined_map(call for call in calls if call.module is module).cpu()
            for module, name in names.items()
        }
    found = []
    for row, (text, written) in enumerate(pairs):
        keys, queries = word_numbers(source, text), word_numbers(target, written)
        check_links(gold[row], first + row, max(keys, default=-1) + 1, max(queries, default=-1) + 1)
        found.append(
            {
                name: merge_words(each[row, :, : len(queries), : len(keys)], queries, keys)
                for name, each in maps.items()
            }
        )
    return found
