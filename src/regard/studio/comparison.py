"""One input through several runs."""

from typing import Any

from regard.decoding import Hypothesis
from regard.studio.look import answer, page_data, parse_text
from regard.studio.messages import Compared, Comparison, PageData
from regard.studio.runs import Runs, describe, final_metrics
from regard.tasks import Translator


def compare(runs: Runs, given: Comparison) -> list[Compared]:
    """Return the answers of several runs; one that fails has the reason in its place."""
    found: list[Compared] = []
    first: tuple[Translator, Hypothesis] | None = None
    for name in given.runs:
        try:
            predictor = runs.predictor(name)
            input = parse_text(predictor, given.text)
            looked = answer(predictor, input, beam=5 if isinstance(predictor, Translator) else 1)
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
