"""The decision of a loaded model at one word, from the words that a person names."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.analysis.why import Decision, Why, explain_decision
from regard.decoding import Hypothesis
from regard.tasks.language import TextGenerator
from regard.tasks.predictor import Predictor
from regard.tasks.pretrained import PretrainedPredictor
from regard.tasks.translator import Translator
from regard.trace import Trace


class Writer(NamedTuple):
    """What writes the tokens of a text, one after the other."""

    model: nn.Module
    run: Callable[[list[int]], Any]  # the model itself, after these ids
    logits: Callable[[Any], Tensor]  # of the next token, (vocabulary,), from its output
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    tokens: Callable[[list[int]], list[str]]

    @torch.no_grad()
    def scores(self, ids: list[int]) -> Tensor:
        """The logits of the token after these."""
        return self.logits(self.run(ids)).clone()


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
        return _of_translator(predictor, text, asked, instead, written)
    if isinstance(predictor, PretrainedPredictor) and predictor.kind == "encoder_decoder":
        return _of_encoder_decoder(predictor, text, asked, instead, written)
    if isinstance(predictor, TextGenerator):
        device, tokenizer = predictor.device, predictor.tokenizer
        run = partial(_run_ids, predictor.model, device)
        head = predictor.model.output
        writer = Writer(
            predictor.model, run, lambda output: head(output[0, -1]),
            lambda text: list(tokenizer.encode(text)), tokenizer.decode, tokenizer.tokens,
        )  # fmt: skip
        return _continued(writer, text, asked, instead, written, lambda ids: [False] * len(ids))
    if isinstance(predictor, PretrainedPredictor) and predictor.kind == "causal":
        predictor.encode(text)  # checks its length
        run = partial(_run_ids, predictor.model, predictor.device)
        writer = Writer(
            predictor.model, run, _last_logits, lambda text: predictor.tokenizer(text)["input_ids"],
            predictor.tokenizer.decode, predictor.tokens,
        )  # fmt: skip
        return _continued(writer, text, asked, instead, written, predictor.special)
    raise ValueError(
        f"why is about written words: expected a model that writes, got {type(predictor).__name__}"
    )


def _of_translator(
    predictor: Translator,
    text: str,
    said: str | int | None,
    instead: str | None,
    written: Sequence[int] | None,
) -> Decision:
    model, target = predictor.model, predictor.target
    own = None if written is None else Hypothesis(tuple(written), 0.0)
    own = predictor.search([text])[0][0] if own is None else own
    trace = predictor.trace(text, written=own)
    source = torch.tensor([predictor._encode(text)], device=predictor.device)
    lengths = torch.tensor([source.shape[1]], device=predictor.device)

    def run(ids: list[int]) -> Any:
        return model(source, lengths, torch.tensor([[target.bos, *ids]], device=predictor.device))

    writer = Writer(
        model, run, lambda output: model.output(output[0, -1]),
        lambda word: list(target.encode(word)), target.decode, target.tokens,
    )  # fmt: skip
    tokens: list[str] = trace.tokens["source"]
    special = [token[:1] + token[-1:] == "<>" for token in tokens]
    return _written(writer, text, trace, own.tokens, tokens, special, said, instead)


def _of_encoder_decoder(
    predictor: PretrainedPredictor,
    text: str,
    said: str | int | None,
    instead: str | None,
    written: Sequence[int] | None,
) -> Decision:
    model, tokenizer, inputs = predictor.model, predictor.tokenizer, predictor.encode(text)
    trace = predictor.trace(text, written=written)
    source, first = inputs["input_ids"][0].tolist(), predictor.first_id()

    def run(ids: list[int]) -> Any:
        before = torch.tensor([[first, *ids]], device=predictor.device)
        return model(**inputs, decoder_input_ids=before)

    writer = Writer(
        model, run, _last_logits,
        lambda word: tokenizer(text_target=word, add_special_tokens=False)["input_ids"],
        partial(tokenizer.decode, skip_special_tokens=True), predictor.tokens,
    )  # fmt: skip
    tokens, special = predictor.tokens(source), predictor.special(source)
    written = trace.about["written"]
    return _written(writer, text, trace, written, tokens, special, said, instead)


def _run_ids(model: nn.Module, device: Any, ids: list[int]) -> Any:
    return model(torch.tensor([ids], device=device))


def _last_logits(output: Any) -> Tensor:
    return output.logits[0, -1]


def _written(
    writer: Writer,
    text: str,
    trace: Trace,
    written: Sequence[int],
    source: list[str],
    special: list[bool],
    said: str | int | None,
    instead: str | None,
) -> Decision:
    """The decision of an encoder–decoder at one of the tokens that it wrote."""
    ids, count = list(written), len(written)
    if isinstance(said, str):
        spans = ((start, stop) for start in range(count) for stop in range(start + 1, count + 1))
        first, stop = next(
            (span for span in spans if writer.decode(ids[slice(*span)]).strip() == said.strip()),
            (0, 0),
        )
        if not stop:
            raise ValueError(f"the model did not write {said!r}; it wrote {writer.decode(ids)!r}")
    else:
        shares = trace.about["log_probabilities"]["target"]
        first = shares.index(min(shares)) if said is None else said
        stop = first + 1
        if not 0 <= first < count:
            raise ValueError(f"at should be from 0 to {count - 1}, got {first}")
    other = None if instead is None else writer.encode(instead)
    before, pair = _differing(writer, ids[:first], ids[first:stop], other)
    return Decision(
        writer.model, lambda: writer.run(before), writer.logits, len(before), text,
        writer.decode(before), source, special, *pair, writer.tokens,
    )  # fmt: skip


def _continued(
    writer: Writer,
    text: str,
    said: str | int | None,
    instead: str | None,
    written: Sequence[int] | None,
    special: Callable[[list[int]], list[bool]],
) -> Decision:
    """The decision of a causal model about the token after a text, or one that it wrote then."""
    prompt, own = writer.encode(text), list(written or ())
    if not prompt:
        raise ValueError(f"there are no tokens in {text!r}: expected a text")

    def ids_of(word: str) -> list[int]:
        """The word as the model would write it: after a space, or at once."""
        spellings = [writer.encode(text.rstrip() + space + word.strip()) for space in (" ", "")]
        fitting = [each[len(prompt) :] for each in spellings if each[: len(prompt)] == prompt]
        fitting = [each for each in fitting if each]
        if not fitting:
            raise ValueError(f"{word!r} does not follow the text token by token; end it at a word")
        scores = writer.scores(prompt)
        return max(fitting, key=lambda each: float(scores[each[0]]))

    if isinstance(said, int):
        if not 0 <= said < len(own):
            raise ValueError(f"at should be from 0 to {len(own) - 1}, in written=, got {said}")
        before, word = [*prompt, *own[:said]], [own[said]]
    else:
        before = prompt
        word = [int(writer.scores(prompt).argmax())] if said is None else ids_of(said)
    ids, pair = _differing(writer, before, word, None if instead is None else ids_of(instead))
    return Decision(
        writer.model, lambda: writer.run(ids), writer.logits, len(ids) - 1, text, "",
        writer.tokens(ids), special(ids), *pair, writer.tokens,
    )  # fmt: skip


def _differing(
    writer: Writer, before: list[int], word: list[int], other: list[int] | None
) -> tuple[list[int], tuple[int, int]]:
    """The ids before the first token in which two words differ, and these tokens."""
    if other is None:
        scores = writer.scores(before)
        scores[word[0]] = -torch.inf
        return before, (word[0], int(scores.argmax()))
    common = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), None)
    if common is None:
        raise ValueError("one of the two words begins with the other; give two that differ")
    return [*before, *word[:common]], (word[common], other[common])
