"""Generated pictures with a question whose answer no bag of words can tell."""

import random
from typing import NamedTuple

import numpy as np

COLORS = ("red", "blue", "green")
SHAPES = ("square", "circle", "triangle")
RELATIONS = {"left of": (0, 1), "right of": (0, -1), "above": (1, 0), "below": (-1, 0)}
"""The side on which the second thing must be, as (rows, columns)."""
PLACES = dict(
    zip(("on the left", "on the right", "at the top", "at the bottom"), RELATIONS, strict=True)
)
"""Where one thing may be said to be; it is then left of the middle, right of it, and so on."""
FREQUENCY = (10, 2, 4, 1)
"""How often each is asked. Were opposites as frequent as each other, nothing short of all parts of
a question together would say anything at all, and no small model would find where to begin."""


class Scene(NamedTuple):
    """A grid of things.

    >>> scene = Scene((("red square", ""), ("", "blue square")))
    >>> print(scene.text())
    R□ ··
    ·· B□
    """

    cells: tuple[tuple[str, ...], ...]  # "red square", or "" for nothing

    def text(self) -> str:
        """The grid in letters: the initial of the colour and a sign for the shape."""
        signs = {"square": "□", "circle": "○", "triangle": "△"}
        return "\n".join(
            " ".join(f"{c[0].upper()}{signs[c.split()[1]]}" if c else "··" for c in row)
            for row in self.cells
        )

    def features(self) -> np.ndarray:
        """A row for each cell: colour, shape, and the place, one-hot each, (cells, width)."""
        rows, columns = len(self.cells), len(self.cells[0])
        found = np.zeros((rows, columns, len(COLORS) + len(SHAPES) + rows + columns), np.float32)
        for i, row in enumerate(self.cells):
            for j, cell in enumerate(row):
                place = len(COLORS) + len(SHAPES)
                found[i, j, [place + i, place + rows + j]] = 1.0
                if cell:
                    color, shape = cell.split()
                    found[i, j, COLORS.index(color)] = 1.0
                    found[i, j, len(COLORS) + SHAPES.index(shape)] = 1.0
        return found.reshape(rows * columns, -1)

    def names(self) -> list[str]:
        """What is in each cell, row by row."""
        return [cell or "·" for row in self.cells for cell in row]


class Question(NamedTuple):
    """A scene, a question about it, and the answer."""

    text: str
    scene: Scene
    answer: str  # "no" or "yes"


def generate_questions(count: int, *, size: int = 3, seed: int = 0) -> list[Question]:
    """Ask "is there a red square left of the blue one?" of scenes of four things.

    One question in two is simpler, "is there a red square on the left?". Questions come in twins:
    the same words and the same things, but what is asked about has changed its place, and with it
    the answer. Words and things alone are therefore worth exactly nothing.

    >>> first, second = generate_questions(2)
    >>> first.text == second.text, sorted(first.scene.names()) == sorted(second.scene.names())
    (True, True)
    >>> {first.answer, second.answer} == {"yes", "no"}
    True
    """
    if count < 2 or count % 2:
        raise ValueError(f"questions come in twins: count must be even, got {count}")
    if size < 3:
        raise ValueError(f"size must be at least 3, got {size}")
    draw = random.Random(f"questions {size} {seed}")
    made: list[Question] = []
    while len(made) < count:
        twins = _relation(draw, size) if draw.random() < 0.5 else _place(draw, size)
        draw.shuffle(twins)
        made += twins
    return made


def _relation(draw: random.Random, size: int) -> list[Question]:
    """Two things, which change places; they never share a row or a column."""
    shape, (first, second) = draw.choice(SHAPES), draw.sample(COLORS, 2)
    relation = draw.choices(list(RELATIONS), FREQUENCY)[0]
    things = f"{first} {shape}", f"{second} {shape}"
    one = draw.randrange(size), draw.randrange(size)
    free = [(i, j) for i in range(size) for j in range(size) if i != one[0] and j != one[1]]
    two = draw.choice(free)
    rest = _others(draw, size, things, (one, two))
    text = f"is there a {things[0]} {relation} the {second} one ?"
    return [
        Question(text, _scene(size, {a: things[0], b: things[1]} | rest), _answer(relation, a, b))
        for a, b in ((one, two), (two, one))
    ]


def _place(draw: random.Random, size: int) -> list[Question]:
    """One thing, which goes to the opposite place; it is never in the middle."""
    thing = f"{draw.choice(COLORS)} {draw.choice(SHAPES)}"
    place = draw.choices(list(PLACES), FREQUENCY)[0]
    off = [i for i in range(size) if 2 * i != size - 1]
    one = draw.choice(off), draw.choice(off)
    two = size - 1 - one[0], size - 1 - one[1]
    rest = _others(draw, size, (thing,), (one, two), count=3)
    text = f"is there a {thing} {place} ?"
    return [
        Question(text, _scene(size, {a: thing} | rest), _answer(PLACES[place], a, b))
        for a, b in ((one, two), (two, one))
    ]


def _others(
    draw: random.Random,
    size: int,
    asked: tuple[str, ...],
    taken: tuple[tuple[int, int], ...],
    count: int = 2,
) -> dict[tuple[int, int], str]:
    """Things that nobody asks about, in places that are free."""
    free = [(i, j) for i in range(size) for j in range(size) if (i, j) not in taken]
    names = [f"{color} {shape}" for color in COLORS for shape in SHAPES]
    names = [name for name in names if name not in asked]
    return dict(zip(draw.sample(free, count), draw.choices(names, k=count), strict=True))


def _answer(relation: str, one: tuple[int, int], two: tuple[int, int]) -> str:
    down, right = RELATIONS[relation]
    return "yes" if down * (two[0] - one[0]) + right * (two[1] - one[1]) > 0 else "no"


def _scene(size: int, things: dict[tuple[int, int], str]) -> Scene:
    return Scene(tuple(tuple(things.get((i, j), "") for j in range(size)) for i in range(size)))
