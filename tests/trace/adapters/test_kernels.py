"""Attention functions of other packages: each call is recorded with the map that makes its output.

Packages that need a GPU are stood in for by functions with their signatures.
"""

import math
import sys
import types
import warnings

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import regard

B, M, N, H, D = 2, 5, 7, 4, 6


def three(keys: int = N, key_heads: int = H) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    sizes = [(B, M, H, D), (B, keys, key_heads, D), (B, keys, key_heads, D)]
    return [torch.randn(*size, generator=generator) for size in sizes]


def plain(q, k, v, hidden=None, bias=0.0, scale=None, cap=0.0):
    """Weights (batch, heads, M, N) and output (batch, M, heads, width), written out."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = cap * torch.tanh(scores / cap) if cap else scores
    scores = scores + bias
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    weights = scores.log_softmax(-1).exp().nan_to_num(0.0)
    return weights, (weights @ v).transpose(1, 2)


def gap(queries: int = M, keys: int = N) -> torch.Tensor:
    """Key minus query, where the last query stands at the last key."""
    return torch.arange(keys) - torch.arange(keys - queries, keys)[:, None]


# ---------------------------------------------------------------------- stand-ins


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
    alibi_slopes=None, deterministic=False, return_attn_probs=False,
):  # fmt: skip
    left, right = (10**6 if side < 0 else side for side in window_size)
    distance = gap(q.shape[1], k.shape[1])
    hidden = (distance < -left) | (distance > (0 if causal else right))
    bias = 0.0 if alibi_slopes is None else -alibi_slopes[:, None, None] * distance.abs()
    return plain(q, k, v, hidden, bias, softmax_scale, softcap)[1]


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
    softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
):  # fmt: skip
    parts = []
    starts = zip(cu_seqlens_q.tolist(), cu_seqlens_k.tolist(), strict=True)
    (q0, k0), *ends = starts
    for q1, k1 in ends:
        own = (x[None] for x in (q[q0:q1], k[k0:k1], v[k0:k1]))
        parts.append(flash_attn_func(*own, 0.0, softmax_scale, causal, window_size, softcap)[0])
        q0, k0 = q1, k1
    return torch.cat(parts)


def varlen_attn(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1),
    enable_gqa=False,
):  # fmt: skip
    lengths = cu_seq_q, cu_seq_q if cu_seq_k is None else cu_seq_k, max_q, max_k
    return flash_attn_varlen_func(
        query, key, value, *lengths, softmax_scale=scale, window_size=window_size
    )


class LowerTriangularMask:
    def materialize(self, shape, dtype=torch.float32, device="cpu"):
        return torch.full(shape, -math.inf, dtype=dtype, device=device).triu(1)


def memory_efficient_attention(query, key, value, attn_bias=None, p=0.0, scale=None, *, op=None):
    if query.dim() == 3:
        arguments = (x.unsqueeze(2) for x in (query, key, value))
        return memory_efficient_attention(*arguments, attn_bias, p, scale).squeeze(2)
    shape = (len(query), query.shape[2], query.shape[1], key.shape[1])
    if attn_bias is not None and not isinstance(attn_bias, torch.Tensor):
        attn_bias = attn_bias.materialize(shape)
    return plain(query, key, value, None, 0.0 if attn_bias is None else attn_bias, scale)[1]


for function, home in (
    (flash_attn_func, "flash_attn.flash_attn_interface"),
    (flash_attn_varlen_func, "flash_attn.flash_attn_interface"),
    (varlen_attn, "torch.nn.attention.varlen"),
    (memory_efficient_attention, "xformers.ops.fmha"),
):
    function.__module__ = home


class Calls(nn.Module):
    """Calls a function of this file by its name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, *args, **options):
        return globals()[self.name](*args, **options)


def recorded(name: str, *args, **options):
    model = Calls(name)
    before = model(*args, **options)
    with regard.capture(model) as trace:
        during = model(*args, **options)
    assert torch.equal(before, during)
    (call,) = trace
    assert call.verify() < 1e-5
    return call


FLASH = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window_size": (2, 1)},
    "causal window": {"causal": True, "window_size": (2, 0)},
    "scale and cap": {"softmax_scale": 0.7, "softcap": 1.5},
    "alibi": {"alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 1.0])},
}


@pytest.mark.parametrize("key_heads", [H, 2])
@pytest.mark.parametrize("name", FLASH)
def test_flash_attention_is_recorded_with_its_options(name, key_heads):
    call = recorded("flash_attn_func", *three(key_heads=key_heads), **FLASH[name])
    assert call.shape == (B, H, M, N)
    distance, weights = gap(), call.map.dense()
    if "causal" in FLASH[name]:
        assert float(weights[..., distance > 0].abs().max()) == 0
    if "window_size" in FLASH[name]:
        assert float(weights[..., distance < -2].abs().max()) == 0


def test_a_fully_masked_row_of_flash_attention_is_zero():
    call = recorded("flash_attn_func", *three(keys=3), causal=True)
    assert float(call.map[..., :2, :].abs().max()) == 0  # more queries than keys


@pytest.mark.parametrize("name", ["flash_attn_varlen_func", "varlen_attn"])
@pytest.mark.parametrize("causal", [False, True])
def test_packed_sequences_see_their_own(name, causal):
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(count, H, D, generator=generator) for count in (6, 9, 9))
    starts = torch.tensor([0, 2, 6]), torch.tensor([0, 4, 9])
    options = {"window_size": (-1, 0)} if causal else {}
    call = recorded(name, q, k, v, *starts, 4, 5, **options)
    weights = call.map.dense()[0]
    assert float(weights[:, :2, 4:].abs().max()) == float(weights[:, 2:, :4].abs().max()) == 0
    assert torch.allclose(weights.sum(-1), torch.ones(H, 6))
    if causal:
        assert float(weights[:, 0, 3].abs().max()) == 0


XFORMERS = {
    "plain": None,
    "a bias": torch.randn(B, H, M, N, generator=torch.Generator().manual_seed(1)),
    "a mask of its own": LowerTriangularMask(),
}


@pytest.mark.parametrize("name", XFORMERS)
@pytest.mark.parametrize("has_heads", [True, False])
def test_xformers_is_recorded(name, has_heads):
    bias, arguments = XFORMERS[name], three()
    if not has_heads:
        arguments = [x[:, :, 0] for x in arguments]
        bias = bias[:, :1] if isinstance(bias, torch.Tensor) else bias
    call = recorded("memory_efficient_attention", *arguments, attn_bias=bias)
    assert call.shape == (B, H if has_heads else 1, M, N)


FLEX = {
    "plain": {},
    "positions": {"score_mod": lambda score, b, h, q, k: score - (q - k).abs() * (h + 1) * 0.3},
    "capped": {"score_mod": lambda score, b, h, q, k: 2 * torch.tanh(score / 2)},
    "scale": {"scale": 0.9},
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("key_heads", [H, 2])
@pytest.mark.parametrize("name", FLEX)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_recorded_with_its_score_and_mask(name, key_heads, masked):
    options = dict(FLEX[name])
    if key_heads < H:
        options["enable_gqa"] = True
    if masked:
        options["block_mask"] = create_block_mask(
            lambda b, h, q, k: (k <= q + 1 + h) & (k != b), B, H, M, N, device="cpu"
        )
    arguments = [x.transpose(1, 2) for x in three(key_heads=key_heads)]
    call = recorded("flex_attention", *arguments, **options)
    assert call.shape == (B, H, M, N)
    weights = call.map.dense()
    if masked:
        assert float(weights[0, ..., 0].abs().max()) == float(weights[1, ..., 1].abs().max()) == 0
        assert float(weights[:, 0, 0, 2:].abs().max()) == 0
    assert torch.allclose(call.map[..., 2:4, :], weights[..., 2:4, :], atol=1e-6)
    if name == "positions":
        query, key = arguments[0][0, 0, 1], arguments[1][0, 0, 4]
        score = (query @ key) * D**-0.5 - 3 * 0.3
        assert torch.allclose(call.map.scores[0, 0, 1, 4], score, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask")
def test_flex_attention_of_transformers_gives_the_maps_of_eager(monkeypatch):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    from transformers.integrations import flex_attention as integration

    def uncompiled(query, key, value, training=False, **options):  # compiling takes a C++ compiler
        return flex_attention(query, key, value, **options)

    monkeypatch.setattr(integration, "compile_friendly_flex_attention", uncompiled)
    from tests.trace.test_missed import IDS, LLAMA

    torch.manual_seed(1)
    eager, model = (
        transformers.LlamaModel._from_config(
            transformers.LlamaConfig(**LLAMA), attn_implementation=each
        ).eval()
        for each in ("eager", "flex_attention")
    )
    model.load_state_dict(eager.state_dict())
    with torch.no_grad():
        expected = eager(IDS, output_attentions=True).attentions
        with regard.capture(model) as trace:
            model(IDS)
    assert (len(trace), trace.missed) == (2, [])
    for call, map in zip(trace, expected, strict=True):
        assert torch.allclose(call.map.dense(), map, atol=1e-5)
        assert call.verify() < 1e-5


def test_edges_of_pyg_are_a_sparse_map():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pyg = pytest.importorskip("torch_geometric.nn", reason="needs torch_geometric")
    torch.manual_seed(2)
    edges = torch.tensor([[0, 1, 2, 3, 0], [1, 1, 0, 2, 3]])
    for kind in (pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv):
        model = kind(6, 3, heads=2).eval()
        x = torch.randn(4, 6)
        before = model(x, edges)
        with regard.capture(model) as trace:
            during = model(x, edges)
        assert torch.equal(before, during)
        (call,) = trace
        assert (call.shape, trace.missed) == ((1, 2, 4, 4), [])
        _, (index, weights) = model(x, edges, return_attention_weights=True)
        expected = torch.zeros(2, 4, 4)
        expected[:, index[1], index[0]] = weights.detach().T
        assert torch.allclose(call.map.dense()[0], expected, atol=1e-6)


@pytest.mark.parametrize("name", ["deformable_detr", "rt_detr"])
def test_the_points_of_deformable_attention_are_a_sparse_map(name):
    pytest.importorskip("transformers", reason="needs transformers")
    module = __import__(f"transformers.models.{name}.modeling_{name}", fromlist=["x"])
    kind = module.MultiScaleDeformableAttention
    torch.manual_seed(4)
    sizes, queries, points = [(4, 3), (2, 2)], 5, 2
    model = nn.Sequential(kind())
    value = torch.randn(B, 16, H, D)
    places = torch.rand(B, queries, H, 2, points, 2) * 1.4 - 0.2  # some of them outside
    share = torch.rand(B, queries, H, 2 * points).log_softmax(-1).exp().unflatten(-1, (2, points))
    shapes = torch.tensor(sizes)
    arguments = (value, shapes, sizes, torch.tensor([0, 12]), places, share, 64)
    before = model[0](*arguments)
    with regard.capture(model) as trace:
        during = model[0](*arguments)
    assert torch.equal(before, during)
    (call,) = trace
    assert (call.name, call.shape, trace.missed) == ("0", (B, H, queries, 16), [])
    assert call.verify() < 1e-5
    assert torch.allclose(call.map[..., 2:3, :], call.map.dense()[..., 2:3, :])


def test_functions_are_recorded_through_their_packages_and_restored(monkeypatch):
    package = types.ModuleType("flash_attn")
    package.flash_attn_func = flash_attn_func
    monkeypatch.setitem(sys.modules, "flash_attn", package)

    class Late(nn.Module):
        def forward(self, *args):
            return package.flash_attn_func(*args)

    model = Late()
    with regard.capture(model) as trace:
        model(*three())
    assert trace[0].provenance["path"] == "flash_attn"
    assert package.flash_attn_func is flash_attn_func
