"""An input before and after edits of the attention."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from regard.studio.look import Outcome, looked, outcome, output_words, parse_text
from regard.studio.messages import Change, Edit, Edited, EditedLook
from regard.studio.runs import Runs
from regard.tasks import PretrainedPredictor, Translator
from regard.trace import edit


def edited(runs: Runs, given: EditedLook) -> Edited:
    """Return the answers before and after edits of the attention, by greedy search."""
    predictor = runs.predictor(given.run)
    input, start = parse_text(predictor, given.text), time.perf_counter()
    first = outcome(predictor, input)
    before = looked(predictor, input, first, start)
    start = time.perf_counter()
    after = looked(predictor, input, edited_outcome(predictor, input, given.edits), start)
    changes, similarity = [], None
    if before.words:
        written = first.hypotheses[0] if first.hypotheses else first.trace.about["written"]
        with _edits(predictor, given.edits):
            trace = predictor.trace(input, written=written)
        ids = [word.id for word in before.words]
        changes = [
            Change(token=word.token, before=word.log_probability, after=other.log_probability)
            for word, other in zip(before.words, output_words(ids, trace), strict=True)
        ]
    elif isinstance(predictor, PretrainedPredictor):
        vector = predictor.vector(input)
        with _edits(predictor, given.edits):
            similarity = float(torch.cosine_similarity(vector, predictor.vector(input), dim=0))
    return Edited(before=before, after=after, changes=changes, similarity=similarity)


def edited_outcome(
    predictor: Any,
    input: Any,
    edits: Sequence[Edit],
    beam: int = 1,
    prefix: Sequence[int] = (),
) -> Outcome:
    """Return what a predictor does with one input under edits.

    Each pass has its own edits, since an edit counts the steps of a decoder. Greedy search has one
    query at each step, so that cells are rows of the output.
    """
    found = None
    if isinstance(predictor, Translator):
        with _edits(predictor, edits):
            (found,) = predictor.search([input], beam=beam, prefixes=[prefix])
    with _edits(predictor, edits):
        return outcome(predictor, input, beam, prefix, found)


def _edits(predictor: Any, edits: Sequence[Edit]) -> ExitStack:
    stack = ExitStack()
    for one in edits:
        part = one.model_dump(exclude={"layer"})
        stack.enter_context(edit(predictor.model, one.layer, **part))
    return stack
