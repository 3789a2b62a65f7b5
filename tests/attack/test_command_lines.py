"""Command lines at random: always one sentence and a status, never a traceback."""

import io
import random
import string
import sys

import pytest
import torch
import typer.main

from regard.cli import main
from regard.cli.app import app
from regard.data import train_tokenizer
from regard.tasks.translator import SOURCE, TARGET
from regard.tasks.variants import build_model
from regard.trace import Trace

NUMBERS = ("0", "-1", "1", "7", "2.5", "1e400", "nan", "100000", str(10**30), "٣", "0x10", "1_000")
TEXTS = (
    *("", " ", "-", "--", "{", "{}", '{"text": 3}', "[1]", "null", "a\tb", "\n", "é", "고양이"),
    *(
        "👩‍💻",
        "\x1b]52;c;aGk=\x07",
        "\x9b2J",
        "\ud800",
        "a" * 5000,
        "*",
        "~",
        "..",
        "=",
        "a=b",
        "%s",
    ),
    *("dates", "copy", "data.toml", "no/such/file.tsv", "a.png", "a.html", "/dev/null", "\0"),
)
HEAVY = ("demo", "gallery", "claims", "doctor", "studio", "serve", "install_completion")
HEAVY += ("show_completion",)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with a run, a trace, and files that are neither."""
    from safetensors.torch import save_file

    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    letters = train_tokenizer("characters", ["abcdefg"])
    for name in (SOURCE, TARGET):
        letters.save(run / name)
    torch.manual_seed(0)
    model = build_model({"kind": "luong", "preset": "tiny"}, letters, letters)
    save_file(dict(model.state_dict()), run / "model.safetensors")
    (run / "config.toml").write_text(
        'task = "translate"\n[data]\nname = "copy"\ncount = 7\n[model]\nkind = "luong"\n'
        'preset = "tiny"\n[training]\nsteps = 1\n'
    )
    Trace.of_maps({"cross": torch.eye(2)}, queries=["a", "b"], keys=["c", "d"]).save("t.attn")
    (tmp_path / "lines.txt").write_text("abc\n\nde\n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\n")
    (tmp_path / "mine.toml").write_text('title = "not a configuration"\n')
    return tmp_path


def command_line(rng: random.Random) -> list[str]:
    """A command with some of its options, each with a value from anywhere."""
    commands = typer.main.get_command(app).commands
    names = [name for name in commands if name not in HEAVY]
    name = rng.choice(names)
    command, words = commands[name], [name]
    if hasattr(command, "commands"):
        sub = rng.choice([*command.commands])
        command = command.commands[sub]
        words.append(sub)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            words += [value(rng) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        elif rng.random() < 0.2:
            words.append(rng.choice(parameter.opts))
            if not getattr(parameter, "is_flag", False):
                words.append(value(rng))
    if name == "train":
        words.append("--dry-run")  # a training is another test's
    if rng.random() < 0.2:
        words.insert(rng.randrange(len(words) + 1), value(rng))
    return words


def value(rng: random.Random) -> str:
    files = ("run", "run", "run", "t.attn", "lines.txt", "bytes.txt", "mine.toml", ".", "out.png")
    letters = "".join(rng.choices(string.printable + "가あ\u0301\u202e", k=rng.randrange(9)))
    return rng.choice((rng.choice(files), rng.choice(NUMBERS), rng.choice(TEXTS), letters))


def test_a_random_command_line_fails_in_one_sentence(here, attempts, monkeypatch, capsys):
    for rng in attempts(60):
        words = command_line(rng)
        if words[0] == "compare" or (words[0] == "data" and "get" in words):
            words = words[:1]  # these train, or ask the network
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc\n")))
        print(words)
        capsys.readouterr()
        status = main(words)
        shown = capsys.readouterr()
        assert status in (0, 1, 2), words
        assert "Traceback" not in shown.err, words
        if status:
            (sentence,) = [line for line in shown.err.splitlines() if line.startswith("regard: ")]
            assert shown.err.rstrip("\n").endswith(sentence), words
            assert len(sentence) < 3000, words
        assert "\x1b]" not in shown.err, words
    assert (here / "mine.toml").read_text() == 'title = "not a configuration"\n'
