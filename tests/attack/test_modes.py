"""Calls under torch's modes leave nothing behind that spoils a later call."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import regard
from regard.core.normalize import Normalizer
from regard.paths import flash, tile_plan
from tests.attack.conftest import Attempts

LENGTH, WIDTH = 192, 3  # a causal map of this length is computed in blocks of rows


def tensors() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 8, LENGTH, WIDTH, generator=generator) for _ in range(3)]


def mask(name: str) -> regard.Mask | Tensor:
    if name == "causal":
        return regard.causal()
    if name == "padded":
        return regard.lengths(torch.tensor([LENGTH, 150, 99, 7], device="cpu"))
    return torch.arange(LENGTH, device="cpu") < torch.tensor(120, device="cpu")


def longhand(q: Tensor, k: Tensor, v: Tensor, name: str) -> Tensor:
    shown = torch.ones(4, 1, LENGTH, LENGTH, dtype=torch.bool)
    if name == "causal":
        shown = shown.tril()
    elif name == "padded":
        shown = shown & (
            torch.arange(LENGTH) < torch.tensor([LENGTH, 150, 99, 7])[:, None, None, None]
        )
    else:
        shown = shown & (torch.arange(LENGTH) < 120)
    scores = q.double() @ k.double().mT / WIDTH**0.5
    return scores.masked_fill(~shown, -torch.inf).softmax(-1) @ v.double()


def under_meta_device(name: str) -> None:
    real, shown = tensors(), mask(name)
    with torch.device("meta"):
        regard.attend(*real, mask=shown)


def of_meta_tensors(name: str) -> None:
    regard.attend(
        *(t.to("meta") for t in tensors()), mask=moved(mask(name), lambda t: t.to("meta"))
    )


def under_fake_mode(name: str) -> None:
    real, shown = tensors(), mask(name)
    with FakeTensorMode() as mode:
        regard.attend(*map(mode.from_tensor, real), mask=moved(shown, mode.from_tensor))


def moved(shown: regard.Mask | Tensor, move: Callable[[Tensor], Tensor]) -> regard.Mask | Tensor:
    return move(shown) if isinstance(shown, Tensor) else shown


def under_make_fx(name: str, tracing_mode: str = "real") -> None:
    shown = mask(name)
    inputs = [*tensors(), *([shown] if isinstance(shown, Tensor) else [])]

    def attend(q: Tensor, k: Tensor, v: Tensor, *own: Tensor) -> Tensor:
        return regard.attend(q, k, v, mask=own[0] if own else shown)

    make_fx(attend, tracing_mode=tracing_mode)(*inputs)


def under_fake_make_fx(name: str) -> None:
    under_make_fx(name, "fake")


def under_symbolic_make_fx(name: str) -> None:
    under_make_fx(name, "symbolic")


def under_inference_mode(name: str) -> None:
    with torch.inference_mode():
        regard.attend(*tensors(), mask=mask(name))


MODES = [
    under_meta_device,
    under_fake_mode,
    of_meta_tensors,
    under_make_fx,
    under_fake_make_fx,
    under_symbolic_make_fx,
    under_inference_mode,
]


@pytest.fixture(autouse=True)
def _nothing_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash, "_constants", {})
    tile_plan._diagonal.cache_clear()


@pytest.mark.parametrize("name", ["causal", "tensor"])
@pytest.mark.parametrize("mode", MODES)
def test_a_call_under_a_mode_runs_and_a_later_one_is_right(mode, name):
    mode(name)
    q, k, v = (t.requires_grad_() for t in tensors())
    output = regard.attend(q, k, v, mask=mask(name))
    torch.testing.assert_close(output.double(), longhand(q, k, v, name), rtol=0, atol=1e-5)
    output.sum().backward()
    assert q.grad is not None


def test_any_order_of_modes_spoils_nothing(attempts: Attempts):
    expected = {name: longhand(*tensors(), name) for name in ("causal", "padded", "tensor")}
    for rng in attempts(5):
        flash._constants.clear()
        tile_plan._diagonal.cache_clear()
        for _ in range(3):
            rng.choice(MODES)(rng.choice(["causal", "tensor"]))
            name = rng.choice(list(expected))
            found = regard.attend(*tensors(), mask=mask(name))
            torch.testing.assert_close(found.double(), expected[name], rtol=0, atol=1e-5)


OPTIONS: list[dict] = [
    {},
    {"normalize": "sparsemax"},
    {"normalize": "hard"},
    {"normalize": "gumbel"},
    {"dropout": 0.1},
    {"score": "cosine"},
    {"score": "additive"},
    {"bias": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("device", ["meta", "fake"])
def test_calls_without_values_have_the_right_shape(options: dict, device: str):
    with FakeTensorMode() if device == "fake" else torch.device("meta"):
        q, k, v = torch.randn(2, 3, 40, 8), torch.randn(2, 3, 50, 8), torch.randn(2, 3, 50, 8)
        given = dict(options)
        if given.get("score") == "additive":
            given["score"] = regard.Additive(8, 8, 3)
        if "bias" in given:
            given["bias"] = torch.zeros(40, 50)
        masks = (
            None,
            regard.causal(),
            regard.lengths(torch.tensor([3, 4])),
            torch.ones(40, 50) > 0,
        )
        for shown in masks:
            assert regard.attend(q, k, v, mask=shown, **given).shape == (2, 3, 40, 8)


ELSEWHERE: dict[str, Callable[[Tensor, Tensor], object]] = {
    "key": lambda x, y: regard.attend(x, y, x),
    "value": lambda x, y: regard.attend(x, x, y),
    "query": lambda x, y: regard.attend(y, x, x),
    "bias": lambda x, y: regard.attend(x, x, x, bias=y[0, 0, :, :1].expand(LENGTH, LENGTH)),
    "mask": lambda x, y: regard.attend(x, x, x, mask=y[0, 0, :, 0] > 0),
    "lengths": lambda x, y: regard.attend(x, x, x, mask=regard.lengths(y[:, 0, 0, 0].long())),
    "sink": lambda x, y: regard.attend(x, x, x, normalize=Normalizer(sink=y[0, :, 0, 0])),
    "temperature": lambda x, y: regard.attend(
        x, x, x, normalize=Normalizer("sparsemax", temperature=y[0, :, 0, 0].exp())
    ),
    "score": lambda x, y: regard.attend(x, x, x, score=regard.General(WIDTH, WIDTH).to(y.device)),
    "soft cap": lambda x, y: regard.attend(x, y, x, score=regard.SoftCap(5.0)),
    "additive": lambda x, y: regard.attend(x, y, x, score=regard.Additive(WIDTH, WIDTH, 5)),
    "features": lambda x, y: regard.attend_features(x, y, x),
    "linear": lambda x, y: regard.attend_linear(x, x, y),
    "decay": lambda x, y: regard.attend_linear(x, x, x, causal=True, log_decay=y[0, 0, :, :1]),
    "beta": lambda x, y: regard.attend_linear(x, x, x, causal=True, beta=y[0, 0, :, :1]),
}


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("devices", [("cpu", "meta"), ("meta", "cpu")])
def test_tensors_on_two_devices_are_an_error(name: str, devices: tuple[str, str]):
    """After a good call of the same shapes, which may be remembered."""
    if devices[0] == "meta" and name in ("mask", "lengths"):
        devices = "cpu", "meta"  # a mask goes to the device of the query, except from nowhere
    one, other = (tensors()[0].to(device) for device in devices)
    regard.attend(one, one, one)
    with pytest.raises(ValueError, match=r"on (one|the meta) device"):
        ELSEWHERE[name](one, other)


@pytest.mark.parametrize("path", ["reference", "fused", "blockwise"])
@pytest.mark.parametrize("place", range(3))
def test_every_path_checks_devices(path: str, place: int):
    inputs = tensors()
    inputs[place] = inputs[place].to("meta")
    with pytest.raises(ValueError, match="on one device"):
        regard.attend(*inputs, path=path)


@pytest.mark.parametrize("mode", ['torch.device("meta")', "torch.inference_mode()"])
def test_importing_under_a_mode_spoils_nothing(mode: str):
    code = f"""
import torch
with {mode}:
    import regard
q = torch.randn(2, 3, 40, 8, requires_grad=True)
for score in ("scaled_dot", "dot", "cosine"):
    for mask in (None, regard.causal(), regard.window(3, 3), regard.lengths(torch.tensor([3, 40]))):
        output = regard.attend(q, q, q, score=score, mask=mask)
        output.sum().backward()
        assert output.isfinite().all()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_kernels_and_linear_attention_ignore_the_default_device():
    q, k, v = (torch.randn(2, 9, 4).requires_grad_() for _ in range(3))
    score = regard.Additive(4, 4, 5)

    def results() -> list[Tensor]:
        outputs = (
            regard.attend(q, k, v, score=score, path="additive_kernel"),
            regard.attend_features(q, k, v),
            regard.attend_linear(q, k, v, causal=True),
        )
        return [*outputs, *torch.autograd.grad(sum(o.sum() for o in outputs), (q, k, v))]

    expected = results()
    with torch.device("meta"):
        found = results()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
