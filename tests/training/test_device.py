"""Where a step is computed: the device, the precision, the compiler, the moved batch."""

import copy
import shutil
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.fx.experimental import _config as meta_config
from torch.nn import functional as F

import regard
from regard.cli import main
from regard.tasks import TASKS
from regard.training import Silent, Training, read_config, train, vocabulary_loss
from regard.training.device import (
    INITIAL_SCALE,
    TaskLoss,
    check_compiler,
    find_device,
    next_scale,
    to_device,
)
from regard.training.metrics import read_metrics
from regard.training.weights import read_tensors
from tests.conftest import TINY


class Two(NamedTuple):
    first: Tensor
    name: str
    second: Tensor


def test_every_tensor_of_a_batch_is_moved_and_nothing_else_changes():
    batch = Two(torch.zeros(2, 3), "two", torch.ones(2))
    moved = to_device(batch, torch.device("meta"))
    assert type(moved) is Two
    assert (moved.first.device.type, moved.name, moved.second.device.type) == (
        "meta",
        "two",
        "meta",
    )
    assert to_device(batch.first, torch.device("cpu")) is batch.first


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_reported_before_anything_is_written(tmp_path, configure):
    with pytest.raises(ValueError, match=r"device cuda:0 is not available here; choose .*cpu"):
        find_device("cuda")
    with pytest.raises(ValueError, match="device cuda:0 is not available"):
        regard.train("dates", tmp_path / "run", settings=["training.device=cuda"])
    assert not (tmp_path / "run").exists()


def test_a_device_of_another_name_is_a_wrong_setting(configure):
    with pytest.raises(ValueError, match=r"training.device should be auto, cpu, cuda.*'gpu'"):
        configure(steps=1, device="gpu")


@pytest.mark.parametrize("command", ["predict", "evaluate", "see"])
def test_commands_take_a_device(tiny_run, capsys, command):
    run = str(tiny_run("classify"))
    inputs = [] if command == "evaluate" else ["a fine film"]
    assert main([command, run, *inputs, "--device", "auto"]) == 0
    capsys.readouterr()
    if not torch.cuda.is_available():
        assert main([command, run, *inputs, "--device", "cuda:3"]) == 1
        assert "device cuda:3 is not available here" in capsys.readouterr().err


@pytest.mark.parametrize("task", TINY)
def test_the_loss_of_every_task_runs_on_the_meta_device(task):
    """Forward, backward and a step: a tensor made on the CPU would raise there."""
    recipe, settings = TINY[task]
    config = read_config(regard.recipes.resolve_recipe(recipe)[1], settings)
    made = TASKS[task].from_config(config)
    batch = made.batch(0, 0)
    if task == "graph":  # the meta device has no sparse tensors
        batch = batch._replace(nodes=batch.nodes.to_dense())
    model = made.build().train().to("meta")
    with meta_config.patch(meta_nonzero_assume_all_nonzero=True):  # indexing by a boolean mask
        loss = TaskLoss(made, model, config.training)(batch)
        assert loss.total.is_meta
        loss.total.backward()
    torch.optim.AdamW(model.parameters(), foreach=False).step()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_vocabulary_loss_under_autocast_is_near_that_of_float64(smoothing):
    torch.manual_seed(1)
    parts = [torch.randn(37, 16), torch.randn(29, 16), torch.randn(29)]
    targets = torch.randint(29, (37,))
    wide = [part.double().requires_grad_() for part in parts]
    logits = F.linear(wide[0], wide[1], wide[2])
    expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    expected.backward()
    own = [part.requires_grad_() for part in parts]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = vocabulary_loss(*own, targets, label_smoothing=smoothing)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=0.01)
    for one, other in zip(own, wide, strict=True):
        assert one.grad.dtype == torch.float32
        assert (one.grad - other.grad).abs().max() < 0.03 * other.grad.abs().max()


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_training_in_half_precision_follows_float32(tmp_path, precision):
    data = {"name": "copy", "count": 70, "valid_count": 11, "sentences": 23}
    model = {"kind": "transformer", "dim": 16, "heads": 2, "hidden": 32, "layers": 1}
    training = {"steps": 12, "lr": 0.01, "threads": 1, "log_every": 1}
    losses = {}
    for name in ("float32", precision):
        config = {"task": "translate", "data": data, "model": model}
        config["training"] = {**training, "precision": name}
        regard.train(config, tmp_path / name, progress=Silent())
        lines = read_metrics(tmp_path / name / "metrics.jsonl")
        losses[name] = torch.tensor([line["loss"] for line in lines if "loss" in line])
    assert losses[precision].tolist() != losses["float32"].tolist()
    torch.testing.assert_close(losses[precision], losses["float32"], rtol=0.05, atol=0.0)


def test_a_float16_run_is_resumed_with_its_scale(tmp_path, largest, configure):
    """An overflow halves the scale and skips the step; a resumed run ends with the same bytes."""
    config = {"precision": "float16", "lr": 0.01, "save_every": 2, "threads": 1}
    task = largest()
    whole, parts = tmp_path / "whole", tmp_path / "parts"

    def overflow(self, model, batch):
        loss = type(self).loss(self, model, batch)
        return loss._replace(total=loss.total * (1e36 if len(batch) == 14 else 1.0))

    task.loss = overflow.__get__(task)
    train(task, configure(steps=7, **config), whole)
    train(task, configure(steps=4, **config), parts)
    train(task, configure(steps=7, **config), parts, resume=True)
    names = ["model.safetensors", "checkpoints/step-7/optimizer.safetensors"]
    for name in names:
        assert (whole / name).read_bytes() == (parts / name).read_bytes()
    count = read_tensors(whole / names[1])["step/0.weight"]
    assert int(count) == 5  # two of seven steps were skipped
    state = (whole / "checkpoints" / "step-7" / "state.json").read_text()
    assert f'"scale": {INITIAL_SCALE / 4}' in state


def test_the_scale_follows_overflows():
    assert next_scale(8.0, step=3, finite=True) == 8.0
    assert next_scale(8.0, step=3, finite=False) == 4.0
    assert next_scale(8.0, step=2000, finite=True) == 16.0


def test_compiling_without_a_compiler_is_one_sentence(tmp_path, largest, configure, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ValueError, match=r"training.compile needs a C\+\+ compiler.*= false"):
        train(largest(), configure(steps=1, compile=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of torch's own compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_a_compiled_model_computes_the_same_loss():
    check_compiler(torch.device("cpu"))
    data = {"name": "copy", "count": 30, "valid_count": 3, "sentences": 5}
    model = {"kind": "transformer", "dim": 8, "heads": 2, "hidden": 8, "layers": 1, "dropout": 0.0}
    config = read_config(
        {"task": "translate", "data": data, "model": model, "training": {"steps": 1}}
    )
    task = TASKS["translate"].from_config(config)
    plain = task.build()
    compiled = copy.deepcopy(plain)
    batch = task.batch(0, 0)
    found = TaskLoss(task, compiled, Training(steps=1, compile=True))(batch)
    expected = TaskLoss(task, plain, Training(steps=1))(batch)
    found.total.backward()
    expected.total.backward()
    torch.testing.assert_close(found.total, expected.total)
    for one, other in zip(compiled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
