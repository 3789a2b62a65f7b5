"""Multi-head attention with the weights of torch's own module."""

import pytest
import torch
from torch import nn

import regard
from regard.layers import (
    MultiHeadAttention,
)
from tests.layers.multi_head.longhand import B, D, H, M, N, double


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [{}, {"kdim": 11, "vdim": 13}], ids=["packed", "kdim vdim"])
def test_torch_weights_give_the_same_numbers_and_gradients(batch_first, bias, widths):
    theirs = nn.MultiheadAttention(
        D, H, bias=bias, batch_first=batch_first, dtype=torch.float64, **widths
    )
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    ours = MultiHeadAttention.from_torch(theirs)
    query = double(B, M, D).requires_grad_()
    key, value = (
        double(B, N, widths.get("kdim", D), seed=1),
        double(B, N, widths.get("vdim", D), seed=2),
    )
    hidden = torch.tensor([[False] * 4 + [True] * 3, [False] * 7, [False] * 6 + [True]])
    later = torch.ones(M, N, dtype=torch.bool).triu(2)
    inputs = [x if batch_first else x.transpose(0, 1) for x in (query, key, value)]
    expected, weights = theirs(
        *inputs, key_padding_mask=hidden, attn_mask=later, average_attn_weights=False
    )
    expected = expected if batch_first else expected.transpose(0, 1)
    mask = regard.from_torch_mha(later, hidden)
    output, map = ours(query, key, value, mask=mask, return_map=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(map.dense(), weights)
    wanted = torch.autograd.grad(expected.square().sum(), [query, theirs.out_proj.weight])
    found = torch.autograd.grad(output.square().sum(), [query, ours.output_projection.weight])
    torch.testing.assert_close(found, wanted)


def test_torch_layers_keep_their_dtype_dropout_and_mode():
    theirs = nn.MultiheadAttention(D, H, dropout=0.25, dtype=torch.bfloat16).eval()
    ours = MultiHeadAttention.from_torch(theirs)
    assert ours.query_projection.weight.dtype == torch.bfloat16
    assert ours.dropout == 0.25
    assert not ours.training
    theirs.out_proj.weight.data.zero_()  # ours are a copy
    assert ours.output_projection.weight.abs().max() > 0


def test_torch_layers_with_extra_keys_are_refused():
    with pytest.raises(ValueError, match="add_bias_kv"):
        MultiHeadAttention.from_torch(nn.MultiheadAttention(D, H, add_bias_kv=True))
