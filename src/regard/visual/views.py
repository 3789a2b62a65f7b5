"""How the trace of each task is shown: in the terminal, as a figure, as a page.

`Predictor.trace` names its task in `about["task"]`; a trace without a task, or of a task that is
not listed in `VIEWS`, is shown as its attention maps.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from regard.trace import Trace
from regard.trace.missed import abbreviated
from regard.visual.color import Palette
from regard.visual.display_width import printable
from regard.visual.document import ShadedDocument
from regard.visual.pair import AttendedPair
from regard.visual.terminal import MOST_MAPS, heatmap
from regard.visual.terminal import show as show_maps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST = 0.1  # memory slots whose weight never exceeds this are left out of a figure
REASONS = 6  # past items, and features, in the figure of a recommendation


class View(NamedTuple):
    """How the traces of a task are shown; each trace is of one example."""

    show: Callable[..., str]  # (trace, width=, color=) -> text
    figure: Callable[..., "Figure"] | None = None  # (traces, path); None: a grid of its maps
    together: int = 1  # examples in one figure by default; 1: it takes one trace only


def show(trace: Trace, *, width: int | None = None, color: Palette | None = None) -> str:
    """Return a trace as text for a terminal.

    Args:
        trace: of one example
        width: columns to stay within; those of the terminal by default
        color: "true", "256" or "plain"; what standard output can show by default

    Raises:
        ValueError: a trace of a batch, without calls, or without what its task needs
    """
    view = VIEWS.get(_task(trace))
    if view is None:
        text = show_maps(trace, width=width, color=color)
    else:
        text = _checked(trace, lambda: view.show(trace, width=width, color=color))
    if not trace.missed:
        return text
    missed = "\n  ".join(map(printable, abbreviated(trace.missed, MOST_MAPS)))
    return f"{text}\n\nnot recorded:\n  {missed}"


def figure(traces: Trace | Sequence[Trace], path: str | Path | None = None) -> "Figure":
    """Draw a trace, or several traces of the task image or hard.

    Args:
        path: a file to write, .png or .svg

    Returns: the figure of matplotlib, which a notebook shows

    Raises:
        ValueError: another suffix, several traces that cannot be drawn together, or a trace
            without what its task needs
    """
    from regard.visual.figure import draw

    some = [traces] if isinstance(traces, Trace) else list(traces)
    if not some:
        raise ValueError("a figure needs a trace, got none")
    view = VIEWS.get(_task(some[0]))
    if len(some) > 1 and (view is None or view.together < 2 or len({*map(_task, some)}) > 1):
        tasks = [name for name, view in VIEWS.items() if view.together > 1]
        raise ValueError(f"a figure of several traces is for one of the tasks {' or '.join(tasks)}")
    if view is None or view.figure is None:
        return draw(some[0], path)
    drawn = view.figure
    return _checked(some[0], lambda: drawn(some, path))


def page(traces: Trace | Mapping[str, Trace], path: str | Path, *, language: str = "en") -> Path:
    """Write a trace, or several by name, as one HTML file with linked views."""
    from regard.visual.page import write

    return write(traces, path, language=language)


def _task(trace: Trace) -> str:
    return str(trace.about.get("task", ""))


def _checked(trace: Trace, draw: Callable[[], Any]) -> Any:
    """Draw, and say of a trace from elsewhere that does not fit its task what is wrong with it."""
    try:
        return draw()
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"the trace lacks what a view of the task {_task(trace)!r} needs: {error!r}"
        ) from error


def _with_title(trace: Trace, text: str) -> str:
    title = printable(str(trace.about.get("title", "")))
    return f"{title}\n{text}" if title else text


# ------------------------------------------------------------------------------ translate


def _show_translation(trace: Trace, **options: Any) -> str:
    maps = show_maps(trace, **options)
    written = trace.about.get("translation")
    return maps if written is None else f"{printable(str(written))}\n\n{maps}"


def _draw_translation(traces: Sequence[Trace], path: str | Path | None) -> "Figure":
    """The mean of all maps between the two texts."""
    from regard.visual.figure import draw, heatmap

    (trace,) = traces
    crossing = [c for c in trace.calls if {c.queries, c.keys} == {"source", "target"}]
    if not crossing:
        return draw(trace, path)
    mean = torch.stack([call.map.dense().mean(0) for call in crossing]).mean(0)  # (M, N)
    return heatmap(mean, *trace.labels(crossing[0]), path, title=trace.about.get("text"))


# ------------------------------------------------------------------------------ classify, pair


def _show_document(trace: Trace, **options: Any) -> str:
    return ShadedDocument.from_trace(trace).show(**options)


def _draw_document(traces: Sequence[Trace], path: str | Path | None) -> "Figure":
    from regard.visual.figure.document import draw_document

    return draw_document(ShadedDocument.from_trace(traces[0]), path)


def _show_pair(trace: Trace, **options: Any) -> str:
    if trace["left"].keys == "right":  # aligned co-attention
        return _with_title(trace, show_maps(trace, **options))
    return AttendedPair.from_trace(trace).show(**options)


def _draw_pair(traces: Sequence[Trace], path: str | Path | None) -> "Figure":
    from regard.visual.figure.pair import draw_aligned, draw_pair

    (trace,) = traces
    if trace["left"].keys == "right":
        return draw_aligned(trace, path)
    return draw_pair(AttendedPair.from_trace(trace), path)


# ------------------------------------------------------------------------------ recommend


def _show_recommendations(trace: Trace, **options: Any) -> str:
    return "\n".join(map(printable, str(trace.about["prediction"]).split("\n")))


def _draw_reasons(traces: Sequence[Trace], path: str | Path | None) -> "Figure":
    """What each reason adds to the score of each item, and which features matter to the user."""
    from regard.visual.figure.task_figures import draw_reasons

    about = traces[0].about["recommendations"]
    found, features = about["items"], about["features"][:REASONS]
    past = {reason["what"]: reason["weight"] for one in found for reason in one["past"]}
    heaviest = sorted(past, key=lambda what: -past[what])[:REASONS]
    rows = [*(f"{past[what]:.2f} {what}" for what in heaviest), "own taste", "popularity"]
    gives = [{reason["what"]: reason["gives"] for reason in one["past"]} for one in found]
    matrix = [[each.get(what, 0.0) for each in gives] for what in heaviest]
    matrix += [[one[name] for one in found] for name in ("own", "popularity")]
    matter = {str(feature["what"]): float(feature["weight"]) for feature in features}
    return draw_reasons(rows, [one["title"] for one in found], matrix, matter, path)


# ------------------------------------------------------------------------------ graph


def _neighbours(trace: Trace) -> list[tuple[str, float]]:
    """Neighbours with their weights in the last layer, the mean over heads, heaviest first."""
    call = trace.calls[-1]
    weights = call.map.dense().mean((0, 1)).tolist()
    return sorted(zip(trace.labels(call)[1], weights, strict=True), key=lambda pair: -pair[1])


def _show_node(trace: Trace, **options: Any) -> str:
    node = trace.about["node"]
    rows = [
        f"{weight:8.2f}  {'itself' if name == node else printable(name)}"
        for name, weight in _neighbours(trace)
    ]
    return _with_title(trace, "\n".join(rows))


def _draw_node(traces: Sequence[Trace], path: str | Path | None) -> "Figure":
    from regard.visual.figure.neighbourhood import Neighbour, neighbourhood

    (trace,) = traces
    about, names = trace.about, trace.tokens["neighbour"]
    labels = dict(zip(names, about["neighbour_classes"], strict=True))
    read = [Neighbour(name, labels[name], weight) for name, weight in _neighbours(trace)]
    return neighbourhood(
        about["node"],
        about["node_class"],
        read,
        path,
        classes=about["classes"],
        title=about.get("title"),
    )


# ------------------------------------------------------------------------------ memory


def _show_titled(trace: Trace, **options: Any) -> str:
    return _with_title(trace, show_maps(trace, **options))


def _show_tape(trace: Trace, **options: Any) -> str:
    return _with_title(trace, show_maps(trace, **options) if trace.calls else "no memory to see")


def _draw_tape(traces: Sequence[Trace], path: str | Path | None) -> "Figure":
    from regard.visual.figure.task_figures import Band, tape

    (trace,) = traces
    known = [name for name in ("input", "target", "output") if name in trace.about]
    bands = [Band(name, torch.tensor(trace.about[name])) for name in known]
    heads = {call.name: call.map.dense().amax(0) for call in trace.calls}  # (T, slots)
    if heads:
        used = torch.stack([*heads.values()]).amax((0, 1)) > LEAST  # (slots,)
        bands += [Band(name, weights[:, used], "viridis") for name, weights in heads.items()]
    return tape(bands, path, title=trace.about.get("title"))


# ------------------------------------------------------------------------------ image, hard


def _patches(trace: Trace) -> Tensor:
    rows, columns = trace.about["grid"]
    return trace.calls[0].map.dense().mean((0, 1)).view(rows, columns)


def _show_image(trace: Trace, **options: Any) -> str:
    weights = _patches(trace)
    labels = [[str(number) for number in range(1, size + 1)] for size in weights.shape]
    return _with_title(trace, heatmap(weights, *labels, **options))


def _draw_images(traces: Sequence[Trace], path: str | Path | None) -> "Figure":
    from regard.visual.figure.task_figures import attended_images

    images = torch.stack([torch.tensor(trace.about["pixels"]) / 255 for trace in traces])
    weights = torch.stack([_patches(trace) for trace in traces])
    return attended_images(images, weights, [trace.about["title"] for trace in traces], path)


def _show_choice(trace: Trace, **options: Any) -> str:
    symbols, chosen = [*map(printable, trace.tokens["symbol"])], trace.about["chosen"]
    symbols[chosen] = f"[{symbols[chosen]}]"
    share = float(trace.calls[0].map[0, 0, chosen])
    return f"{' '.join(symbols)}  ({share:.0%})"


def _draw_choices(traces: Sequence[Trace], path: str | Path | None) -> "Figure":
    from regard.visual.figure.task_figures import choices

    for trace in traces:
        for name in ("chosen", "marked"):
            if not 0 <= trace.about[name] < len(trace.tokens["symbol"]):
                raise ValueError(f"{name} is not a position of the row: {trace.about[name]}")
    return choices(
        [trace.tokens["symbol"] for trace in traces],
        [trace.calls[0].map[0, 0].tolist() for trace in traces],
        [trace.about["chosen"] for trace in traces],
        [trace.about["marked"] for trace in traces],
        path,
        title="the digit with the star, and what hard attention chose",
    )


VIEWS = {
    "translate": View(_show_translation, _draw_translation),
    "classify": View(_show_document, _draw_document),
    "pair": View(_show_pair, _draw_pair),
    "recommend": View(_show_recommendations, _draw_reasons),
    "graph": View(_show_node, _draw_node),
    "memory": View(_show_tape, _draw_tape),
    "image": View(_show_image, _draw_images, together=12),
    "language": View(show_maps),
    "pretrained": View(_show_titled),
    "hard": View(_show_choice, _draw_choices, together=11),
}
"""By `about["task"]`; a task of your own may add itself."""
