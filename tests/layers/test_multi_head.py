"""Multi-head attention against its equation, torch's own module, and itself step by step."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import regard
from regard.layers import (
    ALiBi,
    Learned,
    MultiHeadAttention,
    Position,
    PositionalEncoding,
    Rotary,
)

B, M, N, D, H = 3, 5, 7, 12, 6  # width 2 per head
POSITIONS = {
    "none": lambda: None,
    "sinusoidal": lambda: PositionalEncoding(D),
    "learned": lambda: Learned(D, max_length=40),
    "rotary": lambda: Rotary(D // H),
    "alibi": lambda: ALiBi(H),
}


def double(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def negative_distance(query: Tensor, key: Tensor) -> Tensor:
    return -(query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)


def longhand(
    layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, visible: Tensor
) -> tuple[Tensor, Tensor]:
    """[head_1 ; …] W_O and the maps, one head and one sequence at a time, scores q · k / √d."""
    width = layer.dim // layer.heads
    outputs, maps = [], []
    for b in range(len(query)):
        heads, weights = [], []
        for h in range(layer.heads):
            kv = h // (layer.heads // layer.kv_heads)
            q = layer.query_projection(query[b])[:, h * width : (h + 1) * width]
            k = layer.key_projection(key[b])[:, kv * width : (kv + 1) * width]
            v = layer.value_projection(value[b])[:, kv * width : (kv + 1) * width]
            q, k = layer.query_norm(q), layer.key_norm(k)
            scores = q @ k.T / math.sqrt(width)
            scores = scores.masked_fill(~visible[b, h], -math.inf)
            w = scores.softmax(-1).nan_to_num(0.0)  # a row that sees nothing
            heads.append(w @ v)
            weights.append(w)
        outputs.append(layer.output_projection(torch.cat(heads, dim=-1)))
        maps.append(torch.stack(weights))
    return torch.stack(outputs), torch.stack(maps)


def everything(b: int = B, h: int = H, m: int = M, n: int = N) -> Tensor:
    return torch.ones(b, h, m, n, dtype=torch.bool)


# ------------------------------------------------------------------ the equation


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key_dim": 11, "value_dim": 13, "out_dim": 17},
        {"key_dim": 11},
        {"output_projection": False, "bias": False},
        {"qk_norm": nn.RMSNorm},
    ],
    ids=["plain", "adaptive widths", "key width", "no output projection", "qk norm"],
)
def test_the_output_and_the_map_are_those_of_the_equation(kv_heads, options):
    layer = MultiHeadAttention(D, H, kv_heads=kv_heads, **options).double()
    for parameter in layer.parameters():  # zero biases and unit norms would hide mistakes
        nn.init.normal_(parameter)
    key_dim = options.get("key_dim", D)
    query = double(B, M, D)
    key = double(B, N, key_dim, seed=1)
    value = double(B, N, options.get("value_dim", key_dim), seed=2)
    mask = regard.lengths([N, 3, 0])
    expected, weights = longhand(
        layer, query, key, value, mask.dense(M, N, leading=2).expand(B, H, M, N)
    )
    output, map = layer(query, key, value, mask=mask, return_map=True)
    assert output.shape == (B, M, options.get("out_dim", D))
    assert map.shape == (B, H, M, N)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(map.dense(), weights)
    torch.testing.assert_close(map[..., 3:4, :], weights[..., 3:4, :])


def test_self_attention_is_the_default_and_value_is_the_key():
    layer = MultiHeadAttention(D, H)
    x, memory = torch.randn(B, M, D), torch.randn(B, N, D)
    assert torch.equal(layer(x), layer(x, x, x))
    assert torch.equal(layer(x, memory), layer(x, memory, memory))


@pytest.mark.parametrize("kv_heads", [6, 2])
def test_every_kind_of_mask_means_the_same(kv_heads):
    batch = H  # as many sequences as heads: a mask of sequences must not be taken for one of heads
    layer = MultiHeadAttention(D, H, kv_heads=kv_heads).double()
    query, key = double(batch, M, D), double(batch, N, D, seed=1)
    generator = torch.Generator().manual_seed(2)

    def same(mask: regard.Mask | Tensor, visible: Tensor) -> None:
        expected, weights = longhand(layer, query, key, key, visible.expand(batch, H, M, N))
        output, map = layer(query, key, mask=mask, return_map=True)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(map.dense(), weights)

    rows = torch.rand(M, N, generator=generator) > 0.4
    sequences = torch.rand(batch, M, N, generator=generator) > 0.4
    heads = torch.rand(batch, H, M, N, generator=generator) > 0.4
    lengths = torch.tensor([7, 5, 0, 1, 2, 3])
    causal = regard.causal().dense(M, N)
    short = regard.lengths(lengths)
    short_dense = (torch.arange(N) < lengths[:, None])[:, None, None]
    same(rows, rows)
    same(sequences, sequences[:, None])
    same(heads, heads)
    same(heads[:, :1], heads[:, :1])
    same(regard.causal(), causal)
    same(short, short_dense)
    same(regard.causal() & sequences, causal & sequences[:, None])
    same(short | ~regard.visible(sequences), short_dense | ~sequences[:, None])
    same(regard.causal() & short & heads, causal & short_dense & heads)
    per_head = torch.randint(0, N + 1, (batch, H), generator=generator)
    same(regard.lengths(per_head), (torch.arange(N) < per_head[..., None])[..., None, :])


@pytest.mark.parametrize("kv_heads", [6, 3])
def test_a_bias_is_added_to_the_scores_and_learns(kv_heads):
    layer = MultiHeadAttention(D, H, kv_heads=kv_heads).double()
    x = double(B, N, D)
    for shape in [(N, N), (B, N, N), (1, H, N, N), (B, H, N, N)]:
        bias = double(*shape, seed=3).requires_grad_()
        output, map = layer(x, bias=bias, return_map=True)
        wide = bias if bias.dim() != 3 else bias.unsqueeze(1)
        scores = layer(x, return_map=True).map.scores.dense() + wide
        torch.testing.assert_close(map.dense(), scores.softmax(-1))
        output.sum().backward()
        assert bias.grad.abs().max() > 0


def test_the_map_makes_the_output_and_asking_for_it_changes_nothing():
    layer = MultiHeadAttention(D, H, kv_heads=2)
    x = torch.randn(B, 40, D)
    output, map = layer(x, mask=regard.causal(), return_map=True)
    assert torch.equal(output, layer(x, mask=regard.causal()))
    value = layer.value_projection(x).unflatten(-1, (2, -1)).transpose(1, 2)
    heads = map.dense() @ value.repeat_interleave(3, dim=1)
    torch.testing.assert_close(output, layer.output_projection(heads.transpose(1, 2).flatten(-2)))
    (gradient,) = torch.autograd.grad(map[..., 3, :2].sum(), layer.key_projection.weight)
    assert gradient.abs().max() > 0


# ------------------------------------------------------------------ scores


SCORES = {
    "dot": lambda: "dot",
    "cosine": lambda: "cosine",
    "general": lambda: regard.General(2, 2),
    "additive": lambda: regard.Additive(2, 2, 5),
    "callable": lambda: negative_distance,
}


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_shared_by_all_heads(name, kv_heads):
    score = SCORES[name]()
    layer = MultiHeadAttention(D, H, kv_heads=kv_heads, score=score).double()
    x = double(B, 19, D)
    map = layer(x, return_map=True).map
    q = layer.query_projection(x).unflatten(-1, (H, -1)).transpose(1, 2)
    k = layer.key_projection(x).unflatten(-1, (kv_heads, -1)).transpose(1, 2)
    k = k.repeat_interleave(H // kv_heads, dim=1)
    by_name = {"dot": regard.Dot(), "cosine": regard.Cosine().double()}
    function = by_name[name] if isinstance(score, str) else score
    torch.testing.assert_close(map.scores.dense(), function(q, k))


@pytest.mark.parametrize("kv_heads", [6, 2])
def test_each_head_may_have_a_score_of_its_own(kv_heads):
    fused = ["dot", "scaled_dot", regard.General(2, 2), "cosine", regard.General(2, 2), "dot"]
    mixed = [*fused[:4], regard.Additive(2, 2, 3), negative_distance]
    x = double(B, 19, D)
    for scores in (fused, mixed):
        layer = MultiHeadAttention(D, H, kv_heads=kv_heads, score=scores).double()
        output, map = layer(x, mask=regard.causal(), return_map=True)
        q = layer.query_projection(x).unflatten(-1, (H, -1)).transpose(1, 2)
        k, v = (
            projection(x).unflatten(-1, (kv_heads, -1)).transpose(1, 2)
            for projection in (layer.key_projection, layer.value_projection)
        )
        heads = []
        for h, score in enumerate(scores):
            kv = h * kv_heads // H
            heads.append(
                regard.attend(
                    q[:, h], k[:, kv], v[:, kv], score=score, mask=regard.causal(), return_map=True
                )
            )
        context = torch.cat([head.output for head in heads], dim=-1)
        torch.testing.assert_close(output, layer.output_projection(context))
        maps = torch.stack([head.map.dense() for head in heads], dim=1)
        torch.testing.assert_close(map.dense(), maps)
        modules = [score for score in scores if isinstance(score, nn.Module)]
        names = dict(layer.named_parameters())
        for score in modules:  # they are trained and saved with the layer
            for parameter in score.parameters():
                assert any(parameter is own for own in names.values())


def test_scores_of_heads_that_are_all_dot_products_are_fused():
    layer = MultiHeadAttention(D, H, score=["dot"] * 5 + [regard.General(2, 2)])
    q = torch.randn(B, H, 64, 2)
    assert regard.explain(q, q, q, score=layer.score).path == "fused"


# ------------------------------------------------------------------ positions


def test_without_positions_a_permuted_input_gives_a_permuted_output():
    layer = MultiHeadAttention(D, H, kv_heads=3).double()
    x, order = double(B, N, D), torch.randperm(N)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])


@pytest.mark.parametrize("name", [name for name in POSITIONS if name != "none"])
def test_with_positions_order_matters(name):
    layer = MultiHeadAttention(D, H, kv_heads=3, position=POSITIONS[name]()).double()
    x = double(B, N, D)
    order = torch.arange(N).roll(1)
    difference = (layer(x[:, order]) - layer(x)[:, order]).abs().max()
    assert difference > 1e-5


@pytest.mark.parametrize("kv_heads", [6, 2])
def test_each_hook_of_a_position_acts_where_it_says(kv_heads):
    x = double(B, N, D)

    def layer(position: Position) -> MultiHeadAttention:
        torch.manual_seed(0)
        return MultiHeadAttention(D, H, kv_heads=kv_heads, position=position).double()

    plain = layer(Position())
    sinusoidal = PositionalEncoding(D)
    torch.testing.assert_close(layer(sinusoidal)(x), plain(sinusoidal(x)))
    alibi = ALiBi(H)
    bias = alibi.bias(N, N, dtype=torch.float64).unsqueeze(0)
    torch.testing.assert_close(layer(alibi)(x), plain(x, bias=bias))
    rotary = Rotary(D // H)
    map = layer(rotary)(x, return_map=True).map
    q = plain.query_projection(x).unflatten(-1, (H, -1)).transpose(1, 2)
    k = plain.key_projection(x).unflatten(-1, (kv_heads, -1)).transpose(1, 2)
    k = k.repeat_interleave(H // kv_heads, dim=1)
    expected = rotary.rotate(q) @ rotary.rotate(k).mT / math.sqrt(D // H)
    torch.testing.assert_close(map.scores.dense(), expected)


def test_the_last_query_sits_on_the_last_key_unless_an_offset_says_otherwise():
    layer = MultiHeadAttention(D, H, position=Rotary(D // H)).double()
    x = double(B, N, D)
    full = layer(x, mask=regard.causal())
    torch.testing.assert_close(layer(x[:, -3:], x, mask=regard.causal()), full[:, -3:])
    part = layer(x[:, 1:4], x, mask=regard.causal(offset=1), offset=1)
    torch.testing.assert_close(part, full[:, 1:4])


# ------------------------------------------------------------------ torch's own


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


# ------------------------------------------------------------------ decoding


def steps(layer, x, state, **options):
    """The outputs of x (batch, length, dim) one position at a time, and the last state."""
    outputs = []
    for t in range(x.shape[1]):
        y, state = layer.step(x[:, t : t + 1], state, **options)
        outputs.append(y)
    return outputs, state


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("name", POSITIONS)
def test_steps_equal_the_causal_pass(name, kv_heads):
    length = 37  # past the first room of the cache, twice
    layer = MultiHeadAttention(
        D, H, kv_heads=kv_heads, position=POSITIONS[name](), qk_norm=nn.RMSNorm
    ).double()
    x = double(B, length, D)
    with torch.no_grad():
        full = layer(x, mask=regard.causal())
        outputs, _ = steps(layer, x, layer.start(B))
        torch.testing.assert_close(torch.cat(outputs, 1), full)
        prompt, state = layer.step(x[:, :11], layer.start(B))  # several positions at once
        outputs, _ = steps(layer, x[:, 11:], state)
    torch.testing.assert_close(torch.cat([prompt, *outputs], 1), full)


@pytest.mark.parametrize("score", ["cosine", regard.Additive(2, 2, 5)])
def test_steps_equal_the_causal_pass_with_other_scores(score):
    layer = MultiHeadAttention(D, H, score=score).double()
    x = double(B, N, D)
    outputs, _ = steps(layer, x, layer.start(B))
    torch.testing.assert_close(torch.cat(outputs, 1), layer(x, mask=regard.causal()))


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("name", POSITIONS)
def test_steps_over_a_memory_equal_the_full_pass(name, kv_heads):
    layer = MultiHeadAttention(D, H, kv_heads=kv_heads, position=POSITIONS[name]()).double()
    x, memory = double(B, M, D), double(B, N, D, seed=1)
    mask = regard.lengths([N, 4, 0])
    outputs, _ = steps(layer, x, layer.start(B, memory, mask))
    torch.testing.assert_close(torch.cat(outputs, 1), layer(x, memory, mask=mask, offset=0))


def test_gradients_flow_through_steps_as_through_the_full_pass():
    layer = MultiHeadAttention(D, H, kv_heads=3).double()
    x, memory = double(B, N, D).requires_grad_(), double(B, M, D, seed=1).requires_grad_()
    parameters = [x, memory, *layer.parameters()]
    outputs, _ = steps(layer, x, layer.start(B))
    crossed, _ = steps(layer, x, layer.start(B, memory))
    found = torch.cat(outputs, 1).square().sum() + torch.cat(crossed, 1).square().sum()
    wanted = layer(x, mask=regard.causal()).square().sum() + layer(x, memory).square().sum()
    torch.testing.assert_close(
        torch.autograd.grad(found, parameters), torch.autograd.grad(wanted, parameters)
    )


@pytest.mark.parametrize("grad", [True, False])
def test_reordered_beams_go_on_as_if_they_had_always_been_there(grad):
    layer = MultiHeadAttention(D, H, kv_heads=2, position=Rotary(2)).double()
    sentences, beams, length = 2, 3, 9
    memory, mask = double(sentences, N, D, seed=1), regard.lengths([N, 3])
    generator = torch.Generator().manual_seed(3)
    with torch.set_grad_enabled(grad):
        past, crossed = layer.start(sentences * beams), layer.start(sentences * beams, memory, mask)
        history = torch.zeros(sentences * beams, 0, D, dtype=torch.float64)
        for t in range(length):
            x = double(sentences * beams, 1, D, seed=10 + t)
            y, past = layer.step(x, past)
            z, crossed = layer.step(x, crossed)
            history = torch.cat([history, x], dim=1)
            wanted = layer(history, mask=regard.causal())
            torch.testing.assert_close(y, wanted[:, -1:])
            wide = memory.repeat_interleave(beams, 0)
            lengths = regard.lengths([N] * beams + [3] * beams)
            wanted = layer(history, wide, mask=lengths, offset=0)
            torch.testing.assert_close(z, wanted[:, -1:])
            own = torch.randint(beams, (sentences, beams), generator=generator)
            index = (own + beams * torch.arange(sentences)[:, None]).flatten()
            past, crossed, history = past.reorder(index), crossed.reorder(index), history[index]


def test_a_memory_is_projected_once_and_held_once_for_all_beams():
    layer = MultiHeadAttention(D, H)
    state = layer.start(15, torch.randn(3, N, D))
    assert state.tensors[0].shape == (3, H, N, 2)
    moved = state.reorder(torch.tensor([4, 3, 2, 1, 0, 5, 5, 5, 6, 9, 10, 14, 14, 14, 13]))
    assert moved.tensors[0] is state.tensors[0]


def test_a_state_may_be_stepped_twice():
    layer = MultiHeadAttention(D, H).double()
    x = double(B, 6, D)
    with torch.no_grad():
        _, shared = steps(layer, x[:, :4], layer.start(B))
        once, _ = layer.step(x[:, 4:5], shared)
        layer.step(x[:, 5:6], shared)
        again, _ = layer.step(x[:, 4:5], shared)
    assert torch.equal(once, again)


def test_a_step_gives_the_row_of_the_map():
    layer = MultiHeadAttention(D, H, kv_heads=3).double()
    x, memory = double(4, M, D), double(2, N, D, seed=1)
    mask = regard.lengths([N, 3])
    with torch.no_grad():
        full = layer(x, mask=regard.causal(), return_map=True).map.dense()
        maps, _ = steps(layer, x, layer.start(4), return_map=True)
        for t, (_, map) in enumerate(maps):  # looked at after later steps
            torch.testing.assert_close(map.dense(), full[:, :, t : t + 1, : t + 1])
        wide, lengths = memory.repeat_interleave(2, 0), regard.lengths([N, N, 3, 3])
        full = layer(x, wide, mask=lengths, return_map=True).map.dense()
        maps, _ = steps(layer, x, layer.start(4, memory, mask), return_map=True)
        for t, (_, map) in enumerate(maps):
            torch.testing.assert_close(map.dense(), full[:, :, t : t + 1])


def test_every_kind_of_memory_mask_means_the_same():
    layer = MultiHeadAttention(D, H, kv_heads=2).double()
    x, memory = double(B, 1, D), double(B, N, D, seed=1)
    real = torch.arange(N) < torch.tensor([[N], [4], [2]])
    expected = layer(x, memory, mask=real.unsqueeze(1))
    kinds = [real, real.unsqueeze(1), real[:, None, None].expand(B, H, 1, N)]
    for mask in [*kinds, regard.lengths([N, 4, 2]), regard.from_torch_mha(None, ~real)]:
        output, _ = layer.step(x, layer.start(B, memory, mask))
        torch.testing.assert_close(output, expected)


# ------------------------------------------------------------------ a good citizen


def test_sequences_of_a_batch_do_not_influence_each_other():
    torch.manual_seed(0)
    layer = MultiHeadAttention(D, H, kv_heads=3, position=Rotary(2), dropout=0.5)
    x = torch.randn(B, 33, D)
    changed = x.clone()
    changed[1] = torch.randn(33, D) * 100
    for mask in (None, regard.causal(), regard.lengths([33, 20, 5]), regard.window(3, 3)):
        for mode in (True, False):
            layer.train(mode)
            outputs = []
            for inputs in (x, changed):
                torch.manual_seed(1)
                outputs.append(layer(inputs, mask=mask))
            first, second = outputs
            assert torch.equal(first[[0, 2]], second[[0, 2]])
            assert not torch.equal(first[1], second[1])


def test_nan_in_padding_reaches_no_output_and_no_gradient():
    layer = MultiHeadAttention(D, H, kv_heads=3)
    memory = torch.randn(B, N, D)
    memory[0, 5:] = math.nan
    memory[2] = math.inf
    mask = regard.lengths([5, N, 0])
    query = torch.randn(B, M, D)
    output = layer(query, memory, mask=mask)
    output.sum().backward()
    clean = layer(query, torch.where(memory.isfinite(), memory, 7.0), mask=mask)
    torch.testing.assert_close(output, clean)
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    x = memory.clone()  # padded queries are hidden too
    output = layer(x, mask=regard.lengths([5, N, 0], [5, N, 0]))
    assert output.isfinite().all()
    layer.zero_grad()
    output.sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    stepped, _ = layer.step(query[:, :1], layer.start(B, memory, mask))
    torch.testing.assert_close(stepped, clean[:, :1])


def test_a_sequence_of_length_zero_gives_the_bias_of_the_output():
    layer = MultiHeadAttention(D, H)
    nn.init.normal_(layer.output_projection.bias)
    output = layer(torch.randn(2, M, D), mask=regard.lengths([0, 3]))
    torch.testing.assert_close(output[0], layer.output_projection.bias.expand(M, D))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("position", POSITIONS)
def test_every_dtype_comes_out_as_it_went_in(dtype, position):
    torch.manual_seed(0)
    layer = MultiHeadAttention(D, H, kv_heads=2, position=POSITIONS[position]())
    x = torch.randn(B, N, D)
    exact = layer.double()(x.double(), mask=regard.causal())
    layer = layer.to(dtype)
    output = layer(x.to(dtype), mask=regard.causal())
    assert output.dtype == dtype
    tolerance = 8 * torch.finfo(dtype).eps * exact.abs().max().item()
    assert (output.double() - exact).abs().max() < max(tolerance, 1e-6)
    y, _ = layer.step(x[:, :1].to(dtype), layer.start(B))
    assert y.dtype == dtype


def test_nothing_stays_on_the_layer_after_a_call():
    layer = MultiHeadAttention(D, H, position=ALiBi(H), dropout=0.1)
    before = {name: set(vars(module)) for name, module in layer.named_modules()}
    values = {k: v for k, v in vars(layer).items() if not k.startswith("_")}
    layer(torch.randn(B, N, D), mask=regard.causal(), return_map=True).map.dense()
    steps(layer, torch.randn(B, N, D), layer.start(B))
    assert {name: set(vars(module)) for name, module in layer.named_modules()} == before
    assert {k: v for k, v in vars(layer).items() if not k.startswith("_")} == values
    assert not list(layer.buffers())


def test_copies_and_saved_weights_give_the_same_numbers():
    scores = ["dot", *[regard.General(2, 2) for _ in range(5)]]
    layer = MultiHeadAttention(D, H, kv_heads=3, score=scores, qk_norm=nn.RMSNorm)
    x = torch.randn(B, N, D)
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(x), layer(x))
    other = MultiHeadAttention(
        D,
        H,
        kv_heads=3,
        score=["dot", *[regard.General(2, 2) for _ in range(5)]],
        qk_norm=nn.RMSNorm,
    )
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))
    nn.init.zeros_(layer.query_projection.weight)
    assert not torch.equal(twin(x), layer(x))


@pytest.mark.parametrize("kv_heads", [6, 3])
def test_it_compiles_without_a_break(kv_heads):
    layer = MultiHeadAttention(D, H, kv_heads=kv_heads, position=Rotary(2))
    x = torch.randn(B, 33, D)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    mask = regard.causal()
    torch.testing.assert_close(compiled(x, mask=mask), layer(x, mask=mask), atol=1e-5, rtol=1e-5)
    lengths = torch.tensor([33, 20, 0])
    visible = (torch.arange(33) < lengths[:, None]).unsqueeze(1)
    torch.testing.assert_close(
        compiled(x, mask=visible), layer(x, mask=visible), atol=1e-5, rtol=1e-5
    )


def test_it_exports():
    layer = MultiHeadAttention(D, H, kv_heads=3, position=ALiBi(H)).eval()
    x = torch.randn(B, 33, D)
    program = torch.export.export(layer, (x,))
    torch.testing.assert_close(program.module()(x), layer(x), atol=1e-5, rtol=1e-5)


def test_dropout_falls_on_the_weights_in_train_mode_only():
    layer = MultiHeadAttention(D, H, dropout=0.5, output_projection=False).double()
    x = double(B, 31, D)
    q, k, v = (
        projection(x).unflatten(-1, (H, -1)).transpose(1, 2)
        for projection in (layer.query_projection, layer.key_projection, layer.value_projection)
    )
    torch.manual_seed(0)
    dropped = regard.attend(q, k, v, dropout=0.5).transpose(1, 2).flatten(-2)
    torch.manual_seed(0)
    torch.testing.assert_close(layer(x), dropped)
    assert not torch.equal(layer(x), layer(x))
    torch.testing.assert_close(layer.eval()(x), regard.attend(q, k, v).transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("kv_heads", [8, 2])
def test_with_dropout_and_padding_no_flop_is_spent_on_the_reference_path(kv_heads):
    batch, heads, length, width = 4, 8, 128, 16
    q = torch.randn(batch, kv_heads, heads // kv_heads, length, width)
    k = torch.randn(batch, kv_heads, 1, length, width)
    mask = regard.lengths([128, 100, 50, 3])
    for dropout, own in ((0.1, mask), (0.0, mask), (0.1, mask & regard.causal())):
        assert regard.explain(q, k, k, mask=own, dropout=dropout).path != "reference"


@settings(max_examples=25)
@given(
    heads=st.sampled_from([(1, 1), (2, 1), (3, 3), (4, 2), (6, 2)]),
    batch=st.integers(1, 3),
    queries=st.integers(1, 5),
    keys=st.integers(1, 7),
    seed=st.integers(0, 2**16),
)
def test_any_shape_and_mask_agrees_with_the_equation(heads, batch, queries, keys, seed):
    torch.manual_seed(seed)
    many, few = heads
    layer = MultiHeadAttention(many * 2, many, kv_heads=few).double()
    query, key = double(batch, queries, many * 2), double(batch, keys, many * 2, seed=1)
    visible = torch.rand(batch, many, queries, keys) > 0.5
    expected, weights = longhand(layer, query, key, key, visible)
    output, map = layer(query, key, mask=visible, return_map=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(map.dense(), weights)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: MultiHeadAttention(10, 3), "multiple of heads.*try dim=9 or dim=12"),
        (lambda: MultiHeadAttention(12, 6, kv_heads=4), "multiple of kv_heads.*1, 2, 3, 6"),
        (lambda: MultiHeadAttention(12, 0), "heads must be 1 or more, got 0"),
        (lambda: MultiHeadAttention(12, 3, key_dim=-1), "key_dim must be 1 or more"),
        (lambda: MultiHeadAttention(12, 3, dropout=1.0), "dropout is a probability"),
        (lambda: MultiHeadAttention(12, 3, score="scaled"), "did you mean 'scaled_dot'"),
        (lambda: MultiHeadAttention(12, 3, score="additive"), "regard.Additive"),
        (lambda: MultiHeadAttention(12, 3, score=["dot", "dot"]), "2 scores for 3 heads"),
        (lambda: MultiHeadAttention(12, 3, score=["dot", "dot", "dto"]), "did you mean 'dot'"),
        (lambda: MultiHeadAttention(12, 3, position=ALiBi(4)), "use ALiBi\\(3\\)"),
        (lambda: MultiHeadAttention(12, 3, position=Rotary(6)), "use Rotary\\(4\\)"),
        (
            lambda: MultiHeadAttention(12, 3, out_dim=5, output_projection=False),
            "leave out out_dim=5",
        ),
    ],
)
def test_a_bad_configuration_is_told_what_to_change(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_position_without_hooks_is_refused():
    with pytest.raises(TypeError, match=r"derive it from regard\.layers\.Position"):
        MultiHeadAttention(12, 3, position=object())


def test_bad_inputs_are_told_what_to_change():
    layer = MultiHeadAttention(D, H, key_dim=11)
    x = torch.randn(B, N, D)
    with pytest.raises(ValueError, match=r"query should be \(batch, length, 12\), got \(7, 12\)"):
        layer(x[0])
    with pytest.raises(ValueError, match=r"key should be \(batch, length, 11\)"):
        layer(x)
    with pytest.raises(TypeError, match="bool tensor"):
        MultiHeadAttention(D, H)(x, mask=torch.zeros(N, N))
    layer = MultiHeadAttention(D, H)
    with pytest.raises(ValueError, match="memory_mask needs a memory"):
        layer.start(B, memory_mask=regard.lengths([1, 2, 3]))
    with pytest.raises(ValueError, match="multiple of it, got 4"):
        layer.start(4, x)
    with pytest.raises(ValueError, match="differs from query to query"):
        layer.start(B, x, regard.causal())
    with pytest.raises(ValueError, match="does not fit a memory of 3 sentences"):
        layer.start(B, x, regard.lengths([1, 2]))
    with pytest.raises(ValueError, match="state is of 2 sequences"):
        layer.step(x[:, :1], layer.start(2))
