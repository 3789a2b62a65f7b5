"""Tensors changed in place between forward and backward: right gradients, or an error."""

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.core import blocks
from regard.core.normalize import Normalizer
from regard.layers import MultiHeadAttention

B, H, M, N, D = 2, 2, 23, 29, 4

CASES = {
    "mask": (lambda: torch.rand(M, N) > 0.5, lambda t: {"mask": t}),
    "mask of keys": (lambda: torch.rand(B, 1, 1, N) > 0.5, lambda t: {"mask": t}),
    "composed mask": (
        lambda: torch.rand(M, N) > 0.5,
        lambda t: {"mask": regard.causal() | ~regard.visible(t)},
    ),
    "lengths": (lambda: torch.tensor([N, 11]), lambda t: {"mask": regard.lengths(t)}),
    "segments": (
        lambda: torch.arange(M) // 7,
        lambda t: {"mask": regard.segments(t, torch.arange(N) // 7)},
    ),
    "bias": (lambda: torch.randn(M, N), lambda t: {"bias": t}),
    "bias and mask": (
        lambda: torch.randn(M, N),
        lambda t: {"bias": t, "mask": regard.causal()},
    ),
    "key": (lambda: torch.randn(B, H, N, D), lambda t: {"key": t}),
}


def gradients(name: str, path: str, normalize: str, seed: int, *, changed: bool) -> list[Tensor]:
    """Of query and value, where the tensor of the case is changed before backward or not."""
    torch.manual_seed(seed)
    make, options = CASES[name]
    tensor = make()
    query, key, value = (torch.randn(B, H, n, D, requires_grad=True) for n in (M, N, N))
    given = {"key": key, **options(tensor)}
    output = regard.attend(query, value=value, path=path, normalize=normalize, **given)
    if changed:
        tensor.copy_(tensor == 0)
    return list(torch.autograd.grad(output.square().sum(), [query, value]))


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize(
    "path", ["auto", "reference", "fused", "blockwise", "banded", "block_sparse"]
)
def test_gradients_are_those_of_the_call_or_an_error(attempts, monkeypatch, name, path):
    if path in ("banded", "block_sparse") and name in ("bias", "bias and mask", "key"):
        pytest.skip(f"the {path} path needs a mask and takes no bias")
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 500)
    for rng in attempts(2):
        normalize = (
            "sparsemax" if path in ("auto", "blockwise") and rng.random() < 0.5 else "softmax"
        )
        case = (name, path, normalize, rng.randrange(2**31))
        wanted = gradients(*case, changed=False)
        try:
            found = gradients(*case, changed=True)
        except RuntimeError as error:
            if "in place" in str(error) or "inplace" in str(error):
                continue
            raise
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)


def test_a_pointer_network_hides_what_it_has_chosen():
    """`mask[..., i] = False` in a loop: each step keeps the mask that it was given."""
    torch.manual_seed(0)
    keys = torch.randn(1, 1, 12, D, requires_grad=True)

    def total(*, copy: bool) -> Tensor:
        mask, query, loss = torch.ones(1, 12, dtype=torch.bool), torch.ones(1, 1, 9, D), 0.0
        for step in range(8):
            output = regard.attend(query, keys, keys, mask=mask.clone() if copy else mask)
            loss = loss + output.square().sum()
            mask[..., step] = False
        return torch.autograd.grad(loss, keys)[0]

    torch.testing.assert_close(total(copy=False), total(copy=True))


def test_a_temperature_may_be_annealed_before_backward(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 100)
    gumbel = regard.core.normalize.Gumbel(1.0)

    def gradient(temperature: float) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        gumbel.temperature = 1.0
        q, k, v = (torch.randn(B, H, n, D, requires_grad=True) for n in (M, N, N))
        output, map = regard.attend(q, k, v, normalize=gumbel, return_map=True)
        gumbel.temperature = temperature
        return torch.autograd.grad(output.square().sum(), q)[0], map.dense()

    for annealed, same in zip(gradient(0.1), gradient(1.0), strict=True):
        torch.testing.assert_close(annealed, same)


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.rand(shape) + 0.5)


def elementwise(function: nn.PReLU) -> dict:
    return {"score": regard.Elementwise(function)}


def closure(weight: Tensor) -> dict:
    return {"score": lambda q, k: torch.sin(q @ weight) @ k.mT}


# a tensor that a call reads, and the options with it
READ_AGAIN = {
    "temperature": (parameter, lambda t: {"normalize": Normalizer("sparsemax", temperature=t)}),
    "temperature of each head": (
        lambda: parameter(H),
        lambda t: {"normalize": Normalizer("entmax15", temperature=t)},
    ),
    "temperature buffer": (
        lambda: torch.tensor(2.0),
        lambda t: {"normalize": Normalizer("sparsemax", temperature=t)},
    ),
    "sink": (parameter, lambda t: {"normalize": Normalizer("sparsemax", sink=t)}),
    "fused temperature": (parameter, lambda t: {"normalize": Normalizer(temperature=t)}),
    "fused sink": (parameter, lambda t: {"normalize": Normalizer(sink=t)}),
    "closure": (lambda: parameter(D, D), closure),
    "PReLU": (lambda: nn.PReLU().weight, lambda t: elementwise(_with_weight(nn.PReLU(), t))),
    "activated general": (
        lambda: parameter(D, D),
        lambda t: {"score": _with_weight(regard.ActivatedGeneral(D, D), t)},
    ),
    "general": (
        lambda: parameter(D, D),
        lambda t: {"score": _with_weight(regard.General(D, D), t), "normalize": "sparsemax"},
    ),
    "additive": (
        lambda: parameter(7),
        lambda t: {"score": _with_vector(regard.Additive(D, D, 7), t), "normalize": "sparsemax"},
    ),
    "soft cap": (
        parameter,
        lambda t: {"score": regard.SoftCap(5.0), "normalize": Normalizer(sink=t)},
    ),
    "value": (lambda: parameter(B, H, N, D), lambda t: {"value": t, "normalize": "sparsemax"}),
}


def _with_weight(module: nn.Module, weight: Tensor) -> nn.Module:
    module.weight = weight
    return module


def _with_vector(module: nn.Module, vector: Tensor) -> nn.Module:
    module.vector = vector
    return module


@pytest.mark.parametrize("elements", [10**9, 500])
@pytest.mark.parametrize("name", READ_AGAIN)
def test_every_tensor_that_backward_reads_is_checked_at_every_size(monkeypatch, name, elements):
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", elements)
    torch.manual_seed(0)
    make, options = READ_AGAIN[name]
    tensor = make()
    query, key, value = (torch.randn(B, H, n, D, requires_grad=True) for n in (M, N, N))
    output = regard.attend(query, key, **{"value": value, **options(tensor)})
    (expected,) = torch.autograd.grad(output.sum(), query, retain_graph=True)
    with torch.no_grad():
        tensor.mul_(1.5)
    if (
        name == "sink" and elements > 500
    ):  # nothing is recomputed, and its gradient does not read it
        torch.testing.assert_close(torch.autograd.grad(output.sum(), query)[0], expected)
        return
    with pytest.raises(RuntimeError, match=r"in place|inplace"):
        torch.autograd.grad(output.sum(), query)


def test_a_learned_temperature_of_a_layer_is_checked(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 500)
    temperature = parameter(H)
    layer = MultiHeadAttention(8, H, normalize=Normalizer("entmax15", temperature=temperature))
    output = layer(torch.randn(B, N, 8))
    with torch.no_grad():
        temperature.mul_(1.5)
    with pytest.raises(RuntimeError, match=r"in place|inplace"):
        output.sum().backward()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_mask_made_without_gradients_is_a_copy(monkeypatch, mode):
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 500)
    shown = torch.rand(M, N) > 0.5
    query, key, value = (torch.randn(B, H, n, D, requires_grad=True) for n in (M, N, N))
    with mode():
        masks = [regard.visible(shown), regard.causal() | shown, shown & regard.causal()]
    for normalize in ("softmax", "sparsemax"):
        for mask in masks:
            output = regard.attend(query, key, value, mask=mask, normalize=normalize)
            expected = torch.autograd.grad(output.sum(), query, retain_graph=True)[0]
            shown.logical_not_()
            torch.testing.assert_close(torch.autograd.grad(output.sum(), query)[0], expected)
            again = regard.attend(query, key, value, mask=mask, normalize=normalize)
            torch.testing.assert_close(again, output)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("changed", ["query", "key", "value", "bias", "mask"])
def test_a_map_without_gradients_does_not_change_with_its_inputs(mode, changed):
    """Torch counts no changes of tensors made in inference mode: the map has copies there."""
    with mode():
        tensors = {
            "query": torch.randn(B, H, M, D),
            "key": torch.randn(B, H, N, D),
            "value": torch.randn(B, H, N, D),
            "bias": torch.randn(M, N),
            "mask": torch.rand(M, N) > 0.3,
        }
        with regard.capture() as trace:
            map = regard.attend(**tensors, return_map=True).map
            layer = MultiHeadAttention(D, 1)
            layer(tensors["query"][0], mask=tensors["mask"][:, :M])
        maps = [map, *(call.map for call in trace.calls)]
        expected = regard.attend(**tensors, path="reference", return_map=True).map.dense()
        tensors[changed].copy_(tensors[changed] == 0)
        inputs = ("query", "key", "bias"), ("query", "key", "bias", "value")  # of map and record
        for own, read in zip(maps[:2], inputs, strict=True):
            if mode is torch.no_grad and changed in read:
                with pytest.raises(RuntimeError, match="in place"):
                    own.dense()
            else:
                torch.testing.assert_close(own.dense().view(expected.shape), expected)
        assert maps[2].dense().isfinite().all()
