"""Tensors changed in place between forward and backward: right gradients, or an error."""

import pytest
import torch
from torch import Tensor

import regard
from regard.core import blocks

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
