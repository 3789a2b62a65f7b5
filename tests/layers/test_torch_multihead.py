"""The drop-in beside torch's own layer: outputs, weights, gradients, masks and surroundings."""

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.layers import TorchMultiheadAttention

B, L, S, E, HEADS = 2, 5, 7, 12, 3


def both(**options) -> tuple[nn.MultiheadAttention, TorchMultiheadAttention]:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(E, HEADS, dtype=torch.float64, **options)
    ours = TorchMultiheadAttention(E, HEADS, dtype=torch.float64, **options)
    for parameter in theirs.parameters():  # torch starts biases at zero, which would hide them
        nn.init.normal_(parameter, std=0.3)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def inputs(batch_first: bool, kdim: int = E, vdim: int = E) -> list[Tensor]:
    sizes = ((B, L, E), (B, S, kdim), (B, S, vdim))
    drawn = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    return drawn if batch_first else [x.transpose(0, 1).detach().requires_grad_() for x in drawn]


OPTIONS = [
    {},
    {"batch_first": True},
    {"bias": False},
    {"kdim": 4, "vdim": 6},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
]
MASKS = {
    "none": {},
    "causal": {"attn_mask": torch.ones(L, S, dtype=torch.bool).triu(1)},
    "float": {"attn_mask": torch.randn(L, S, dtype=torch.float64)},
    "per head": {"attn_mask": torch.arange(B * HEADS * L * S).view(B * HEADS, L, S) % 5 == 1},
    "padding": {"key_padding_mask": torch.arange(S) >= torch.tensor([[S], [3]])},
    "both": {
        "attn_mask": torch.ones(L, S, dtype=torch.bool).triu(2),
        "key_padding_mask": torch.arange(S) >= torch.tensor([[S], [3]]),
    },
}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("average", [True, False])
def test_outputs_weights_and_gradients_are_torchs(options, masks, average):
    theirs, ours = both(**options)
    given = inputs(theirs.batch_first, theirs.kdim, theirs.vdim)
    expected, weights = theirs(*given, **masks, average_attn_weights=average)
    output, own = ours(*given, **masks, average_attn_weights=average)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(own, weights)
    slope = torch.randn_like(output)
    wanted = torch.autograd.grad(expected, [*given, *theirs.parameters()], slope)
    found = torch.autograd.grad(output, [*given, *ours.parameters()], slope)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_weights_are_returned_only_if_needed_and_change_nothing():
    _, ours = both(batch_first=True)
    given = inputs(True)
    output, weights = ours(*given, need_weights=False)
    assert weights is None
    assert torch.equal(output, ours(*given)[0])


def test_inputs_without_a_batch():
    theirs, ours = both()
    given = [x[:, 0] for x in inputs(False)]
    padding = torch.arange(S) > 3
    for one, other in zip(
        ours(*given, key_padding_mask=padding),
        theirs(*given, key_padding_mask=padding),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_a_query_that_may_attend_to_nothing_gets_the_output_of_zeros():
    _, ours = both(batch_first=True)
    given = inputs(True)
    output, weights = ours(*given, key_padding_mask=torch.tensor([[True] * S, [False] * S]))
    assert torch.equal(weights[0], torch.zeros(L, S, dtype=torch.float64))
    torch.testing.assert_close(output[0], ours.out_proj.bias.expand(L, E))


def test_is_causal_needs_the_mask_it_is_a_hint_about():
    _, ours = both()
    with pytest.raises(RuntimeError, match="give attn_mask as well"):
        ours(*inputs(False), is_causal=True)


@pytest.mark.parametrize("training", [True, False])
def test_inside_an_encoder_layer_it_is_used_and_recorded(training):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(E, 2, 16, dropout=0.0, batch_first=True)
    drop_in = TorchMultiheadAttention(E, 2, batch_first=True)
    drop_in.load_state_dict(layer.self_attn.state_dict())
    x = torch.randn(B, L, E)
    with torch.set_grad_enabled(training):
        expected = layer.train(training)(x)
        layer.self_attn = drop_in
        with regard.capture(layer.train(training)) as trace:
            output = layer(x)
    torch.testing.assert_close(output, expected)
    assert [tuple(call.map.shape) for call in trace.calls] == [(B, 2, L, L)]


X, Y = torch.randn(B, L, E), torch.randn(B, S, E)
HIDDEN = torch.zeros(B, S, dtype=torch.bool)
REFUSED = {
    "is_causal alone": ((X, Y, Y), {"is_causal": True}),
    "one dimension": ((X[0, 0], Y, Y), {}),
    "four dimensions": ((X[None], Y, Y), {}),
    "keys without a batch": ((X, Y[0], Y[0]), {}),
    "values without a batch": ((X, Y, Y[0]), {}),
    "width of the query": ((X[..., :6], Y, Y), {}),
    "width of the key": ((X, Y[..., :6], Y), {}),
    "width of the value": ((X, Y, Y[..., :6]), {}),
    "length of the value": ((X, Y, Y[:, :4]), {}),
    "batch of the key": ((X, Y[:1], Y[:1]), {}),
    "whole numbers as a mask": ((X, Y, Y), {"attn_mask": torch.ones(L, S).long()}),
    "whole numbers as padding": ((X, Y, Y), {"key_padding_mask": HIDDEN.long()}),
    "size of a mask": ((X, Y, Y), {"attn_mask": torch.zeros(L, 6).bool()}),
    "heads of a mask": ((X, Y, Y), {"attn_mask": torch.zeros(2, L, S).bool()}),
    "a mask of one row": ((X, Y, Y), {"attn_mask": torch.zeros(S).bool()}),
    "length of padding": ((X, Y, Y), {"key_padding_mask": HIDDEN[:, 1:]}),
    "batch of padding": ((X, Y, Y), {"key_padding_mask": HIDDEN[:1]}),
    "padding of one row": ((X, Y, Y), {"key_padding_mask": HIDDEN[0]}),
    "padding of a batch": ((X[0], Y[0], Y[0]), {"key_padding_mask": HIDDEN}),
    "dtype of the query": ((X.double(), Y, Y), {}),
    "dtype of the key": ((X, Y.double(), Y), {}),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("batch_first", [True, False])
def test_what_torch_refuses_is_refused_with_an_error_of_the_same_type(name, batch_first):
    tensors, masks = REFUSED[name]
    if not batch_first and all(x.dim() == 3 for x in tensors):
        tensors = tuple(x.transpose(0, 1) for x in tensors)
    types = []
    for kind in (nn.MultiheadAttention, TorchMultiheadAttention):
        with pytest.raises((RuntimeError, AssertionError, ValueError, TypeError)) as caught:
            kind(E, HEADS, batch_first=batch_first)(*tensors, **masks)
        types.append(caught.type)
    assert types[0] is types[1]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_torchscript_is_refused_with_a_sentence():
    with pytest.raises(RuntimeError, match="TorchScript, which torch has"):
        torch.jit.script(nn.Sequential(TorchMultiheadAttention(E, HEADS)))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_jagged_inputs_are_sequences_one_by_one(need_weights, average):
    theirs, ours = both(batch_first=True)
    sizes = ((4, 3), (1, 7), (5, 1), (1, 7))
    pairs = [[torch.randn(n, E, dtype=torch.float64) for n in size] for size in sizes]
    query, key = (
        torch.nested.nested_tensor(list(side), layout=torch.jagged)
        for side in zip(*pairs, strict=True)
    )
    options = {"need_weights": need_weights, "average_attn_weights": average}
    output, weights = ours(query, key, key, **options)
    assert (weights is None) is not need_weights
    for index, (one, (left, right)) in enumerate(zip(output.unbind(), pairs, strict=True)):
        expected, map = theirs(left, right, right, **options)
        torch.testing.assert_close(one, expected)
        if need_weights:
            M, N = map.shape[-2:]
            torch.testing.assert_close(weights[index][..., :M, :N], map)
            assert weights[index][..., M:, :].eq(0).all()
            assert weights[index][..., N:].eq(0).all()
    with pytest.raises(RuntimeError, match="take no masks"):
        ours(query, key, key, key_padding_mask=torch.zeros(4, 7, dtype=torch.bool))
