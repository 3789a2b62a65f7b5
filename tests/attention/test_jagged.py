"""Jagged tensors and packed segments give what each sequence gives alone, in value and gradient."""

import pytest
import torch
from torch import Tensor

import regard
from regard.layers import ALiBi, MultiHeadAttention, PositionalEncoding, Rotary
from regard.paths.choice import PATHS

HEADS, D, E = 2, 5, 3
QUERIES, KEYS = (4, 1, 0, 7, 4, 3, 2), (4, 6, 2, 1, 0, 3, 6)


def sequences(lengths: tuple[int, ...], width: int, *, heads: int = HEADS) -> list[Tensor]:
    """One tensor (length, heads, width) for each length, which wants a gradient."""
    torch.manual_seed(sum(lengths) + width)
    return [torch.randn(n, heads, width, dtype=torch.float64, requires_grad=True) for n in lengths]


def jagged(parts: list[Tensor]) -> Tensor:
    """(B, heads, lengths, width), through which gradients reach the parts."""
    offsets = torch.tensor([0, *(len(part) for part in parts)]).cumsum(0)
    return torch.nested.nested_tensor_from_jagged(torch.cat(parts), offsets).transpose(1, 2)


def one_by_one(parts: list[tuple[Tensor, ...]], **options) -> list[Tensor]:
    """Attention of each sequence alone, (length, heads, width)."""
    return [
        regard.attend(*(x.transpose(0, 1) for x in three), path="reference", **options).transpose(
            0, 1
        )
        for three in parts
    ]


def check_same(output: Tensor, expected: list[Tensor], leaves: list[Tensor]) -> None:
    found = output.transpose(1, 2).values()
    whole = torch.cat(expected)
    torch.testing.assert_close(found, whole, atol=1e-9, rtol=0)
    upstream = torch.randn_like(found)
    options = {"allow_unused": True, "materialize_grads": True}
    gradients = torch.autograd.grad(found, leaves, upstream, **options)
    references = torch.autograd.grad(whole, leaves, upstream, **options)
    for one, other in zip(gradients, references, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)


CASES = {
    "plain": {},
    "causal": {"mask": regard.causal()},
    "window": {"mask": regard.window(2, 1)},
    "both": {"mask": regard.causal() & regard.window(1, 1)},
    "temperature": {"normalize": regard.Normalizer(temperature=0.5)},
    "sparsemax": {"normalize": "sparsemax"},
    "general": {"score": "dot"},
    "cosine": {"score": "cosine", "mask": regard.causal()},
}


@pytest.mark.parametrize("path", ["auto", "packed", "banded", "blockwise", "reference"])
@pytest.mark.parametrize("name", CASES)
def test_self_attention_within_sequences(name: str, path: str) -> None:
    options = CASES[name]
    if name == "sparsemax" and path in ("packed", "banded"):
        with pytest.raises(ValueError, match="the normalizer is not softmax"):
            regard.attend(*[jagged(sequences(QUERIES, D))] * 3, path=path, **options)
        return
    parts = sequences(QUERIES, D)
    x = jagged(parts)
    output = regard.attend(x, x, x, path=path, **options)
    check_same(output, one_by_one([(part,) * 3 for part in parts], **options), parts)


@pytest.mark.parametrize("path", ["auto", "packed", "reference"])
def test_cross_attention_between_sequences(path: str) -> None:
    query, key, value = sequences(QUERIES, D), sequences(KEYS, D), sequences(KEYS, E)
    output = regard.attend(jagged(query), jagged(key), jagged(value), path=path)
    expected = one_by_one(list(zip(query, key, value, strict=True)))
    assert expected[4].eq(0).all()  # without a key
    check_same(output, expected, [*query, *key, *value])


def test_sequences_without_heads_and_residual_connections() -> None:
    parts = [part[:, 0] for part in sequences(QUERIES, D)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)
    output = x + regard.attend(x, x, x)
    for one, part in zip(output.unbind(), parts, strict=True):
        torch.testing.assert_close(one, part + regard.attend(part, part, part))


def test_nan_stays_in_its_sequence() -> None:
    parts = sequences(QUERIES, D)
    with torch.no_grad():
        parts[3][0] = torch.nan
    x = jagged(parts)
    output = regard.attend(x, x, x, path="packed").transpose(1, 2)
    bad = [not each.isfinite().all() for each in output.unbind()]
    assert bad == [index == 3 for index in range(len(QUERIES))]
    others = [part for index, part in enumerate(parts) if index != 3]
    finite = torch.cat([each for index, each in enumerate(output.unbind()) if index != 3])
    assert all(g.isfinite().all() for g in torch.autograd.grad(finite.sum(), others))


def test_the_map_is_that_of_the_sequences_side_by_side() -> None:
    x = jagged(sequences((3, 2), D))
    output, map = regard.attend(x, x, x, return_map=True)
    assert torch.equal(output.values(), regard.attend(x, x, x).values())
    assert map.shape == (HEADS, 5, 5)
    assert map.dense()[:, :3, 3:].eq(0).all()
    torch.testing.assert_close(map[:, 3:, 3:].sum(-1), torch.ones(HEADS, 2, dtype=torch.float64))


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("position", [None, Rotary(6), ALiBi(2)], ids=str)
def test_a_layer_attends_within_sequences(position, kv_heads: int) -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 2, kv_heads=kv_heads, position=position).double()
    parts = [torch.randn(n, 12, dtype=torch.float64) for n in (4, 1, 7, 4)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)
    output, map = layer(x, mask=regard.causal(), return_map=True)
    assert map.shape == (1, 2, 16, 16)
    for one, part in zip(output.unbind(), parts, strict=True):
        torch.testing.assert_close(one, layer(part[None], mask=regard.causal())[0])
    memory = torch.nested.nested_tensor(parts[::-1], layout=torch.jagged)
    if position is not None:
        with pytest.raises(ValueError, match="needs as many keys as queries"):
            layer(x, memory)
        return
    for one, left, right in zip(layer(x, memory).unbind(), parts, parts[::-1], strict=True):
        torch.testing.assert_close(one, layer(left[None], right[None])[0])


def test_segments_by_cumulative_lengths_are_those_by_ids() -> None:
    cu_seqlens = torch.tensor([0, 3, 3, 5], dtype=torch.int32)
    ids = torch.tensor([0, 0, 0, 2, 2])
    mask = regard.segments(cu_seqlens=cu_seqlens)
    assert torch.equal(mask.dense(5, 5), regard.segments(ids).dense(5, 5))
    both = regard.segments(cu_seqlens=(cu_seqlens, torch.tensor([0, 1, 4, 4])))
    assert both.dense(5, 4).int().tolist() == [[1, 0, 0, 0]] * 3 + [[0] * 4] * 2


def test_packed_sequences_take_the_packed_path_where_it_pays() -> None:
    lengths = torch.tensor([13, 9, 17, 9] * 20)
    mask = regard.segments(torch.arange(80).repeat_interleave(lengths))
    for width, path in ((8, "packed"), (64, "banded")):
        x = torch.randn(1, 8, int(lengths.sum()), width)
        assert regard.explain(x, x, x, mask=mask).path == path
        assert regard.explain(x, x, x, mask=mask & regard.causal()).path == path
    assert regard.explain(x, x, x, mask=mask | regard.causal()).path != "packed"
    interrupted = regard.segments(torch.arange(80).repeat_interleave(lengths) % 40)
    assert "packed" in PATHS
    with pytest.raises(ValueError, match="a segment is interrupted"):
        regard.attend(x, x, x, mask=interrupted, path="packed")
    torch.testing.assert_close(
        regard.attend(x, x, x, mask=mask), regard.attend(x, x, x, mask=mask, path="reference")
    )


X = torch.nested.nested_tensor([torch.ones(3, D), torch.ones(2, D)], layout=torch.jagged)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            TypeError,
            "key should be a jagged nested tensor",
            lambda: regard.attend(X, torch.ones(2, 3, D), X),
        ),
        (
            ValueError,
            "jagged tensors take no bias",
            lambda: regard.attend(X, X, X, bias=torch.zeros(3, 3)),
        ),
        (
            ValueError,
            "cannot be used with these jagged",
            lambda: regard.attend(X, X, X, mask=regard.lengths([3, 2])),
        ),
        (
            ValueError,
            "cannot be used with these jagged",
            lambda: regard.attend(X, X, X, mask=torch.ones(3, 3).bool()),
        ),
        (
            ValueError,
            "adds positions that count",
            lambda: MultiHeadAttention(D, 1, position=PositionalEncoding(D))(X),
        ),
        (ValueError, "no bias= and no offset", lambda: MultiHeadAttention(D, 1)(X, offset=2)),
        (
            ValueError,
            "begin with 0 and not fall",
            lambda: regard.segments(cu_seqlens=torch.tensor([1, 2])),
        ),
        (
            ValueError,
            "begin with 0 and not fall",
            lambda: regard.segments(cu_seqlens=torch.tensor([0, 2, 1])),
        ),
        (TypeError, "whole numbers", lambda: regard.segments(cu_seqlens=torch.tensor([0.0, 2.0]))),
        (
            TypeError,
            "got both",
            lambda: regard.segments(torch.tensor([0]), cu_seqlens=torch.tensor([0, 1])),
        ),
        (TypeError, "whole numbers, got NoneType", regard.segments),
        (
            ValueError,
            "as many texts",
            lambda: regard.segments(cu_seqlens=(torch.tensor([0, 1]), torch.tensor([0]))),
        ),
    ],
)
def test_what_is_not_jagged_is_refused(error, message, call) -> None:
    with pytest.raises(error, match=message):
        call()
