"""Scenes with questions, and pairs with a label."""

import pytest

from regard.data import Pairs
from regard.data.labelled import read_labelled_pairs, shuffle_targets
from regard.data.scenes import COLORS, PLACES, RELATIONS, SHAPES, Scene, generate_questions


def answer(text: str, scene: Scene) -> str:
    """The answer, read off the words and the grid."""
    where = {
        name: (i, j) for i, row in enumerate(scene.cells) for j, name in enumerate(row) if name
    }
    words = text.removeprefix("is there a ").removesuffix(" ?").split()
    row, column = where[" ".join(words[:2])]
    relation = " ".join(words[2:])
    if relation in PLACES:
        middle = (len(scene.cells) - 1) / 2
        other, relation = (middle, middle), list(RELATIONS)[list(PLACES).index(relation)]
    else:
        relation, second = relation.removesuffix(" one").split(" the ")
        other = where[f"{second} {words[1]}"]
    holds = {
        "left of": column < other[1],
        "right of": column > other[1],
        "above": row < other[0],
        "below": row > other[0],
    }
    return "yes" if holds[relation] else "no"


def test_answers_are_true_and_twins_differ_in_nothing_but_places():
    questions = generate_questions(200, size=4, seed=3)
    for question in questions:
        assert answer(question.text, question.scene) == question.answer
    for one, two in zip(questions[::2], questions[1::2], strict=True):
        assert one.text == two.text
        assert sorted(one.scene.names()) == sorted(two.scene.names())
        assert {one.answer, two.answer} == {"yes", "no"}
    used = {name for name in (*RELATIONS, *PLACES) for q in questions if f" {name} " in q.text}
    assert used == {*RELATIONS, *PLACES}
    assert questions == generate_questions(200, size=4, seed=3)
    assert questions != generate_questions(200, size=4, seed=5)


def test_a_cell_encodes_its_content_and_place():
    scene = Scene((("red square", "", ""), ("", "", "green circle")))
    features = scene.features()
    assert features.shape == (6, 3 + 3 + 2 + 3)
    assert features.sum(1).tolist() == [4, 2, 2, 2, 2, 4]
    last = features[5].nonzero()[0].tolist()
    expected = [COLORS.index("green"), 3 + SHAPES.index("circle"), 6 + 1, 8 + 2]
    assert last == expected


def test_a_false_translation_is_never_a_true_one():
    rows = [("ga", "go"), ("ga", "leave"), ("annyeong", "hi"), ("ne", "yes"), ("ne", "yeah")]
    pairs = Pairs.collect(rows)
    for seed in range(20):
        found = shuffle_targets(pairs, seed=seed)
        for pair, label in zip(found.inputs, found.labels, strict=True):
            assert (pair in rows) == bool(label)
    with pytest.raises(ValueError, match="at least two different"):
        shuffle_targets(Pairs.collect([("a", "b"), ("c", "b")]), seed=1)


def test_two_texts_and_a_label_are_read(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("7\tyes\tone\teins\n8\tno\ttwo\tdrei\n")
    found = read_labelled_pairs(path, left=2, right=3, label=1)
    assert found.inputs == [("one", "eins"), ("two", "drei")]
    assert (found.labels, found.classes) == ([1, 0], ["no", "yes"])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a\tb\tyes\na\tb\n", r"line 2 \(2 columns instead of 3\)"),
        ("a\tb\n", r"line 1 \(2 columns instead of 3\)"),
        ("a\tb\tyes\na\t\tno\n", r"line 2 \(the right is empty\)"),
        ("a\tb\tyes\nc\td\tyes\n", "all 2 examples are of class 'yes'"),
        ("", "is empty"),
    ],
)
def test_a_malformed_file_of_pairs_is_one_sentence(tmp_path, content, complaint):
    path = tmp_path / "a.tsv"
    path.write_text(content)
    with pytest.raises(ValueError, match=complaint):
        read_labelled_pairs(path)


def test_odd_counts_of_pairs_are_refused():
    with pytest.raises(ValueError, match="come in pairs"):
        generate_questions(3)
