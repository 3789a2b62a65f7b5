"""An input through a model: what it writes and what it attends to."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from regard.decoding import Hypothesis
from regard.studio.messages import Candidate, Choice, Look, Looked, PageData, Word
from regard.studio.runs import Runs
from regard.tasks import ImagePredictor, PairPredictor, PretrainedPredictor, Translator
from regard.trace import Trace
from regard.visual.page.encode import Chunks
from regard.visual.page.payload import payload
from regard.visual.views import VIEWS

GENERATED_TOKENS = 40  # that a language model continues with
PRETRAINED_TOKENS = 20  # the same, of a checkpoint
MOST_TOKENS = 600  # of a text to translate
SHOWN_HYPOTHESES = 5


def page_data(trace: Trace) -> PageData | None:
    """Return what the views show of a trace; None without attention."""
    if not trace.calls:
        return None
    chunks = Chunks()
    data = payload({"": trace}, language="en", chunks=chunks)
    return PageData(data=data, chunks=chunks.texts)


def examples(runs: Runs, name: str) -> tuple[list[str], int]:
    """Return test examples as texts, if they are texts, and how many there are."""
    found = runs.examples(name)
    return [one for one in found if isinstance(one, str)], len(found)


def parse_text(predictor: Any, text: str) -> Any:
    """Return the input that a text describes.

    Raises:
        ValueError: if it describes none, or is too long to be answered while one waits
    """
    if isinstance(predictor, ImagePredictor) and not text.strip().isdecimal():
        raise ValueError("choose a test image by its number: the studio opens no files")
    if isinstance(predictor, PretrainedPredictor):
        if predictor.kind == "image":
            raise ValueError("the studio opens no files: regard see MODEL IMAGE shows an image")
        return _short(text, predictor.encode(text)["input_ids"].shape[1])
    tokenizer = getattr(
        predictor, "left" if isinstance(predictor, PairPredictor) else "source", None
    )
    if tokenizer is not None:
        _short(text, len(tokenizer.encode(text)))
    return predictor.parse(text)


def _short(text: str, count: int) -> str:
    """The text, if it has not too many tokens."""
    if count > MOST_TOKENS:
        raise ValueError(f"the text has {count:,} tokens; the studio takes up to {MOST_TOKENS}")
    return text


def find_input(runs: Runs, predictor: Any, given: Look) -> Any:
    """Return the input of a request: its text, or a test example."""
    if given.text is not None:
        return parse_text(predictor, given.text)
    number, found = given.example or 0, runs.examples(given.run)
    if len(found) <= number:
        raise ValueError(f"the run has {len(found)} test examples, got example {number}")
    return found[number]


def look(runs: Runs, given: Sequence[Look]) -> list[Looked | Exception]:
    """Return the answer to each input, or why there is none.

    Inputs for one model are searched at once, which takes little longer than one of them.
    """
    found: dict[int, Looked | Exception] = {}
    groups: dict[tuple[str, int | None, int], list[int]] = {}
    for number, one in enumerate(given):
        groups.setdefault((one.run, one.checkpoint, one.beam), []).append(number)
    for (run, checkpoint, beam), numbers in groups.items():
        try:
            predictor = runs.predictor(run, checkpoint)
        except Exception as error:
            found |= dict.fromkeys(numbers, error)
            continue
        inputs: dict[int, Any] = {}
        for number in numbers:
            try:
                inputs[number] = find_input(runs, predictor, given[number])
            except Exception as error:
                found[number] = error
        prefixes = {number: given[number].prefix for number in inputs}
        written = _search(predictor, inputs, beam, prefixes)
        for number, input in inputs.items():
            try:
                own = written.get(number)
                found[number] = answer(predictor, input, beam, prefixes[number], own)
            except Exception as error:
                found[number] = error
    return [found[number] for number in range(len(given))]


def _search(
    predictor: Any, inputs: dict[int, Any], beam: int, prefixes: dict[int, list[int]]
) -> dict[int, list[Hypothesis]]:
    """The hypotheses of several inputs; none if they must be searched one by one."""
    if not isinstance(predictor, Translator) or len(inputs) < 2:
        return {}
    options: dict[str, Any] = {"beam": beam, "n_best": min(beam, SHOWN_HYPOTHESES)}
    try:
        found = predictor.search([*inputs.values()], **options, prefixes=[*prefixes.values()])
    except ValueError:  # of one of them, whose own search will say so
        return {}
    return dict(zip(inputs, found, strict=True))


class Outcome(NamedTuple):
    """What a model writes for an input, and what it attends to meanwhile."""

    output: str
    hypotheses: list[Hypothesis]  # of the task translate
    trace: Trace


def outcome(
    predictor: Any,
    input: Any,
    beam: int = 1,
    prefix: Sequence[int] = (),
    found: list[Hypothesis] | None = None,
) -> Outcome:
    """Return what a predictor does with one input.

    Args:
        beam, prefix: for the task translate, see `Translator.search`
        found: the hypotheses, if they are known already
    """
    if isinstance(predictor, Translator):
        n_best = min(beam, SHOWN_HYPOTHESES)
        found = found or predictor.search([input], beam=beam, n_best=n_best, prefixes=[prefix])[0]
        output = predictor.target.decode(found[0].tokens)
        return Outcome(output, found, predictor.trace(input, written=found[0]))
    if isinstance(predictor, PretrainedPredictor):
        if predictor.writes:
            trace = predictor.trace(input, generate=PRETRAINED_TOKENS, prefix=prefix)
        else:
            trace = predictor.trace(input)
        return Outcome(trace.about["title"], [], trace)
    if prefix:
        raise ValueError(f"a prefix is for runs of the task translate, not {predictor.task}")
    is_language = predictor.task == "language"
    options = {"length": GENERATED_TOKENS} if is_language else {}
    output = predictor.to_text(predictor.predict([input], **options)[0])
    # of a language model each word that was written
    return Outcome(output, [], predictor.trace(output if is_language else input))


def answer(
    predictor: Any,
    input: Any,
    beam: int = 1,
    prefix: Sequence[int] = (),
    found: list[Hypothesis] | None = None,
) -> Looked:
    """Return the answer of a predictor to one input; see `outcome`."""
    start = time.perf_counter()
    done = outcome(predictor, input, beam, prefix, found)
    return looked(predictor, input, done, start)


def looked(predictor: Any, input: Any, done: Outcome, start: float) -> Looked:
    """Return an outcome as the page shows it.

    Args:
        start: of `time.perf_counter`, when it began
    """
    best = done.hypotheses[:1]
    return Looked(
        task=predictor.task,
        text=input if isinstance(input, str) else "",
        output=done.output,
        candidates=[
            Candidate(text=predictor.target.decode(h.tokens), score=h.score)
            for h in done.hypotheses
        ],
        words=output_words(best[0].tokens if best else (), done.trace),
        has_picture=VIEWS[predictor.task].figure is not None and predictor.task != "translate",
        page=page_data(done.trace),
        milliseconds=1000 * (time.perf_counter() - start),
    )


def output_words(ids: Sequence[int], trace: Trace) -> list[Word]:
    """Return the tokens of an output, and what could have stood at their places.

    Args:
        ids: of the output; those that a checkpoint wrote are in the trace
    """
    ids = ids or trace.about.get("written", ())
    if not ids:
        return []
    side = "target" if "target" in trace.tokens else "source"
    first = len(trace.tokens[side]) - len(ids)  # after the prompt of a causal model
    rows = trace.about["outputs"][side][first - (side == "source") :]
    tokens = trace.tokens[side][first:]
    scores = trace.about["log_probabilities"][side][first:]
    return [
        Word(
            id=number,
            token=token,
            log_probability=score,
            choices=[Choice(id=i, token=t, probability=p) for t, p, i in row],
        )
        for number, token, score, row in zip(ids, tokens, scores, rows, strict=False)
    ]
