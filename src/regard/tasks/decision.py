"""The decision of a loaded model at one word, from the words that a person names."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from regard.analysis.why import Decision, Why, explain_decision
from regard.decoding import Hypothesis
from regard.tasks.language import TextGenerator
from regard.tasks.predictor import Predictor
from regard.tasks.pretrained import PretrainedPredictor
from regard.tasks.translator import Translator

Decode = Callable[[Sequence[int]], str]


def why(
    predictor: Predictor,
    text: str,
    *,
    said: str | None = None,
    instead: str | None = None,
    at: int | None = None,
    written: Sequence[int] | None = None,
    controls: int = 20,
    seed: int = 0,
) -> Why:
    """Why a model wrote one word and not another; see `regard.analysis.why`.

        found = regard.tasks.why(regard.load("runs/multi30k"), "Ein Mann schläft im Gras.",
                                 said="grass", instead="field")

    Args:
        predictor: that writes: a run of translate or language, or a checkpoint of transformers
        text: what it reads; for a causal model what comes before the word
        said: a word of what it writes; by default the one it is least sure of, or, of a causal
            model, the likeliest
        instead: what it could have written; by default the likeliest other token
        at: the number of the written token, from 0, in place of `said`
        written: ids that an encoder–decoder is taken to have written, instead of its own
        controls: random others that each claim is compared with
        seed: of these

    Raises:
        ValueError: a model that does not write, or that did not write this word
    """
    asked = decision(predictor, text, said, instead, at, written)
    return explain_decision(asked, controls=controls, seed=seed)


def decision(
    predictor: Predictor,
    text: str,
    said: str | None = None,
    instead: str | None = None,
    at: int | None = None,
    written: Sequence[int] | None = None,
) -> Decision:
    """The decision for one word and against another; the arguments are those of `why`."""
    if said is not None and at is not None:
        raise ValueError("give said, or at for its number, not both")
    asked = said if at is None else at
    if isinstance(predictor, Translator):
        return _translated(predictor, text, asked, instead, written)
    if isinstance(predictor, TextGenerator) and at is None:
        return _continued_run(predictor, text, said, instead)
    if isinstance(predictor, PretrainedPredictor) and predictor.kind == "causal":
        return _continued_checkpoint(predictor, text, asked, instead, written)
    if isinstance(predictor, PretrainedPredictor) and predictor.kind == "encoder_decoder":
        return _translated_checkpoint(predictor, text, asked, instead, written)
    raise ValueError(
        "why is about written words: expected a model that writes, and said or neither for a run "
        f"of the task language, got {type(predictor).__name__} and at={at}"
    )


def _translated(
    predictor: Translator,
    text: str,
    said: str | int | None,
    instead: str | None,
    written: Sequence[int] | None,
) -> Decision:
    model, target = predictor.model, predictor.target
    own = (
        predictor.search([text], beam=5)[0][0] if written is None else Hypothesis(tuple(written), 0)
    )
    trace = predictor.trace(text, written=own)
    source = torch.tensor([predictor._encode(text)], device=model.output.weight.device)
    lengths = torch.tensor([source.shape[1]], device=source.device)

    def run(ids: list[int]) -> Any:
        before = torch.tensor([[target.bos, *ids]], device=source.device)
        return model(source, lengths, before)

    def logits(output: Any) -> torch.Tensor:
        return model.output(output[0, -1])

    def encode(word: str) -> list[int]:
        return list(target.encode(word))

    log_probabilities = trace.about["log_probabilities"]["target"]
    ids, pair = _in_written(
        own.tokens, log_probabilities, target.decode, encode, run, logits, said, instead
    )
    tokens: list[str] = trace.tokens["source"]
    special = [token[:1] + token[-1:] == "<>" for token in tokens]
    before = target.decode(ids)
    return Decision(
        model, lambda: run(ids), logits, len(ids), text, before, tokens, special, *pair,
        target.tokens,
    )  # fmt: skip


def _translated_checkpoint(
    predictor: PretrainedPredictor,
    text: str,
    said: str | int | None,
    instead: str | None,
    written: Sequence[int] | None,
) -> Decision:
    model, tokenizer = predictor.model, predictor.tokenizer
    inputs = predictor.encode(text)
    trace = predictor.trace(text, written=written)
    written = trace.about["written"]

    def run(ids: list[int]) -> Any:
        before = torch.tensor([[predictor.first_id(), *ids]], device=predictor.device)
        return model(**inputs, decoder_input_ids=before)

    def encode(word: str) -> list[int]:
        return tokenizer(text_target=word, add_special_tokens=False)["input_ids"]

    def decode(ids: Sequence[int]) -> str:
        return tokenizer.decode(list(ids), skip_special_tokens=True)

    log_probabilities = trace.about["log_probabilities"]["target"]
    ids, pair = _in_written(
        written, log_probabilities, decode, encode, run, _last_logits, said, instead
    )
    source = inputs["input_ids"][0].tolist()
    return Decision(
        model, lambda: run(ids), _last_logits, len(ids), text, decode(ids),
        predictor.tokens(source), predictor.special(source), *pair, predictor.tokens,
    )  # fmt: skip


def _continued_checkpoint(
    predictor: PretrainedPredictor,
    text: str,
    said: str | int | None,
    instead: str | None,
    written: Sequence[int] | None,
) -> Decision:
    model, tokenizer = predictor.model, predictor.tokenizer
    prompt = predictor.encode(text)["input_ids"][0].tolist()

    def run(ids: list[int]) -> Any:
        return model(input_ids=torch.tensor([ids], device=predictor.device))

    def encode(text: str) -> list[int]:
        return tokenizer(text)["input_ids"]

    if isinstance(said, int):
        own = list(written or ())
        if not 0 <= said < len(own):
            raise ValueError(f"at should be from 0 to {len(own) - 1}, in written=, got {said}")
        other = None if instead is None else tokenizer(instead)["input_ids"]
        ids, pair = _differing([*prompt, *own[:said]], [own[said]], other, run, _last_logits)
    else:
        ids, pair = _continued(prompt, text, encode, run, _last_logits, said, instead)
    return Decision(
        model, lambda: run(ids), _last_logits, len(ids) - 1, text, "", predictor.tokens(ids),
        predictor.special(ids), *pair, predictor.tokens,
    )  # fmt: skip


def _continued_run(
    predictor: TextGenerator, text: str, said: str | None, instead: str | None
) -> Decision:
    model, tokenizer = predictor.model, predictor.tokenizer

    def run(ids: list[int]) -> Any:
        return model(torch.tensor([ids], device=predictor.device))

    def logits(output: Any) -> torch.Tensor:
        return model.output(output[0, -1])

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text))

    prompt = encode(text)
    if not prompt:
        raise ValueError(f"there are no tokens in {text!r}: expected a text")
    ids, pair = _continued(prompt, text, encode, run, logits, said, instead)
    return Decision(
        model, lambda: run(ids), logits, len(ids) - 1, text, "", tokenizer.tokens(ids),
        [False] * len(ids), *pair, tokenizer.tokens,
    )  # fmt: skip


def _last_logits(output: Any) -> torch.Tensor:
    return output.logits[0, -1]


@torch.no_grad()
def _in_written(
    written: Sequence[int],
    log_probabilities: Sequence[float],
    decode: Decode,
    encode: Callable[[str], list[int]],
    run: Callable[[list[int]], Any],
    logits: Callable[[Any], torch.Tensor],
    said: str | int | None,
    instead: str | None,
) -> tuple[list[int], tuple[int, int]]:
    """The ids before the first token in which two words differ, and these tokens."""
    written = list(written)
    if not isinstance(said, str):
        first = min(range(len(written)), key=lambda t: log_probabilities[t])
        first = first if said is None else said
        word = written[first : first + 1]
        if not word:
            raise ValueError(f"at should be from 0 to {len(written) - 1}, got {first}")
    else:
        spans = (
            (start, stop)
            for start in range(len(written))
            for stop in range(start + 1, len(written) + 1)
            if decode(written[start:stop]).strip() == said.strip()
        )
        first, stop = next(spans, (0, 0))
        word = written[first:stop]
        if not word:
            raise ValueError(f"the model did not write {said!r}; it wrote {decode(written)!r}")
    other = None if instead is None else encode(instead)
    return _differing(written[:first], word, other, run, logits)


@torch.no_grad()
def _continued(
    prompt: list[int],
    text: str,
    encode: Callable[[str], list[int]],
    run: Callable[[list[int]], Any],
    logits: Callable[[Any], torch.Tensor],
    said: str | None,
    instead: str | None,
) -> tuple[list[int], tuple[int, int]]:
    """The ids before the first token in which two continuations differ, and these tokens."""
    scores = logits(run(prompt))

    def ids_of(word: str) -> list[int]:
        """The word as the model would write it: after a space, or at once."""
        spellings = [encode(text.rstrip() + space + word.strip()) for space in (" ", "")]
        fitting = [each[len(prompt) :] for each in spellings if each[: len(prompt)] == prompt]
        fitting = [each for each in fitting if each]
        if not fitting:
            raise ValueError(f"{word!r} does not follow the text token by token; end it at a word")
        return max(fitting, key=lambda each: float(scores[each[0]]))

    word = [int(scores.argmax())] if said is None else ids_of(said)
    other = None if instead is None else ids_of(instead)
    return _differing(prompt, word, other, run, logits)


@torch.no_grad()
def _differing(
    before: list[int],
    word: list[int],
    other: list[int] | None,
    run: Callable[[list[int]], Any],
    logits: Callable[[Any], torch.Tensor],
) -> tuple[list[int], tuple[int, int]]:
    if other is None:
        scores = logits(run(before)).clone()
        scores[word[0]] = -torch.inf
        return before, (word[0], int(scores.argmax()))
    common = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), None)
    if common is None:
        raise ValueError("one of the two words begins with the other; give two that differ")
    return [*before, *word[:common]], (word[common], other[common])
