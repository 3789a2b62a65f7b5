"""Run directories from strangers: one clear error, in bounded time and memory."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import save_file

import regard
from regard.tasks import TASKS, evaluate_run
from tests.attack.mutation import changed

SECONDS = 5.0  # to refuse a run, on a busy machine
MEMORY = 400_000  # kilobytes that refusing may add to the process
HUGE = (6000, 10**6, 10**9, 2**62)


@pytest.fixture
def stranger(tiny_run, tmp_path):
    """Return a copy of a task's run, without the checksums that a stranger would fake."""

    def make(task: str) -> Path:
        run = tmp_path / f"{task}-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(tiny_run(task), run)
        (run / "manifest.json").unlink(missing_ok=True)
        return run

    return make


def edit(run: Path, table: str, **values) -> None:
    config = tomllib.loads((run / "config.toml").read_text("utf-8"))
    config.setdefault(table, {}).update(values)
    config[table] = {name: value for name, value in config[table].items() if value is not None}
    (run / "config.toml").write_text(tomli_w.dumps(config), "utf-8")


def refused(run: Path) -> str:
    """Return the error of loading a run, which must come soon and without much memory."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        regard.load(run)
    assert time.monotonic() - start < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY
    assert str(caught.value).strip()
    return str(caught.value)


SIZES = {
    "translate": ("hidden", "embedding", "layers"),
    "classify": ("dim", "hidden"),
    "pair": ("dim", "layers", "glimpses"),
    "recommend": ("dim", "past", "self_attention"),
    "graph": ("hidden", "heads", "layers"),
    "memory": ("hidden", "width", "reads"),
    "image": ("dim", "layers", "patch"),
    "language": ("dim", "hidden", "layers"),
    "hard": ("dim",),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_model_larger_than_its_weights_is_refused_before_it_is_allocated(task, stranger):
    for name in SIZES[task]:
        for size in HUGE:
            run = stranger(task)
            edit(run, "model", **{name: size})
            refused(run)


def test_numbers_without_weights_of_their_own_are_bounded_too(stranger):
    for task, table, changes in (
        ("memory", "model", {"slots": 10**9}),
        ("recommend", "model", {"past": 10**9}),
        ("translate", "model", {"attention": "local", "window": 10**9}),
        ("language", "model", {"position": "learned"}),
        ("translate", "model", {"kind": "transformer", "preset": "base", "hidden": None}),
    ):
        run = stranger(task)
        edit(run, table, **changes)
        if task == "language":
            edit(run, "data", context=10**9)
        refused(run)
    run = stranger("language")
    edit(run, "model", position="sinusoidal")
    edit(run, "data", context=10**9)
    assert regard.load(run).generate("a", length=3)  # positions are computed when needed


@pytest.mark.parametrize("task", ["classify", "pair"])
@pytest.mark.parametrize(
    "content", ["", "{", "[1, 2]", '"ab"', '["a"]', "[" * 10**6, '["a", "b", "c"]', "null"]
)
def test_broken_classes_are_one_sentence(task, content, stranger):
    run = stranger(task)
    (run / "classes.json").write_text(content)
    refused(run)


@pytest.mark.parametrize(
    ("name", "value"),
    [("size", [10**9, 1]), ("size", 3), ("size", ["a", "b"]), ("scale", 10**9), ("scale", 0),
     ("scale", 1.5), ("classes", "ab"), ("classes", [1, 2])],
)  # fmt: skip
def test_broken_sizes_of_images_are_one_sentence(name, value, stranger):
    run = stranger("image")
    sizes = json.loads((run / "images.json").read_text())
    (run / "images.json").write_text(json.dumps({**sizes, name: value}))
    refused(run)


@pytest.mark.parametrize("damage", ["edges", "labels", "train", "names", "features", "missing"])
def test_a_broken_graph_is_one_sentence(damage, stranger):
    from safetensors.torch import load_file

    run = stranger("graph")
    tensors = load_file(run / "graph.safetensors")
    names = json.loads((run / "graph.json").read_text())
    if damage == "missing":
        del tensors["edges"]
    elif damage in tensors:
        tensors[damage] = tensors[damage] + 10**6
    elif damage == "names":
        names["nodes"] = names["nodes"][:-3]
    else:
        names["features"] = 2**62
    save_file(tensors, run / "graph.safetensors")
    (run / "graph.json").write_text(json.dumps(names))
    assert "graph" in refused(run)


@pytest.mark.parametrize("damage", ["bomb", "choices", "lengths", "rows", "names"])
def test_broken_ratings_are_one_sentence(damage, stranger, monkeypatch):
    run = stranger("recommend")
    with np.load(run / "ratings.npz") as stored:
        arrays = dict(stored)
    if damage == "bomb":
        monkeypatch.setattr("regard.data.files.SMALL", 2**20)
        arrays["names"] = np.zeros(2**22, np.uint8)
        np.savez_compressed(run / "ratings.npz", **arrays)
        assert (run / "ratings.npz").stat().st_size < 2**16
    else:
        arrays["choices"] = arrays["choices"] + (10**6 if damage == "choices" else 0)
        arrays["lengths"] = arrays["lengths"] - (1 if damage == "lengths" else 0)
        arrays["user_rows"] = arrays["user_rows"][: -1 if damage == "rows" else None]
        if damage == "names":
            arrays["names"] = np.frombuffer(b'{"users": 3}', np.uint8)
        np.savez_compressed(run / "ratings.npz", **arrays)
    assert "ratings.npz" in refused(run)


def test_other_weights_are_one_sentence(stranger):
    for tensors in (
        {},
        {"a": torch.zeros(3)},
        {"output.weight": torch.zeros(0)},
        {f"layer.{n}": torch.zeros(1) for n in range(100)},
    ):
        run = stranger("translate")
        save_file(tensors, run / "model.safetensors")
        assert "another model" in refused(run)
    run = stranger("classify")
    header = json.dumps({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}})
    body = len(header).to_bytes(8, "little") + header.encode()
    (run / "model.safetensors").write_bytes(body)
    refused(run)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs device files")
@pytest.mark.parametrize("target", ["/dev/zero", "/dev/stdin", "/etc/passwd", "loop", "nowhere"])
def test_links_to_devices_and_elsewhere_are_not_followed_for_long(target, stranger):
    for name in ("config.toml", "classes.json", "tokenizer.json", "model.safetensors"):
        run = stranger("classify")
        (run / name).unlink()
        (run / name).symlink_to(name if target == "loop" else target)
        refused(run)


def test_a_pipe_is_not_waited_for(stranger):
    for name in ("config.toml", "classes.json", "tokenizer.json", "model.safetensors"):
        run = stranger("classify")
        (run / name).unlink()
        os.mkfifo(run / name)
        refused(run)


def test_reading_a_run_writes_nothing_elsewhere(stranger, tmp_path):
    run = stranger("translate")
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "train.arrow").write_text("precious")
    edit(run, "data", store=str(victim))
    assert len(regard.load(run).examples(2)) == 2
    assert evaluate_run(run)["loss"] > 0
    assert [path.name for path in victim.iterdir()] == ["train.arrow"]
    assert (victim / "train.arrow").read_text() == "precious"


def test_random_edits_of_the_configuration_are_harmless_or_one_sentence(stranger, attempts):
    values = [0, -1, 1, 3, 10**6, 2**63, -0.5, 1e300, "", "x", "../..", True, [], [1], {}, {"a": 1}]
    for rng in attempts(20):
        task = rng.choice(list(TASKS))
        run = stranger(task)
        config = tomllib.loads((run / "config.toml").read_text("utf-8"))
        table = rng.choice(["data", "model", "loss", "training"])
        known = [*config.get(table, {}), "kind", "name", "path", "preset", "unknown"]
        config.setdefault(table, {})[rng.choice(known)] = rng.choice(values)
        try:
            (run / "config.toml").write_text(tomli_w.dumps(config), "utf-8")
        except (TypeError, ValueError, OverflowError):
            continue
        start = time.monotonic()
        with suppress(ValueError, FileNotFoundError):
            regard.load(run)
        assert time.monotonic() - start < SECONDS


def test_random_edits_of_json_files_are_harmless_or_one_sentence(stranger, attempts):
    for rng in attempts(20):
        run = stranger(rng.choice(["classify", "pair", "image", "graph", "language"]))
        path = rng.choice(sorted(run.glob("*.json")))
        try:
            edited = changed(json.loads(path.read_text("utf-8")), rng)
        except json.JSONDecodeError:
            continue
        path.write_text(json.dumps(edited), "utf-8")
        with suppress(ValueError, FileNotFoundError):
            regard.load(run)


@pytest.mark.slow
def test_a_million_layers_fit_into_a_small_process(tiny_run, tmp_path):
    """The whole process, with torch, stays below a limit that the model would break."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run("image"), run)
    (run / "manifest.json").unlink(missing_ok=True)
    edit(run, "model", layers=10**6, dim=6000)
    code = (
        "import resource, sys, regard; resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30,) * 2)\n"
        "try: regard.load(sys.argv[1])\nexcept ValueError as error: print(error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(run)], capture_output=True, text=True, timeout=120
    )
    assert "another model" in result.stdout, result.stderr
