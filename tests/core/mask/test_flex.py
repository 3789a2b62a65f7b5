"""mask_mod and BlockMask of flex_attention are masks: flex's result, with gradients on the CPU."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

import regard
from regard.layers import MultiHeadAttention

B, H, M, N, D = 2, 3, 7, 7, 16
DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 2]])
OFFSETS = torch.tensor([0, 2, 5])


def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv):
    return (q - kv).abs() <= 2


def documents(b, h, q, kv):
    return (DOCUMENTS[b, q] == DOCUMENTS[b, kv]) & (q >= kv)


def heads(b, h, q, kv):
    return q - kv <= OFFSETS[h]


def both(b, h, q, kv):
    return documents(b, h, q, kv) | heads(b, h, q, kv)


def nothing_in_row_2(b, h, q, kv):
    return torch.where(q == 2, q < 0, q >= kv)


pytestmark = pytest.mark.filterwarnings(  # torch's own
    "ignore:flex_attention called without torch.compile:UserWarning"
)
MODS = (causal, window, documents, heads, both, nothing_in_row_2)


@pytest.mark.parametrize("mod", MODS, ids=lambda mod: mod.__name__)
def test_a_block_mask_shows_what_flex_shows_in_value_and_gradient(mod) -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(B, H, n, D, requires_grad=True) for n in (M, N, N)]
    block = create_block_mask(mod, B, H, M, N, device="cpu")
    dense = create_mask(mod, B, H, M, N, device="cpu")
    assert torch.equal(regard.visible(block).dense(M, N, leading=2).expand(B, H, M, N), dense)
    output = regard.attend(*tensors, mask=block)
    plain = [each.detach() for each in tensors]  # flex has no gradient on the CPU
    torch.testing.assert_close(output.detach(), flex_attention(*plain, block_mask=block))
    expected = regard.attend(*tensors, mask=dense, path="reference")
    upstream = torch.randn_like(output)
    gradients = torch.autograd.grad(output, tensors, upstream)
    references = torch.autograd.grad(expected, tensors, upstream)
    for one, other in zip(gradients, references, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("path", ["auto", "reference", "fused", "blockwise", "block_sparse"])
def test_a_mask_mod_alone_is_a_mask_and_composes(path: str) -> None:
    x = torch.randn(B, H, M, D)
    for mod, same in ((causal, regard.causal()), (window, regard.window(2, 2))):
        expected = regard.attend(x, x, x, mask=same, path="reference")
        torch.testing.assert_close(regard.attend(x, x, x, mask=mod, path=path), expected)
    mask = regard.lengths(torch.tensor([7, 4])) & regard.visible(causal)
    expected = regard.attend(x, x, x, mask=regard.lengths([7, 4]) & regard.causal())
    torch.testing.assert_close(regard.attend(x, x, x, mask=mask, path=path), expected)


def test_layers_take_them() -> None:
    x = torch.randn(B, M, 12)
    for kv_heads in (1, 3):
        layer = MultiHeadAttention(12, 3, kv_heads=kv_heads)
        torch.testing.assert_close(layer(x, mask=causal), layer(x, mask=regard.causal()))
        block = create_block_mask(heads, B, H, M, N, device="cpu")
        dense = create_mask(heads, B, H, M, N, device="cpu")
        torch.testing.assert_close(layer(x, mask=block), layer(x, mask=dense))


@pytest.mark.parametrize("mod", [documents, heads])
def test_a_mask_mod_of_the_batch_or_heads_alone_is_refused(mod) -> None:
    with pytest.raises(ValueError, match="depends on b or h"):
        regard.attend(*torch.randn(3, B, H, M, D), mask=mod)
    with pytest.raises(TypeError, match="a mask is a bool tensor"):
        regard.visible(3)
