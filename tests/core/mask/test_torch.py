"""Torch's inverted masks."""

import pytest
import torch
from torch import Tensor, nn

import regard


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["none", "square", "per head"])
def test_masks_of_torch_multihead_attention_mean_the_same_here(kind: str, padded: bool) -> None:
    torch.manual_seed(0)
    heads, batch, queries, keys, dim = 3, 3, 5, 7, 6
    layer = nn.MultiheadAttention(dim, heads, batch_first=True)
    query, key = torch.randn(batch, queries, dim), torch.randn(batch, keys, dim)
    attn_mask = padding = None
    if kind == "square":
        attn_mask = torch.rand(queries, keys) > 0.6
    elif kind == "per head":
        attn_mask = torch.rand(batch * heads, queries, keys) > 0.6
    if attn_mask is not None:
        attn_mask[..., 0] = False  # torch gives NaN to a query that sees nothing
    if padded:
        padding = torch.arange(keys) >= torch.tensor([[7], [2], [4]])
    truth, weights = layer(
        query, key, key, attn_mask=attn_mask, key_padding_mask=padding, average_attn_weights=False
    )

    def split(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return (x @ weight.T + bias).unflatten(-1, (heads, -1)).transpose(1, 2)

    projections = zip(
        (query, key, key), layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3), strict=True
    )
    q, k, v = (split(*parts) for parts in projections)
    mask = regard.from_torch_mha(attn_mask, padding, heads=heads)
    output, map = regard.attend(q, k, v, mask=mask, return_map=True)
    torch.testing.assert_close(layer.out_proj(output.transpose(1, 2).flatten(2)), truth)
    torch.testing.assert_close(map.dense(), weights)


def test_torch_masks_that_cannot_be_converted_are_refused() -> None:
    assert regard.from_torch_mha() is None
    with pytest.raises(TypeError, match=r"got torch\.float32.*bias="):
        regard.from_torch_mha(torch.zeros(3, 5))
    with pytest.raises(TypeError, match=r"got torch\.float32"):
        regard.from_torch_mha(key_padding_mask=torch.zeros(2, 5))
    bits = torch.zeros(6, 3, 5, dtype=torch.bool)
    for heads in (None, 4):
        with pytest.raises(
            ValueError, match=r"attn_mask \(6, 3, 5\) is \(batch · heads, M, N\): give heads="
        ):
            regard.from_torch_mha(bits, heads=heads)
    padding = regard.from_torch_mha(key_padding_mask=torch.zeros(2, 7, dtype=torch.bool))
    assert padding is not None
    with pytest.raises(ValueError, match=r"key_padding_mask of shape \(2, 7\) does not fit 5 keys"):
        padding.dense(3, 5)
