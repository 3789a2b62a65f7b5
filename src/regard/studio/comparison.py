"""One input through several runs."""

from typing import Any

from regard.decoding import Hypothesis
from regard.studio.look import answer, page_data, parse_text
from regard.studio.messages import Compared, Comparison, Looked, PageData
from regard.studio.runs import Runs, describe, final_metrics
from regard.tasks import Translator
from regard.tasks.search import BEAM


def compare(runs: Runs, given: Comparison) -> list[Compared]:
    """Return the answers of several runs; one that fails has the reason instead."""
    found: list[Compared] = []
    first: tuple[Translator, Hypothesis] | None = None
    for name in given.runs:
        try:
            predictor = runs.predictor(name)
            input = parse_text(predictor, given.text)
            looked = answer(predictor, input, beam=BEAM)
            same = None
            if isinstance(predictor, Translator):
                ((best,),) = predictor.search([input])
                first = first or (predictor, best)
                same = _same_output(predictor, input, first)
        except (ValueError, OSError) as error:
            found.append(_failed(name, error))
            continue
        path = runs.path(name)
        found.append(
            Compared(
                name=name,
                looked=looked,
                model=describe(path)[1],
                metrics=final_metrics(path),
                entropy=_entropy(looked),
                same_output=same,
            )
        )
    return found


def _failed(name: str, error: Exception) -> Compared:
    return Compared(name=name, error=" ".join(str(error).split()))


def _entropy(looked: Looked) -> float | None:
    """The mean over rows and heads; None without attention."""
    if looked.page is None:
        return None
    heads = [
        head for call in looked.page.data["traces"][0]["calls"] for head in call["diagnostics"]
    ]
    return float(sum(head["entropy"] for head in heads) / len(heads))


def _same_output(
    predictor: Translator, input: Any, first: tuple[Translator, Hypothesis]
) -> PageData | None:
    """The attention of a model while it writes what the first one wrote, if it has the tokens."""
    tokenizers = first[0].target, predictor.target
    if tokenizers[0].state() != tokenizers[1].state():
        return None
    return page_data(predictor.trace(input, written=first[1]))
