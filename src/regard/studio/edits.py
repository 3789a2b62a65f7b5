"""An input before and after edits of the attention."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from regard.studio.look import answer, output_words, page_data, parse_text
from regard.studio.messages import Candidate, Change, Edit, Edited, EditedLook
from regard.studio.runs import Runs
from regard.tasks import Translator
from regard.trace import edit


def edited(runs: Runs, given: EditedLook) -> Edited:
    """Return the answers before and after edits of the attention.

    Each pass has its own edits, since an edit counts the steps of a decoder. Greedy search has one
    query at each step, so that cells are rows of the output.
    """
    predictor = runs.predictor(given.run)
    input = parse_text(predictor, given.text)
    if not isinstance(predictor, Translator):
        before = answer(predictor, input)
        with _edits(predictor, given.edits):
            after = answer(predictor, input)
        return Edited(before=before, after=after, changes=[])
    before = answer(predictor, input)
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
            "words": output_words(second, trace),
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
