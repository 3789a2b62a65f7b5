import pytest
import torch

from regard.cli import main
from regard.cli.demo import KOREAN, VECTORS


@pytest.fixture
def shown(capsys):
    assert main(["demo"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_the_tour_has_its_five_steps(shown):
    titles = [line for line in shown.splitlines() if line[:1].isdigit() and line[1:2] == "."]
    assert [title[0] for title in titles] == list("12345")


def test_each_english_word_looks_most_at_its_translation():
    english = torch.tensor(list(VECTORS.values()), dtype=torch.float64)
    korean = torch.stack([english[list(VECTORS).index(word)] for word in KOREAN.values()])
    weights = (english @ korean.T / english.shape[1] ** 0.5).softmax(-1)
    assert [list(KOREAN.values())[best] for best in weights.argmax(-1)] == list(VECTORS)


def test_the_empty_sentence_is_all_zeros_in_the_tour(shown):
    lines = {line[:20].strip(): line[20:] for line in shown.splitlines()}
    assert lines["a plain softmax"] == str([float("nan")] * 4)
    assert lines["output of `I`"] == lines["gradient of `I`"] == str([0.0] * 4)


def test_nothing_is_wider_than_a_common_terminal(shown):
    from regard.visual.display_width import display_width

    assert max(map(display_width, shown.splitlines())) <= 88


def test_the_map_of_the_causal_step_is_a_triangle(shown):
    rows = shown.split("3. Looking back only")[1].split("4. ")[0].splitlines()
    drawn = {row.split()[0]: row for row in rows if row.strip().startswith(tuple(VECTORS))}
    assert "@" in drawn["I"]
    assert len(drawn["I"].split()) == 2  # one visible cell: itself
