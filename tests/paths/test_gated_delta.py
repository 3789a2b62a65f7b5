"""The gated delta recurrence: chunked, recurrent and its map against the papers, in float64."""

import math

import pytest
import torch
from torch import Tensor

from regard.paths import gated_delta
from regard.paths.gated_delta import DeltaInputs, chunked, implied_rows, recurrent

B, H, N, DK, DV = 2, 3, 37, 5, 7


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """So that 37 positions cross several borders."""
    monkeypatch.setattr(gated_delta, "CHUNK", 8)
    monkeypatch.setattr(gated_delta, "CHUNK_BY_FEATURE", 8)


def inputs(decay: str, delta: bool, seed: int = 0) -> DeltaInputs:
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    width = {"none": 1, "constant": 1, "position": 1, "feature": DK}[decay]
    log_decay = torch.nn.functional.logsigmoid(draw(B, H, N, width))
    if decay == "constant":
        log_decay = torch.full_like(log_decay, math.log(0.9))
    if decay == "none":
        log_decay = torch.zeros_like(log_decay)
    key = draw(B, H, N, DK)
    key = key / key.norm(dim=-1, keepdim=True)
    beta = torch.sigmoid(draw(B, H, N, 1)) if delta else None
    return DeltaInputs(draw(B, H, N, DK), key, draw(B, H, N, DV), log_decay, beta)


def longhand(given: DeltaInputs) -> Tensor:
    """The recurrence of the module's docstring, matrix by matrix."""
    out = torch.zeros(B, H, N, DV, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            S = torch.zeros(DK, DV, dtype=torch.float64)
            for t in range(N):
                q, k, v = (x[b, h, t] for x in given[:3])
                alpha = torch.diag(given.log_decay[b, h, t].exp().expand(DK))
                if given.beta is None:
                    S = alpha @ S + torch.outer(k, v)
                else:
                    beta = given.beta[b, h, t]
                    S = (torch.eye(DK) - beta * torch.outer(k, k)) @ alpha @ S
                    S = S + beta * torch.outer(k, v)
                out[b, h, t] = S.T @ q
    return out


CASES = [
    (decay, delta)
    for decay in ("none", "constant", "position", "feature")
    for delta in (False, True)
]


@pytest.mark.parametrize(("decay", "delta"), CASES)
def test_both_forms_give_the_formula(decay, delta):
    given = inputs(decay, delta)
    expected = longhand(given)
    torch.testing.assert_close(recurrent(given)[0], expected)
    torch.testing.assert_close(chunked(given)[0], expected)


@pytest.mark.parametrize(("decay", "delta"), CASES)
def test_rows_of_the_map_are_the_outputs_for_unit_vectors(decay, delta):
    given = inputs(decay, delta)
    whole, _ = recurrent(given._replace(value=torch.eye(N, dtype=torch.float64)))
    torch.testing.assert_close(whole @ given.value, longhand(given))
    for rows in (slice(None), slice(5, 6), slice(3, 19), slice(8, 16), slice(30, N), slice(9, 9)):
        torch.testing.assert_close(implied_rows(given, rows), whole[..., rows, :])


@pytest.mark.parametrize(("decay", "delta"), CASES)
def test_gradients_flow_through_the_rows_of_the_map(decay, delta):
    given = inputs(decay, delta)
    leaves = [x.requires_grad_() for x in given if x is not None]
    weighted = implied_rows(given, slice(7, 29)) @ given.value
    found = torch.autograd.grad(weighted.square().sum(), leaves)
    exact = recurrent(given)[0][..., 7:29, :]
    for one, other in zip(found, torch.autograd.grad(exact.square().sum(), leaves), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("decay", "delta"), CASES)
def test_both_forms_have_the_same_gradients(decay, delta):
    given = inputs(decay, delta)
    leaves = [x.requires_grad_() for x in given if x is not None]
    slope = torch.randn(B, H, N, DV, dtype=torch.float64)
    wanted = torch.autograd.grad((recurrent(given)[0] * slope).sum(), leaves)
    found = torch.autograd.grad((chunked(given)[0] * slope).sum(), leaves)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("form", [chunked, recurrent])
def test_a_state_continues_a_sequence(form):
    given = inputs("feature", True)
    whole, last = form(given)
    first, state = form(DeltaInputs(*(x[..., :13, :] for x in given)))
    second, end = form(DeltaInputs(*(x[..., 13:, :] for x in given)), state)
    torch.testing.assert_close(torch.cat([first, second], -2), whole)
    torch.testing.assert_close(end, last)


def test_retention_is_its_closed_form():
    """Sun et al. 2023, eq. 5: (Q Kᵀ ⊙ D) V with D_ts = γ^(t − s)."""
    given = inputs("constant", False)
    t = torch.arange(N)
    D = torch.where(t[:, None] >= t, 0.9 ** (t[:, None] - t).double(), 0.0)
    expected = (given.query @ given.key.transpose(-1, -2) * D) @ given.value
    torch.testing.assert_close(chunked(given)[0], expected)


def test_the_delta_rule_replaces_what_a_key_held():
    """With β = 1 and a unit key written twice, reading it gives the second value alone."""
    key = torch.zeros(1, 2, DK, dtype=torch.float64)
    key[..., 0] = 1.0
    value = torch.randn(1, 2, DV, dtype=torch.float64)
    one = torch.ones(1, 2, 1, dtype=torch.float64)
    output, _ = chunked(DeltaInputs(key, key, value, torch.zeros_like(one), one))
    torch.testing.assert_close(output, value)


def test_a_decay_to_nothing_stays_finite():
    given = inputs("feature", True)
    given = given._replace(log_decay=torch.full_like(given.log_decay, -1e4).requires_grad_())
    output, _ = chunked(given)
    torch.testing.assert_close(output, recurrent(given)[0])
    (slope,) = torch.autograd.grad(output.sum(), given.log_decay)
    assert slope.isfinite().all()


def test_an_empty_sequence():
    given = DeltaInputs(*(x[..., :0, :] for x in inputs("position", True)))
    output, state = chunked(given)
    assert output.shape == (B, H, 0, DV)
    assert state.shape == (B, H, DK, DV)
    assert not state.any()
