"""`attend` under autocast, in graphs compiled for any size, and under vmap."""

import pytest
import torch
from torch import Tensor

import regard
from regard.layers import LocalAttention, MultiHeadAttention

Q, K, V = torch.randn(2, 3, 31, 8), torch.randn(2, 3, 37, 8), torch.randn(2, 3, 37, 8)
SCORES = {
    "scaled_dot": "scaled_dot",
    "cosine": "cosine",
    "general": regard.General(8, 8),
    "biased general": regard.BiasedGeneral(8, 8),
    "activated general": regard.ActivatedGeneral(8, 8),
    "location": regard.Location(8, 64),
    "additive": regard.Additive(8, 8, 5),
    "concat": regard.Concat(8, 8, 5),
    "learned cosine": regard.Cosine(),
}


@pytest.mark.parametrize("name", list(SCORES))
@pytest.mark.parametrize("path", ["auto", "reference", "blockwise"])
def test_every_score_runs_under_autocast(name: str, path: str):
    query = Q.clone().requires_grad_()
    for mask in (None, regard.window(3, 3)):
        options = {"score": SCORES[name], "mask": mask}
        with torch.autocast("cpu", torch.bfloat16):
            found = regard.attend(query, K, V, path=path, **options)
            found.float().sum().backward()
        wanted = regard.attend(Q, K, V, path="reference", **options)
        torch.testing.assert_close(found.float(), wanted, atol=0.05, rtol=0.05)


def test_layers_run_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        for layer in (LocalAttention(8, window=2), MultiHeadAttention(8, heads=2)):
            assert layer(Q[0]).shape == Q[0].shape


LENGTHS, IDS = torch.tensor([3, 37]), torch.arange(40) // 7
SHOWN = torch.rand(31, 37) > 0.3
CALLS = {
    "plain": lambda q, k, v, lengths, shown: regard.attend(q, k, v),
    "causal": lambda q, k, v, lengths, shown: regard.attend(q, k, v, mask=regard.causal()),
    "lengths": lambda q, k, v, lengths, shown: regard.attend(
        q, k, v, mask=regard.causal() & regard.lengths(lengths)
    ),
    "inverted": lambda q, k, v, lengths, shown: regard.attend(
        q, k, v, mask=regard.visible(shown).inverted() | regard.window(0, 0)
    ),
    "segments": lambda q, k, v, lengths, shown: regard.attend(
        q, k, v, mask=regard.segments(IDS[:31], IDS[:37])
    ),
    "general": lambda q, k, v, lengths, shown: regard.attend(q, k, v, score=SCORES["general"]),
}


QUICK = ("plain", "lengths", "inverted")


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in CALLS if n not in QUICK)]
)
def test_a_graph_for_any_size_gives_the_same(name: str):
    torch._dynamo.reset()
    call = CALLS[name]
    compiled = torch.compile(call, dynamic=True, fullgraph=True, backend="aot_eager")
    inputs = (Q, K, V, LENGTHS, SHOWN)
    torch.testing.assert_close(compiled(*inputs), call(*inputs))


def test_lengths_may_be_mapped_over():
    counts = torch.tensor([[3, 4], [5, 37]])

    def attend(count: Tensor) -> Tensor:
        return regard.attend(Q, K, V, mask=regard.lengths(count))

    found = torch.vmap(attend)(counts)
    torch.testing.assert_close(found, torch.stack([attend(count) for count in counts]))
