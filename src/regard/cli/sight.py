"""What a trained model that does not translate attends to, for `regard see`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from regard.tasks import Classifier, Finder, Machine, NodeClassifier, Seer

SIZE, IMAGES, ROWS = 20, 12, 11  # shown unless told otherwise


class Sight(NamedTuple):
    """What is printed, and how a figure and a page are written; some have no page."""

    text: str
    figure: Callable[[Path], Any]
    page: Callable[[Path], Any] | None = None


def sight(model: Any, run: Path, what: str | None) -> Sight:
    """Look at a node, a sequence, images, rows or a document.

    Args:
        model: what `regard.load` gave for the run
        run: the run directory
        what: the name of a node, the size of a sequence, how many images or rows, a document
    """
    from regard.tasks import Classifier, Finder, Machine, NodeClassifier, Seer

    if isinstance(model, NodeClassifier):
        return _node(model, what)
    if isinstance(model, Machine):
        return _sequence(model, _count(what, SIZE, "size of a sequence"))
    if isinstance(model, Seer):
        return _images(model, run, _count(what, IMAGES, "number of images"))
    if isinstance(model, Finder):
        return _rows(model, _count(what, ROWS, "number of rows"))
    if isinstance(model, Classifier):
        return _document(model, what)
    other = {"Advisor": "recommend", "Judge": "pair"}.get(type(model).__name__)
    if other is None:
        raise ValueError(f"{run}: there is no picture of a {type(model).__name__}")
    raise ValueError(f"what {run} attends to is shown by regard {other} {run} --figure FILE")


def _node(model: "NodeClassifier", name: str | None) -> Sight:
    from regard.visual.display_width import printable

    graph = model.graph
    name = graph.names[int(graph.test[0])] if name is None else name
    last = len(model.maps) - 1
    (found,) = model.classify([name])
    read = model.neighbours(name, last)
    label = printable(found.label)
    rows = [f"{printable(found.name)}: held to be {label} ({found.probability:.0%}), by"]
    for other, weight in read:
        rows.append(f"{weight:8.2f}  {'itself' if other == name else printable(other)}")
    return Sight("\n".join(rows), lambda path: model.figure(path, name, last))


def _sequence(model: "Machine", size: int) -> Sight:
    wrong = model.bit_error(size, count=50)
    text = f"{model.name}, size {size}: {wrong:.1%} of the bits of 50 new sequences are wrong"
    return Sight(text, partial(model.figure, size=size))


def _images(model: "Seer", run: Path, count: int) -> Sight:
    from regard.tasks import ImageTask
    from regard.training import read_run_config

    test = ImageTask.from_config(read_run_config(run)).test
    pixels, labels = test.pixels[:count], test.labels[:count]
    rows = [
        f"{number:>3}. {model.classes[label]}, taken for {one.label} ({one.probability:.0%})"
        for number, (one, label) in enumerate(
            zip(model.classify(pixels), labels.tolist(), strict=True), start=1
        )
    ]
    return Sight("\n".join(rows), partial(model.figure, images=pixels, labels=labels))


def _rows(model: "Finder", count: int) -> Sight:
    from regard.data.marked import marked_digits
    from regard.tasks.finder import SIGNS

    rows = marked_digits(count, "test")
    digits, marks = (
        [row[:length] for row, length in zip(part.tolist(), rows.lengths.tolist(), strict=True)]
        for part in (rows.digits, rows.marks)
    )
    lines = []
    for i, found in enumerate(model.find(digits, marks)):
        cells = [f"{digit}{SIGNS[mark]}" for digit, mark in zip(digits[i], marks[i], strict=True)]
        cells[found.position] = f"[{cells[found.position]}]"
        lines.append(f"{' '.join(cells)}  ({found.probability:.0%})")
    return Sight("\n".join(lines), partial(model.figure, rows=rows))


def _document(model: "Classifier", text: str | None) -> Sight:
    if text is None or not text.strip():
        raise ValueError('a document needs at least one word: regard see RUN "some text"')
    (found,) = model.classify([text])
    return Sight(found.document.show(), found.document.figure, found.document.page)


def _count(what: str | None, default: int, name: str) -> int:
    if what is None:
        return default
    if not what.isascii() or not what.isdigit() or int(what) < 1:
        raise ValueError(f"a {name} is a whole number from 1 on, got {what!r}")
    return int(what)
