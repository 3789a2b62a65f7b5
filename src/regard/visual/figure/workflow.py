"""One query through an attention layer: from its input, through every head, to the output."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.analysis.steps import Steps, attention_steps
from regard.trace import Trace
from regard.visual.display_width import token_text
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts
from regard.visual.figure.grid import one_example
from regard.visual.step_texts import MISSING

KEYS = 5  # shown of each head
ACROSS = 4  # heads side by side
WIDTH = 10.0  # inches
STRIP, HEAD = 0.55, 1.75  # inches of a row
LONGEST = 12  # letters of a key
BLUE, GRAY = "#0a58b8", "#555d66"

TEXTS = {
    "en": {
        "input": "input x",
        "compared": "q, normalized or rotated",
        "sum": "context vector",
        "concatenation": "all heads, joined",
        "output": "joined · W_O",
        "head": "head {}",
        "key": "key {}",
        "title": "“{}” in {}",
        "bars": "Keys by weight, with their scores in parentheses.",
    },
    "ko": {
        "input": "입력 x",
        "compared": "정규화 또는 회전한 q",
        "sum": "문맥 벡터",
        "concatenation": "이어 붙인 헤드",
        "output": "이어 붙인 벡터 · W_O",
        "head": "헤드 {}",
        "key": "키 {}",
        "title": "“{}”, {}",
        "bars": "가중치가 큰 키부터, 괄호 안은 점수입니다.",
    },
}


def workflow(
    trace: Trace, query: str | int, path: str | Path | None = None, *, language: str = "en"
) -> Figure:
    """Draw one query through all heads of an attention call, step by step, as PNG or SVG.

    The input x and its projection q; for an additive score both projections, their sum, its tanh
    and the product with w; in each head the keys by weight and the weighted sum; all heads joined;
    the product with W_O. A step that was not recorded is replaced by the reason, one that the layer
    does not have is left out.

    Args:
        trace: of one example, with one call: `trace.select("encoder.layers.0.*")`, recorded by
            `regard.capture(model, inputs=True)`
        query: a token of the query side, the first one of that text, or its position
        path: a file to write, .png or .svg
        language: "en" or "ko"

    Returns: the figure

    Raises:
        ValueError: several calls, or a query that is not there
    """
    one = one_example(trace, "a workflow")
    calls = one.calls
    if len(calls) != 1:
        names = ", ".join(call.name for call in calls)
        raise ValueError(
            f"a workflow shows one call, got {names}; choose one by trace.select(NAME)"
        )
    (call,) = calls
    queries, keys = one.labels(call)
    queries, keys = [*map(token_text, queries)], [*map(token_text, keys)]
    row = _position(query, queries)
    words = TEXTS[language]
    weights = call.map[:, row].float().cpu()  # (heads, N)
    steps = attention_steps(call)
    before, after = _strips(steps, row, weights, keys, language)
    heads = len(weights)
    lines = -(-heads // ACROSS)
    heights = [STRIP] * len(before) + [HEAD] * lines + [STRIP] * len(after)
    drawn = figure(WIDTH, sum(heights) + 0.6)
    grid = drawn.add_gridspec(len(heights), 1, height_ratios=heights, hspace=0.5)
    for place, (label, values) in enumerate(before):
        _strip(drawn.add_subplot(grid[place]), label, values)
    numbers = call.provenance.get("heads", range(heads))
    for line in range(lines):
        cells = grid[len(before) + line].subgridspec(
            2, min(heads, ACROSS), height_ratios=(5, 1), wspace=0.45, hspace=0.2
        )
        for column, head in enumerate(range(line * ACROSS, min(heads, (line + 1) * ACROSS))):
            axes = drawn.add_subplot(cells[0, column])
            scores = None if steps is None else steps.tensors.get("scores")
            _ranked(axes, weights[head], None if scores is None else scores[head, row], keys)
            if heads > 1:
                title = words["head"].format(numbers[head])
                axes.set_title(title, fontsize=9, loc="left", pad=3, family=_families(title))
            if steps is not None:
                below = drawn.add_subplot(cells[1, column])
                _bar(below, steps.tensors["sums"][head, row])
                if column == 0:
                    _label(below, words["sum"])
    for place, (label, values) in enumerate(after):
        _strip(drawn.add_subplot(grid[len(before) + lines + place]), label, values)
    families, (title, bars) = choose_fonts(
        [words["title"].format(queries[row], call.name), words["bars"]]
    )
    top = 0.88 + 0.42 / drawn.get_figheight()
    drawn.suptitle(title, y=top, va="bottom", fontsize=12, family=families, parse_math=False)
    drawn.text(0.5, top, bars, ha="center", va="top", fontsize=9, color=GRAY, family=families)
    return save(drawn, path)


def _position(query: str | int, queries: list[str]) -> int:
    if isinstance(query, int):
        if not -len(queries) <= query < len(queries):
            raise ValueError(f"query should be below {len(queries)}, got {query}")
        return query % len(queries)
    if query not in queries:
        raise ValueError(f"no query {query!r}; there are {', '.join(queries)}")
    return queries.index(query)


Strips = list[tuple[str, Tensor | str]]


def _strips(
    steps: Steps | None, row: int, weights: Tensor, keys: list[str], language: str
) -> tuple[Strips, Strips]:
    """Vectors or reasons, before and after the heads, by label."""
    if steps is None:
        return [], []
    tensors, words = steps.tensors, TEXTS[language]
    reasons = {name: MISSING[reason][language] for name, reason in steps.missing.items()}
    before: Strips = []
    if "input_query" in tensors:
        before.append((words["input"], tensors["input_query"][0, row]))
    elif "input_query" in reasons:
        before.append((words["input"], reasons["input_query"]))
    projected = tensors.get("projected_query", tensors["query"])
    label = "q = x·W_Q" if steps.has_projections else "q"
    before.append((label, projected[:, row].flatten()))
    if "projected_query" in tensors:
        before.append((words["compared"], tensors["query"][:, row].flatten()))
    if steps.form == "additive" and len(weights) == 1:
        best = int(weights[0].argmax())
        left, right = tensors["left"][0, row], tensors["right"][0, best]
        bent = (left + right).tanh()
        key = words["key"].format(keys[best])
        before += [("W₁q", left), (f"W₂k, {key}", right), ("W₁q + W₂k", left + right)]
        before += [("tanh", bent), ("w ∘ tanh", tensors["vector"][0, 0] * bent)]
    elif "left" in tensors:
        before.append(("qᵀW", tensors["left"][:, row].flatten()))
    after: Strips = []
    if len(weights) > 1:
        after.append((words["concatenation"], tensors["sums"][:, row].flatten()))
    if "output" in tensors:
        after.append((words["output"], tensors["output"][0, row]))
    elif "output" in reasons:
        after.append((words["output"], reasons["output"]))
    return before, after


def _strip(axes: Axes, label: str, values: Tensor | str) -> None:
    if isinstance(values, str):
        families, (text,) = choose_fonts([values])
        axes.set_axis_off()
        axes.text(0, 0.5, text, va="center", fontsize=9, color=GRAY, family=families)
    else:
        _bar(axes, values)
        label = f"{label}\n({len(values)})"
    _label(axes, label)


def _bar(axes: Axes, values: Tensor) -> None:
    """A vector as one row of colours: blue below and red above zero."""
    row = values.numpy()[None]
    most = float(np.abs(row).max()) or 1.0
    axes.imshow(row, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_linewidth(0.4)


def _label(axes: Axes, text: str) -> None:
    style: dict[str, Any] = {"fontsize": 9, "ha": "right", "va": "center", "parse_math": False}
    style |= {"xycoords": "axes fraction", "textcoords": "offset points"}
    families, lines = choose_fonts(text.split("\n"))
    axes.annotate("\n".join(lines), (0, 0.5), (-6, 0), family=families, **style)


def _ranked(axes: Axes, weights: Tensor, scores: Tensor | None, keys: list[str]) -> None:
    """The keys with the largest weights, from above, with bars as long as the weights."""
    values, order = weights.topk(min(KEYS, len(keys)))
    shown = [keys[index] for index in order.tolist()]
    short = [key if len(key) <= LONGEST else key[: LONGEST - 1] + "…" for key in shown]
    families, labels = choose_fonts(short)
    places = range(len(labels))
    axes.barh(places, values.tolist(), color=BLUE, height=0.62)
    for place, key, value in zip(places, order.tolist(), values.tolist(), strict=True):
        score = "" if scores is None else f"  ({float(scores[key]):z.1f})".replace("-", "−")
        axes.text(value + 0.02, place, f"{value:.2f}{score}", va="center", fontsize=8, color=GRAY)
    axes.set_yticks(places, labels, family=families, fontsize=9, parse_math=False)
    axes.set_xlim(0, 1.6)
    axes.set_ylim(KEYS - 0.5, -0.5)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _families(text: str) -> list[str]:
    return choose_fonts([text]).families
