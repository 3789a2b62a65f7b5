"""Generated scenes with a question that a bag of words cannot answer."""

import random
from typing import NamedTuple

import numpy as np

COLORS = ("red", "blue", "green")
SHAPES = ("square", "circle", "triangle")
RELATIONS = {"left of": (0, 1), "right of": (0, -1), "above": (1, 0), "below": (-1, 0)}
"""The direction of the second object, as (rows, columns)."""
PLACES = dict(
    zip(("on the left", "on the right", "at the top", "at the bottom"), RELATIONS, strict=True)
)
"""Positions of one object relative to the middle, and the relation each stands for."""
FREQUENCY = (10, 2, 4, 1)
"""Relative frequencies. If opposites were equally frequent, no part of a question alone would be
correlated with the answer, and small models would not start to learn."""


class Scene(NamedTuple):
    """A grid of objects.

    >>> scene = Scene((("red square", ""), ("", "blue square")))
    >>> print(scene.text())
    R□ ··
    ·· B□
    """

    cells: tuple[tuple[str, ...], ...]  # "red square", or "" for nothing

    def text(self) -> str:
        """The grid as text: the initial of the color and a symbol of the shape."""
        signs = {"square": "□", "circle": "○", "triangle": "△"}
        return "\n".join(
            " ".join(f"{c[0].upper()}{signs[c.split()[1]]}" if c else "··" for c in row)
            for row in self.cells
        )

    def features(self) -> np.ndarray:
        """A row for each cell: one-hot color, shape and position, (cells, width)."""
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
        """The content of each cell, row by row."""
        return [cell or "·" for row in self.cells for cell in row]


class Question(NamedTuple):
    """A scene, a question about it, and the answer."""

    text: str
    scene: Scene
    answer: str  # "no" or "yes"


def generate_questions(count: int, *, size: int = 3, seed: int = 0) -> list[Question]:
    """Generate questions such as "is there a red square left of the blue one?".

    Half of them are simpler, "is there a red square on the left?". Questions come in pairs of the
    same words and objects, in which the objects in question have swapped positions, and therefore
    the answer differs: words and objects alone do not determine it.

    >>> first, second = generate_questions(2)
    >>> first.text == second.text, sorted(first.scene.names()) == sorted(second.scene.names())
    (True, True)
    >>> {first.answer, second.answer} == {"yes", "no"}
    True
    """
    if count < 2 or count % 2:
        raise ValueError(f"questions come in pairs: count must be even, got {count}")
    if size < 3:
        raise ValueError(f"size must be at least 3, got {size}")
    rng = random.Random(f"questions {size} {seed}")
    made: list[Question] = []
    while len(made) < count:
        pair = _relation(rng, size) if rng.random() < 0.5 else _place(rng, size)
        rng.shuffle(pair)
        made += pair
    return made


def _relation(rng: random.Random, size: int) -> list[Question]:
    """Two objects that swap positions; they never share a row or a column."""
    shape, (first, second) = rng.choice(SHAPES), rng.sample(COLORS, 2)
    relation = rng.choices(list(RELATIONS), FREQUENCY)[0]
    things = f"{first} {shape}", f"{second} {shape}"
    one = rng.randrange(size), rng.randrange(size)
    free = [(i, j) for i in range(size) for j in range(size) if i != one[0] and j != one[1]]
    two = rng.choice(free)
    rest = _others(rng, size, things, (one, two))
    text = f"is there a {things[0]} {relation} the {second} one ?"
    return [
        Question(text, _scene(size, {a: things[0], b: things[1]} | rest), _answer(relation, a, b))
        for a, b in ((one, two), (two, one))
    ]


def _place(rng: random.Random, size: int) -> list[Question]:
    """One object that moves to the opposite position; it is never in the middle."""
    thing = f"{rng.choice(COLORS)} {rng.choice(SHAPES)}"
    place = rng.choices(list(PLACES), FREQUENCY)[0]
    off = [i for i in range(size) if 2 * i != size - 1]
    one = rng.choice(off), rng.choice(off)
    two = size - 1 - one[0], size - 1 - one[1]
    rest = _others(rng, size, (thing,), (one, two), count=3)
    text = f"is there a {thing} {place} ?"
    return [
        Question(text, _scene(size, {a: thing} | rest), _answer(PLACES[place], a, b))
        for a, b in ((one, two), (two, one))
    ]


def _others(
    rng: random.Random,
    size: int,
    excluded: tuple[str, ...],
    taken: tuple[tuple[int, int], ...],
    count: int = 2,
) -> dict[tuple[int, int], str]:
    """Other objects, in free positions."""
    free = [(i, j) for i in range(size) for j in range(size) if (i, j) not in taken]
    names = [f"{color} {shape}" for color in COLORS for shape in SHAPES]
    names = [name for name in names if name not in excluded]
    return dict(zip(rng.sample(free, count), rng.choices(names, k=count), strict=True))


def _answer(relation: str, one: tuple[int, int], two: tuple[int, int]) -> str:
    down, right = RELATIONS[relation]
    return "yes" if down * (two[0] - one[0]) + right * (two[1] - one[1]) > 0 else "no"


def _scene(size: int, things: dict[tuple[int, int], str]) -> Scene:
    return Scene(tuple(tuple(things.get((i, j), "") for j in range(size)) for i in range(size)))
