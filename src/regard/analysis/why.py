"""Why a model wrote a word and not another: attribution first, then interventions that test it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.analysis.attribution import METHODS, attribute, blocks
from regard.analysis.faithfulness import kendall
from regard.analysis.words import word_groups, word_labels
from regard.trace import Trace, capture, edit
from regard.trace.edit import Edits

SLOW = ("value_zeroing",)  # a forward pass for each word and layer
FEWEST = 2  # others that a claim is compared with, at least

Verdict = Literal["confirmed", "refuted", "undecided"]


@dataclass(frozen=True)
class Decision:
    """A position at which a model wrote one token and not another.

    Args:
        model: a torch module
        run: calls the model itself
        logits: of the position, (vocabulary,), from what `run` returned
        row: the query that belongs to it, in attention from target to source
        text: what the model read
        before: what it had written
        source: the tokens of the text
        special: whether each of these is no part of the text
        said, instead: ids of the two tokens
        tokens: from ids to readable tokens
    """

    model: nn.Module
    run: Callable[[], Any]
    logits: Callable[[Any], Tensor]
    row: int
    text: str
    before: str
    source: list[str]
    special: list[bool]
    said: int
    instead: int
    tokens: Callable[[list[int]], list[str]]

    def difference(self, output: Any) -> Tensor:
        """The logit of what was said minus that of what was not."""
        logits = self.logits(output)
        return logits[self.said] - logits[self.instead]


class Head(NamedTuple):
    """A head, and how much its output speaks for what was said: G · O."""

    name: str
    head: int
    score: float


class Claim(NamedTuple):
    """That a word or a head speaks for what was said (score > 0) or against it, and its test.

    The effect is the loss of the logit difference without it; low and high limit 95 % of the
    effects of random others of the same kind and size.
    """

    kind: Literal["word", "head"]
    name: str
    score: float
    effect: float
    low: float
    high: float
    verdict: Verdict


@dataclass(frozen=True)
class Why:
    """What `why` returns.

    Args:
        text, before: what the model read, and what it had written
        said, instead: the two tokens
        probabilities: of the two
        difference: of their logits
        competitors: the likeliest tokens with their probabilities
        words: of the text
        methods: for each method of attribution a number for each word; the first one is signed
            gradient × attention, of which claims are made
        agreement: Kendall's τ of each method with the first
        heads: all, the largest |score| first
        claims: with their verdicts
        controls: how many random others each claim is compared with
    """

    text: str
    before: str
    said: str
    instead: str
    probabilities: tuple[float, float]
    difference: float
    competitors: list[tuple[str, float]]
    words: list[str]
    methods: dict[str, list[float]]
    agreement: dict[str, float]
    heads: list[Head]
    claims: list[Claim]
    controls: int

    def as_dict(self) -> dict[str, Any]:
        """The same as numbers, texts, lists and dictionaries; None where a number is NaN."""
        parts = asdict(self) | {
            "heads": [head._asdict() for head in self.heads],
            "claims": [claim._asdict() for claim in self.claims],
        }
        return _without_nan(parts)


def explain_decision(
    decision: Decision, *, claims: int = 3, controls: int = 20, seed: int = 0
) -> Why:
    """Attribute a decision to words and heads, and test the strongest by hiding them.

    Args:
        decision: which token the model wrote, and which it did not
        claims: words and heads to test, at most
        controls: random others, of the same kind and size, that each is compared with
        seed: of these
    """
    model, difference = decision.model, decision.difference
    with capture(model, gradients=True) as trace:
        output = decision.run()
    if not trace.calls:
        raise ValueError(f"nothing to explain by: {trace!r}")
    logits = decision.logits(output).detach().float()
    shares, ids = logits.softmax(-1).topk(min(6, len(logits)))
    groups = units(decision.source)
    words = word_labels(decision.source, groups)
    methods = _methods(trace, decision, groups)
    first = methods["gradient_attention"]
    heads = _heads(trace, difference(output))
    draw = torch.Generator().manual_seed(seed)
    base = float(logits[decision.said] - logits[decision.instead])

    @torch.no_grad()
    def effect(change: Callable[[Edits], None]) -> float:
        with edit(model) as edits:
            change(edits)
            return base - float(difference(decision.run()))

    def hide(word: int) -> Callable[[Edits], None]:
        return lambda edits: edits.hide(word=[j for j, each in enumerate(groups) if each == word])

    def zero(index: int) -> Callable[[Edits], None]:
        return lambda edits: edits.zero(heads[index].name, head=heads[index].head)

    sizes = [groups.count(word) for word in range(len(words))]  # in tokens
    real = [w for w in range(len(words)) if not all(_of(decision.special, groups, w))]
    test = partial(_test, effect=effect, claims=claims, controls=controls, draw=draw)
    names = [f"{one.name} {one.head}" for one in heads]
    scores = [one.score for one in heads]
    tested = test("word", words, {word: first[word] for word in real}, hide, sizes=sizes)
    tested += test("head", names, dict(enumerate(scores)), zero, sizes=[1] * len(heads))
    said, instead = decision.tokens([decision.said, decision.instead])
    probabilities = logits.softmax(-1)[[decision.said, decision.instead]].tolist()
    return Why(
        decision.text,
        decision.before,
        said,
        instead,
        (probabilities[0], probabilities[1]),
        base,
        list(zip(decision.tokens(ids.tolist()), shares.tolist(), strict=True)),
        words,
        methods,
        {name: kendall(torch.tensor(first), torch.tensor(own)) for name, own in methods.items()},
        heads,
        tested,
        controls,
    )


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def units(tokens: Sequence[str]) -> list[int]:
    """The number of the word of each token; of a model of characters, each is its own."""
    if all(len(token) <= 1 or token[0] in "<[" for token in tokens):
        return list(range(len(tokens)))
    return word_groups(tokens)


def _of(values: Sequence[Any], groups: Sequence[int], word: int) -> list[Any]:
    return [value for value, group in zip(values, groups, strict=True) if group == word]


def _methods(trace: Trace, decision: Decision, groups: list[int]) -> dict[str, list[float]]:
    """A number for each word by each method that the model has what it needs for."""
    index = torch.tensor(groups)
    found = {}
    for method in ("gradient_attention", *METHODS):
        if method in SLOW or method in found:
            continue
        signed = method == "gradient_attention"
        try:
            scores = attribute(
                trace, decision.difference, method, rows=[decision.row], signed=signed
            )
        except ValueError:
            if signed:
                raise
            continue  # such as a model whose input has no embedding
        by_word = torch.zeros(max(groups) + 1).index_add(0, index, scores.float().cpu())
        found[method] = by_word.tolist()
    return found


@torch.no_grad()
def _heads(trace: Any, difference: Tensor) -> list[Head]:
    """Every head by |G · O|: exactly what it adds to the difference where that is linear in it."""
    trace.differentiate(difference)
    heads = []
    for call in trace.stitched():
        total = torch.zeros(call.heads)
        for rows in blocks(call):
            assert call.gradient is not None
            product = call.map[..., rows, :] * call.gradient[..., rows, :]
            total += product.sum((-2, -1)).reshape(-1, call.heads).sum(0).float().cpu()
        heads += [Head(call.name, head, float(total[head])) for head in range(call.heads)]
    return sorted(heads, key=lambda one: -abs(one.score))


def _test(
    kind: Literal["word", "head"],
    names: Sequence[str],
    scores: dict[int, float],
    change: Callable[[int], Callable[[Edits], None]],
    *,
    sizes: Sequence[int],
    effect: Callable[[Callable[[Edits], None]], float],
    claims: int,
    controls: int,
    draw: torch.Generator,
) -> list[Claim]:
    """Test the strongest of some words or heads against random ones that nothing is claimed of."""
    count = min(claims, max(1, len(scores) // 3))
    strongest = sorted(scores, key=lambda index: -abs(scores[index]))[:count]
    others = [index for index in scores if index not in strongest]
    known: dict[tuple[int, ...], float] = {}

    def together(chosen: tuple[int, ...]) -> float:
        def all_of(edits: Edits) -> None:
            for index in chosen:
                change(index)(edits)

        if chosen not in known:
            known[chosen] = effect(all_of)
        return known[chosen]

    found = []
    for index in strongest:
        score, own, limits = scores[index], together((index,)), [math.nan, math.nan]
        if len(others) >= FEWEST:
            effects = [together(_draw(others, sizes, sizes[index], draw)) for _ in range(controls)]
            limits = torch.tensor(effects).quantile(torch.tensor([0.025, 0.975])).tolist()
        low, high = limits
        said = verdict(score, own, low, high)
        found.append(Claim(kind, names[index], score, own, low, high, said))
    return found


def _draw(
    others: list[int], sizes: Sequence[int], size: int, draw: torch.Generator
) -> tuple[int, ...]:
    """Random others, of as many tokens together."""
    chosen: list[int] = []
    for place in torch.randperm(len(others), generator=draw).tolist():
        chosen.append(others[place])
        if sum(sizes[index] for index in chosen) >= size:
            break
    return tuple(sorted(chosen))


def verdict(score: float, effect: float, low: float, high: float) -> Verdict:
    """Whether an effect beyond the limits of random ones has the sign of the score.

    >>> verdict(2.0, 1.5, -0.1, 0.3), verdict(2.0, -1.5, -0.1, 0.3), verdict(2.0, 0.2, -0.1, 0.3)
    ('confirmed', 'refuted', 'undecided')
    """
    if low <= effect <= high or not effect or not score:
        return "undecided"
    if not (effect > high if effect > 0 else effect < low):  # NaN: nothing to compare with
        return "undecided"
    return "confirmed" if (effect > 0) == (score > 0) else "refuted"
