"""The code of an export's README runs with NumPy and ONNX Runtime alone, as regard does."""

import ast
import random
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.data import train_tokenizer
from regard.export import write_tokenizer_reader
from regard.export.templates.tokenizer import Tokenizer
from regard.tasks.export import export
from regard.training import Silent

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

# of third parties: NumPy, ONNX Runtime, and what the latter needs
ALLOWED = {"numpy", "onnxruntime", "flatbuffers", "google", "packaging", "coloredlogs"}
ALLOWED |= {"humanfriendly", "sympy", "mpmath"}
ALONE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        if first not in sys.stdlib_module_names and first not in {allowed}:
            raise ModuleNotFoundError(f"{{name}} is not installed here")

sys.path[:0] = [".", {packages!r}]
sys.meta_path.insert(0, Blocked())
for name in ("regard", "torch", "regex", "tokenizers"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(f"{{name}} should be absent")
exec(compile(sys.stdin.read(), "README.md", "exec"))
"""


def run_alone(folder: Path, code: str) -> str:
    """What code prints in a folder, without any third-party package but those of ALLOWED."""
    packages = sysconfig.get_path("purelib")
    begin = ALONE.format(allowed=ALLOWED | {"tokenizer"}, packages=packages)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", begin],
        cwd=folder,
        input=code,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={"PYTHONUTF8": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def readme_code(folder: Path) -> str:
    """The code of the README that does without regard."""
    text = (folder / "README.md").read_text(encoding="utf-8").partition("## Without regard")[2]
    return text.partition("```python\n")[2].partition("```")[0]


STEP = ["training.steps=1", "training.epochs=", "training.threads=1"]
STEP += ["training.schedule=constant", "training.warmup=0"]


def test_the_reader_of_an_export_tokenizes_as_regard_does(tmp_path):
    draw = random.Random(1)
    blocks = [range(0x20, 0x7F), range(0xA0, 0x250), range(0x300, 0x370), range(0x900, 0xF00)]
    blocks += [range(0x1100, 0x1200), range(0xAC00, 0xAC80), range(0x1F1E6, 0x1F200)]
    blocks += [range(0x1F300, 0x1FA00), [0x20, 0x200D, 0xFE0F, 0x0D, 0x0A, 0x27, 0x600, 0x1F3FB]]
    blocks += [[*map(ord, "'s're'll ab cd 12 ")]] * 4

    def text() -> str:
        return "".join(chr(draw.choice(draw.choice(blocks))) for _ in range(draw.randint(0, 17)))

    texts = [text() for _ in range(300)]
    for kind in ("characters", "words", "phonemes", "bpe"):
        size = 320 if kind == "bpe" else None
        ours = train_tokenizer(kind, texts, size=size)
        ours.save(tmp_path / f"tokenizer.{kind}.json")
    write_tokenizer_reader(tmp_path)
    for kind in ("characters", "words", "phonemes", "bpe"):
        path = tmp_path / f"tokenizer.{kind}.json"
        ours, alone = regard.data.load_tokenizer(path), Tokenizer(path)
        for one in ("", "un b", *texts[:150], *(text() for _ in range(300))):
            ids = ours.encode(one)
            assert alone.encode(one) == ids, (kind, one)
            assert alone.decode([1, *ids, 3, 2, 0]) == ours.decode([1, *ids, 3, 2, 0])
            mixed = draw.sample(ids, len(ids))  # of bpe, bytes that are no UTF-8
            assert alone.decode(mixed) == ours.decode(mixed)


@pytest.mark.slow
def test_a_translation_without_regard_is_that_of_regard(transformer_run, tmp_path):
    folder = export(transformer_run, "onnx", tmp_path / "exported")
    code, predictor = readme_code(folder), regard.load(transformer_run)
    for text in (*predictor.examples(2), "5월 3일, 2031 👩‍💻"):
        (expected,) = predictor.translate([text], beam=1)
        assert run_alone(folder, code.replace('"a b c"', repr(text))) == expected.text


@pytest.mark.slow
def test_frames_are_translated_without_regard(tmp_path):
    settings = ["data.count=40", "model.hidden=5", *STEP]
    regard.train("signal", tmp_path / "run", settings=settings, progress=Silent())
    folder = export(tmp_path / "run", "onnx", tmp_path / "exported")
    predictor = regard.load(folder)
    width = predictor.examples(1)[0].shape[-1]
    (expected,) = predictor.translate([torch.zeros(7, width)], beam=1)
    assert run_alone(folder, readme_code(folder)) == expected.text


@pytest.mark.slow
def test_a_text_is_continued_without_regard(tiny_run, tmp_path):
    folder = export(tiny_run("language"), "onnx", tmp_path / "exported")
    predictor = regard.load(folder)
    (expected,) = predictor.predict(["a b c"], length=11, temperature=0.0)
    assert run_alone(folder, readme_code(folder)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classify", "pair", "scene", "image"])
def test_classes_without_regard_are_those_of_regard(tiny_run, tmp_path, task):
    run = tmp_path / "run"
    if task == "pair":
        lines = [f"{a} b c\t{b} b c\t{a == b}" for a in "abcde" for b in "abcde"]
        (tmp_path / "pairs.tsv").write_text("left\tright\tlabel\n" + "\n".join(lines))
        config = {"task": "pair", "data": {"path": str(tmp_path / "pairs.tsv")}}
        regard.train(config, run, settings=["model.dim=8", *STEP], progress=Silent())
    elif task == "image":
        settings = ["data.count=40", "model.dim=4", "model.layers=1", "model.attention=dot", *STEP]
        regard.train("image", run, settings=settings, progress=Silent())
    else:
        run = tiny_run({"scene": "pair"}.get(task, task))
    folder = export(run, "onnx", tmp_path / "exported")
    probabilities = ast.literal_eval(run_alone(folder, readme_code(folder)))
    predictor = regard.load(folder)
    if task == "scene":  # the example of the README is not a scene, but its features
        ids = torch.tensor([predictor.left.encode("a b c")])
        width = predictor.model.session.inputs["right"][-1]
        lengths = torch.tensor([ids.shape[1]]), torch.tensor([9])
        logits = predictor.model(ids, lengths[0], torch.zeros(1, 9, width), lengths[1]).logits[0]
        expected = dict(zip(predictor.classes, logits.softmax(-1).tolist(), strict=True))
    else:
        inputs = {
            "classify": ["a b c. d e."],
            "pair": [("a b c", "a b c")],
            "image": torch.zeros(1, *getattr(predictor, "size", ()), dtype=torch.uint8),
        }[task]
        expected = predictor.predict(inputs)[0].probabilities
    assert probabilities == pytest.approx(expected, abs=1e-5)
    assert np.isclose(sum(probabilities.values()), 1)
