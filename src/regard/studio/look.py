"""An input through a model: what it writes and what it attends to; the same as a file."""

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from regard.decoding import Hypothesis
from regard.studio.messages import (
    Candidate,
    Change,
    Choice,
    Compared,
    Comparison,
    Edit,
    Edited,
    EditedLook,
    File,
    Look,
    Looked,
    PageData,
    Word,
)
from regard.studio.runs import Runs, describe, final_metrics
from regard.tasks import Translator
from regard.trace import Trace, edit
from regard.visual.page.encode import Chunks
from regard.visual.page.payload import payload
from regard.visual.views import VIEWS

GENERATED_TOKENS = 80  # that a language model continues with
SHOWN_EXAMPLES = 12
SHOWN_HYPOTHESES = 5
MEDIA = {
    "png": "image/png",
    "svg": "image/svg+xml",
    "html": "text/html; charset=utf-8",
    "attn": "application/octet-stream",
}


def page_data(trace: Trace) -> PageData | None:
    """Return what the views show of a trace; None without attention."""
    if not trace.calls:
        return None
    chunks = Chunks()
    data = payload({"": trace}, language="en", chunks=chunks)
    return PageData(data=data, chunks=chunks.texts)


def examples(runs: Runs, name: str) -> tuple[list[str], int]:
    """Return test examples as texts, if they are texts, and how many there are."""
    predictor = runs.predictor(name)
    try:
        found = predictor.examples(SHOWN_EXAMPLES)
    except (OSError, ValueError):  # data that is not here any more
        return [], 0
    return [one for one in found if isinstance(one, str)], len(found)


def _input(predictor: Any, given: Look) -> Any:
    if given.text is not None:
        return predictor.parse(given.text)
    number = given.example or 0
    found = predictor.examples(number + 1)
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
                inputs[number] = _input(predictor, given[number])
            except Exception as error:
                found[number] = error
        prefixes = {number: given[number].prefix for number in inputs}
        written = _search(predictor, inputs, beam, prefixes)
        for number, input in inputs.items():
            try:
                own = written.get(number)
                found[number] = _look(predictor, input, beam, prefixes[number], own)
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


def _look(
    predictor: Any,
    input: Any,
    beam: int = 1,
    prefix: Sequence[int] = (),
    found: list[Hypothesis] | None = None,
) -> Looked:
    start = time.perf_counter()
    candidates: list[Candidate] = []
    words: list[Word] = []
    if isinstance(predictor, Translator):
        n_best = min(beam, SHOWN_HYPOTHESES)
        found = found or predictor.search([input], beam=beam, n_best=n_best, prefixes=[prefix])[0]
        trace = predictor.trace(input, written=found[0])
        decode = predictor.target.decode
        candidates = [Candidate(text=decode(h.tokens), score=h.score) for h in found]
        output, words = candidates[0].text, _words(found[0], trace)
    else:
        if prefix:
            raise ValueError(f"a prefix is for runs of the task translate, not {predictor.task}")
        options = {"length": GENERATED_TOKENS} if predictor.task == "language" else {}
        output = predictor.to_text(predictor.predict([input], **options)[0])
        trace = predictor.trace(input)
    return Looked(
        task=predictor.task,
        text=input if isinstance(input, str) else "",
        output=output,
        candidates=candidates,
        words=words,
        has_picture=VIEWS[predictor.task].figure is not None and predictor.task != "translate",
        page=page_data(trace),
        milliseconds=1000 * (time.perf_counter() - start),
    )


def _words(best: Hypothesis, trace: Trace) -> list[Word]:
    """The tokens of an output, and what could have stood at their places."""
    scores = trace.about["log_probabilities"]["target"]
    rows = trace.about["outputs"]["target"]
    return [
        Word(
            id=number,
            token=token,
            log_probability=score,
            choices=[Choice(id=i, token=t, probability=p) for t, p, i in row],
        )
        for number, token, score, row in zip(
            best.tokens, trace.tokens["target"], scores, rows, strict=True
        )
    ]


# ------------------------------------------------------------------------------ files


def file(runs: Runs, given: File) -> tuple[bytes, str]:
    """Return a view as a file, and its media type."""
    predictor = runs.predictor(given.run, given.checkpoint)
    input = _input(predictor, given)
    if isinstance(predictor, Translator):
        found = predictor.search([input], beam=given.beam, prefixes=[given.prefix])
        trace = predictor.trace(input, written=found[0][0])
    else:
        trace = predictor.trace(input)
    return trace_file(trace, given.format, given.language), MEDIA[given.format]


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


# ------------------------------------------------------------------------------ edit


def edited(runs: Runs, given: EditedLook) -> Edited:
    """Return the answers before and after edits of the attention.

    Each pass has its own edits, since an edit counts the steps of a decoder. Greedy search has one
    query at each step, so that cells are rows of the output.
    """
    predictor = runs.predictor(given.run)
    input = predictor.parse(given.text)
    if not isinstance(predictor, Translator):
        before = _look(predictor, input)
        with _edits(predictor, given.edits):
            after = _look(predictor, input)
        return Edited(before=before, after=after, changes=[])
    before = _look(predictor, input)
    ((first,),) = predictor.search([input])
    with _edits(predictor, given.edits):
        scores = predictor.trace(input, written=first).about["log_probabilities"]["target"]
    with _edits(predictor, given.edits):
        ((second,),) = predictor.search([input])
    with _edits(predictor, given.edits):
        trace = predictor.trace(input, written=second)
    text = predictor.target.decode(second.tokens)
    after = before.model_copy(
        update={
            "output": text,
            "candidates": [Candidate(text=text, score=second.score)],
            "words": _words(second, trace),
            "page": page_data(trace),
        }
    )
    changes = [
        Change(token=word.token, before=word.log_probability, after=score)
        for word, score in zip(before.words, scores, strict=True)
    ]
    return Edited(before=before, after=after, changes=changes)


def _edits(predictor: Any, edits: Sequence[Edit]) -> ExitStack:
    stack = ExitStack()
    for one in edits:
        part = one.model_dump(exclude={"layer"})
        stack.enter_context(edit(predictor.model, one.layer, **part))
    return stack


# ------------------------------------------------------------------------------ compare


def compare(runs: Runs, given: Comparison) -> list[Compared]:
    """Return the answers of several runs; one that fails has the reason in its place."""
    found: list[Compared] = []
    first: tuple[Translator, Hypothesis] | None = None
    for name in given.runs:
        try:
            predictor = runs.predictor(name)
            input = predictor.parse(given.text)
            looked = _look(predictor, input, beam=5 if isinstance(predictor, Translator) else 1)
            entropy, same = None, None
            if isinstance(predictor, Translator):
                ((best,),) = predictor.search([input], beam=5)
                first = first or (predictor, best)
                same = _same_output(predictor, input, first)
            if looked.page is not None:
                heads = [
                    h for c in looked.page.data["traces"][0]["calls"] for h in c["diagnostics"]
                ]
                entropy = sum(head["entropy"] for head in heads) / len(heads)
        except (ValueError, OSError) as error:
            found.append(Compared(run=name, error=" ".join(str(error).split())))
            continue
        path = runs.path(name)
        found.append(
            Compared(
                run=name,
                looked=looked,
                model=describe(path)[1],
                metrics=final_metrics(path),
                entropy=entropy,
                same_output=same,
            )
        )
    return found


def _same_output(
    predictor: Translator, input: Any, first: tuple[Translator, Hypothesis]
) -> PageData | None:
    """The attention of a model while it writes what the first one wrote, if it has the tokens."""
    tokenizers = first[0].target, predictor.target
    if tokenizers[0].state() != tokenizers[1].state():
        return None
    return page_data(predictor.trace(input, written=first[1]))
