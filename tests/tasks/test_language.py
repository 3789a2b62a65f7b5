"""Language modelling: nats per character, generation, traces."""

import pytest
import torch
import torch.nn.functional as F

from regard.cli import main
from regard.recipes import load_recipe
from regard.tasks import TextGenerator, load
from regard.tasks.language import LanguageTask
from regard.training import read_config, train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trained for seconds on a text of one sentence, over and over."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("language")
    path = folder / "text.txt"
    path.write_text("the cat sat on the mat.\n" * 200)
    settings = [f"data.path={path}", "data.context=32", "data.batch=8", "training.epochs=3"]
    config = read_config(load_recipe("language"), [*settings, "training.threads=1"])
    outcome = train(LanguageTask.from_config(config), config, folder / "run")
    assert outcome.metrics["nats_per_character"] < 0.2
    return folder / "run"


def test_it_goes_on_as_the_text_does(run):
    writer = load(run)
    assert isinstance(writer, TextGenerator)
    text = writer.generate("the cat", length=60, temperature=0.0)  # beyond the context
    assert text == ("the cat sat on the mat.\n" * 3)[: len(text)]
    assert len(text) == 67
    drawn = [writer.generate("\n", length=20, temperature=3.0, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    strange = writer.generate("한 שלום", length=5)  # the model knows no letter of it
    assert strange.startswith("한 שלום")
    assert len(strange) == 11
    greedy = writer.generate("the cat", length=9, top_k=1, temperature=2.0)
    assert greedy == writer.generate("the cat", length=9, temperature=0.0)
    with pytest.raises(ValueError, match="at least one character"):
        writer.generate("")


def test_heads_see_nothing_that_comes_later(run):
    trace = load(run).trace("the cat")
    assert trace.tokens["source"] == list("the cat")
    assert len(trace) == 2
    for call in trace:
        map = call.map.dense()
        assert map.shape == (4, 7, 7)
        assert not map.triu(1).any()
        torch.testing.assert_close(map.sum(-1), torch.ones(4, 7))


def test_the_command_writes_and_draws(run, tmp_path, capsys):
    figure = tmp_path / "heads.png"
    assert main(["predict", str(run), "the", "--length", "5", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == "the cat \n"
    assert main(["see", str(run), "the", "--out", str(figure)]) == 0
    assert figure.stat().st_size > 1000
    assert main(["predict", str(run), ""]) == 1
    assert "at least one character" in capsys.readouterr().err


def test_every_held_out_token_is_counted_once_with_half_a_context_before_it():
    settings = ["data.count=40", "data.context=11", "data.batch=3"]
    task = LanguageTask.from_config(read_config(load_recipe("language"), settings))
    torch.manual_seed(1)
    model = task.build().eval()
    text = torch.from_numpy(task.valid.astype("int64"))
    total, T, half = 0.0, 11, 5
    with torch.no_grad():
        place = 1
        while place < len(text):
            # the window that scores this token: the first, or one that ends 5 tokens further on
            end = T if place <= T else min(T + half * -(-(place - T) // half), len(text) - 1)
            first = end - T
            features = model(text[None, first:place])
            total += float(F.cross_entropy(model.output(features)[0, -1], text[place]))
            place += 1
    found = task.evaluate(model)
    assert found["nats_per_token"] == pytest.approx(total / (len(text) - 1), rel=1e-4)


def test_bpe_counts_characters_too(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("한국어 문장입니다. another sentence.\n" * 60)
    settings = [f"data.path={path}", "data.tokenizer=bpe", "data.size=300", "data.context=16"]
    task = LanguageTask.from_config(read_config(load_recipe("language"), settings))
    found = task.evaluate(task.build().eval())
    ratio = found["nats_per_token"] * (len(task.valid) - 1) / len(task.valid_text)
    assert found["nats_per_character"] == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("content", "message"), [("", "is empty"), ("short", "too short for data.context")]
)
def test_an_empty_or_short_text_is_a_clear_error(tmp_path, content, message):
    path = tmp_path / "text.txt"
    path.write_text(content)
    config = read_config(load_recipe("language"), [f"data.path={path}"])
    with pytest.raises(ValueError, match=message):
        LanguageTask.from_config(config)


def test_a_dry_run_describes_the_text(capsys, tmp_path):
    assert main(["train", "language", "--dry-run", "--set", "data.count=300"]) == 0
    assert "tokens for training" in capsys.readouterr().out
    config = read_config(load_recipe("tinyshakespeare"), [f"data.folder={tmp_path}"])
    with pytest.raises(FileNotFoundError, match="REGARD_DATA"):
        LanguageTask.from_config(config)
