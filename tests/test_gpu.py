"""On a real accelerator, the CPU is the reference: `make test-gpu`."""

import copy

import pytest
import torch

import regard
from regard.tasks import TASKS
from regard.training import Silent, Training, read_config
from regard.training.device import TaskLoss, find_device
from regard.training.optimizer import AdamW
from tests.conftest import TINY
from tests.models.test_devices import CASES

DEVICE = find_device("auto")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE.type == "cpu", reason="there is neither CUDA nor MPS here"),
]
MASKS = {
    "none": lambda: None,
    "causal": regard.causal,
    "window": lambda: regard.window(17, 5),
    "composed": lambda: regard.causal() & (regard.window(29, 0) | regard.lengths(torch.tensor(71))),
}


def close(one, other, rtol=1e-3):
    """Compare with the CPU, relative to the largest entry."""
    limit = max(1e-4, rtol * float(other.detach().abs().max()))
    torch.testing.assert_close(one.detach().cpu(), other.detach(), rtol=0.0, atol=limit)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", ["scaled_dot", "cosine", "additive"])
def test_attention_and_its_gradients_are_those_of_the_cpu(score, mask):
    torch.manual_seed(1)
    function = regard.Additive(16, 16, 8) if score == "additive" else score
    inputs = [torch.randn(2, 3, 97, 16) for _ in range(3)]
    results = []
    for device in (torch.device("cpu"), DEVICE):
        own = copy.deepcopy(function).to(device) if score == "additive" else function
        parts = [part.to(device).requires_grad_() for part in inputs]
        output = regard.attend(*parts, score=own, mask=MASKS[mask]())
        output.square().sum().backward()
        results.append([output, *(part.grad for part in parts)])
    for expected, found in zip(*results, strict=True):
        close(found, expected)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="flex_attention is chosen on CUDA alone")
@pytest.mark.parametrize("mask", ["window", "composed"])
@pytest.mark.parametrize("length", [512, 731])
def test_flex_attention_and_its_gradients_are_those_of_the_cpu(mask, length):
    torch.manual_seed(1)
    inputs = [torch.randn(2, 8, length, 64) for _ in range(3)]
    results = []
    for device in (torch.device("cpu"), DEVICE):
        parts = [part.to(device).requires_grad_() for part in inputs]
        assert (regard.explain(*parts, mask=MASKS[mask]()).path == "flex") == (device == DEVICE)
        output = regard.attend(*parts, mask=MASKS[mask]())
        output.square().sum().backward()
        results.append([output, *(part.grad for part in parts)])
    for expected, found in zip(*results, strict=True):
        close(found, expected)


@pytest.mark.parametrize("name", CASES)
def test_every_model_and_layer_computes_what_the_cpu_computes(name):
    make, run = CASES[name]
    torch.manual_seed(1)
    model = make().eval()
    with torch.random.fork_rng():
        expected = run(model)
    moved = copy.deepcopy(model).to(DEVICE)
    with torch.device(DEVICE):
        found = run(moved)
    assert found.device.type == DEVICE.type
    assert found.shape == expected.shape
    found.float().square().mean().backward()


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("task", TINY)
def test_a_step_of_every_task_runs_in_every_precision(task, precision):
    recipe, settings = TINY[task]
    config = read_config(regard.recipes.resolve_recipe(recipe)[1], settings)
    made = TASKS[task].from_config(config)
    model = made.build().train()
    options = Training(steps=1, precision=precision)
    moved = copy.deepcopy(model).to(DEVICE)
    loss = TaskLoss(made, moved, options)(made.batch(0, 0))
    loss.total.backward()
    assert AdamW(moved, options).step(1e-3, loss.count) > 0
    assert torch.isfinite(loss.total)
    made.evaluate(moved.eval())


def test_a_resumed_run_has_the_generator_of_the_device(tmp_path):
    """Equal losses, not equal bytes: sums on a GPU are not in a fixed order."""
    settings = [*TINY["translate"][1], f"training.device={DEVICE.type}", "training.epochs="]
    for name, steps in (("whole", [6]), ("parts", [3, 6])):
        for number, count in enumerate(steps):
            more = [] if number else settings
            regard.train(
                "dates",
                tmp_path / name,
                settings=[*more, f"training.steps={count}"],
                resume=bool(number),
                progress=Silent(),
            )
    one, other = (regard.load(tmp_path / name).model for name in ("whole", "parts"))
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        close(first, second, rtol=1e-4)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="only CUDA has a compiler here")
def test_a_compiled_model_trains(tmp_path):
    settings = [*TINY["translate"][1], "training.compile=true", "training.device=cuda"]
    regard.train("dates", tmp_path / "run", settings=[*settings, "training.steps=2"])
