"""Generated pictures with a question whose answer no bag of words can tell."""

import random
from typing import NamedTuple

import numpy as np

COLORS = ("red", "blue", "green", "yellow")
SHAPES = ("square", "circle", "triangle")
RELATIONS = {"left of": (0, 1), "right of": (0, -1), "above": (1, 0), "below": (-1, 0)}
"""The side on which the second thing must be, as (rows, columns)."""
FREQUENCY = (8, 2, 4, 1)
"""How often each is asked. Were opposites as frequent as each other, nothing short of all parts of
the question together would say anything at all, and no small model would find where to begin."""


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

    Questions come in twins: the same words and the same things, but the two things that are asked
    about have changed places, and with them the answer. Words and things alone are therefore
    worth exactly nothing. Two things that are asked about never share a row or a column.

    >>> first, second = generate_questions(2)
    >>> first.text == second.text, sorted(first.scene.names()) == sorted(second.scene.names())
    (True, True)
    >>> {first.answer, second.answer} == {"yes", "no"}
    True
    """
    if count < 2 or count % 2:
        raise ValueError(f"questions come in twins: count must be even, got {count}")
    if size < 2:
        raise ValueError(f"size must be at least 2, got {size}")
    draw = random.Random(f"questions {size} {seed}")
    made = []
    while len(made) < count:
        shape = draw.choice(SHAPES)
        first, second = draw.sample(COLORS, 2)
        relation = draw.choices(list(RELATIONS), FREQUENCY)[0]
        places = draw.sample([(i, j) for i in range(size) for j in range(size)], 4)
        if places[0][0] == places[1][0] or places[0][1] == places[1][1]:
            continue
        others = [f"{draw.choice(COLORS)} {draw.choice(SHAPES)}" for _ in range(2)]
        if {f"{first} {shape}", f"{second} {shape}"} & set(others):
            continue
        text = f"is there a {first} {shape} {relation} the {second} one ?"
        down, right = RELATIONS[relation]
        twins = []
        for one, two in ((places[0], places[1]), (places[1], places[0])):
            holds = down * (two[0] - one[0]) + right * (two[1] - one[1]) > 0
            things = {one: f"{first} {shape}", two: f"{second} {shape}"}
            things |= dict(zip(places[2:], others, strict=True))
            cells = tuple(tuple(things.get((i, j), "") for j in range(size)) for i in range(size))
            twins.append(Question(text, Scene(cells), "yes" if holds else "no"))
        draw.shuffle(twins)
        made += twins
    return made
