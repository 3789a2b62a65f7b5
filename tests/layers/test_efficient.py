"""Efficient attention against Shen et al. 2018 (arXiv 1812.01243), written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.layers import EfficientAttention

B, M, N, D, H, K, V, OUT = 3, 5, 7, 10, 2, 11, 13, 3


def make(**options):
    torch.manual_seed(0)
    return EfficientAttention(D, H, **options).double()


def tokens(*shape):
    torch.manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64)


def equations(layer, query, key, value, visible):
    """One sequence, head by head and query by query: Σ_f ρ_q(q)_f Σ_j ρ_k(k)_jf v_j, then W_O."""
    Q, K, V = (
        layer.query_projection(query),
        layer.key_projection(key),
        layer.value_projection(value),
    )
    width = D // H
    contexts, maps = [], []
    for h in range(H):
        part = slice(h * width, (h + 1) * width)
        rows, context = [], []
        for i in range(len(query)):
            seen = visible[i].nonzero().flatten()
            row = torch.zeros(len(key), dtype=torch.float64)
            if len(seen):
                rho_q = torch.softmax(Q[i, part], dim=-1)  # over the features
                rho_k = torch.softmax(K[seen, part], dim=0)  # over the positions
                row = row.index_put((seen,), rho_k @ rho_q)
            rows.append(row)
            context.append(row @ V[:, part])
        contexts.append(torch.stack(context))
        maps.append(torch.stack(rows))
    return layer.output_projection(torch.cat(contexts, -1)), torch.stack(maps)


def triangle(queries, keys):
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_the_equation_of_the_paper(bias):
    layer = make(key_dim=K, value_dim=V, out_dim=OUT, bias=bias)
    query, key, value = tokens(B, M, D), tokens(B, N, K), tokens(B, N, V)
    output, map = layer(query, key, value, return_map=True)
    assert output.shape == (B, M, OUT)
    assert map.shape == (B, H, M, N)
    for b in range(B):
        everything = torch.ones(M, N, dtype=torch.bool)
        expected, weights = equations(layer, query[b], key[b], value[b], everything)
        torch.testing.assert_close(output[b], expected)
        torch.testing.assert_close(map.dense()[b], weights)
    torch.testing.assert_close(map.dense().sum(-1), torch.ones(B, H, M, dtype=torch.float64))


@settings(max_examples=12)
@given(st.data())
def test_any_lengths_agree_with_one_sequence_at_a_time(data):
    counts = data.draw(st.lists(st.integers(0, N), min_size=2, max_size=3))
    causal = data.draw(st.booleans())
    layer, x = make(), tokens(len(counts), N, D)
    mask = regard.lengths(counts)
    output, map = layer(x, mask=mask & regard.causal() if causal else mask, return_map=True)
    for b, count in enumerate(counts):
        visible = (torch.arange(N) < count).expand(N, N)
        visible = visible & triangle(N, N) if causal else visible
        expected, weights = equations(layer, x[b], x[b], x[b], visible)
        torch.testing.assert_close(output[b], expected)
        torch.testing.assert_close(map.dense()[b], weights)


def test_causal_queries_that_are_fewer_than_keys_are_the_last_ones():
    layer = make(key_dim=K)
    query, key = tokens(B, M, D), tokens(B, N, K)
    output = layer(query, key, mask=regard.causal())
    for b in range(B):
        expected, _ = equations(layer, query[b], key[b], key[b], triangle(M, N))
        torch.testing.assert_close(output[b], expected)
    assert layer(query, key, mask=regard.causal(offset=N - M)).equal(output)


def test_masks_that_are_the_same_for_all_queries_are_taken_in_any_form():
    layer, x = make(), tokens(B, N, D)
    count = torch.tensor([N, 3, 0])
    real = torch.arange(N) < count.unsqueeze(-1)
    expected = layer(x, mask=regard.lengths(count) & regard.causal())
    for mask in (
        real.unsqueeze(1),  # (B, 1, N)
        regard.visible(real.unsqueeze(1)),
        regard.from_torch_mha(key_padding_mask=~real),
    ):
        assert layer(x, mask=regard.causal() & mask).equal(expected)
    first = torch.arange(N) < 4
    torch.testing.assert_close(layer(x, mask=first), layer(x, x[:, :4]))
    both = layer(x, mask=regard.lengths(count) & first)
    torch.testing.assert_close(both[1:2], layer(x[1:2], x[1:2, :3]))


def test_the_gradient_is_that_of_the_equation():
    layer = make(key_dim=K, value_dim=V, out_dim=OUT)
    query, key, value = (
        x.requires_grad_() for x in (tokens(B, M, D), tokens(B, N, K), tokens(B, N, V))
    )
    inputs = [query, key, value, *layer.parameters()]
    found = layer(query, key, value, mask=regard.causal()).square().sum()
    expected = sum(
        equations(layer, query[b], key[b], value[b], triangle(M, N))[0].square().sum()
        for b in range(B)
    )
    gradients = torch.autograd.grad(found, inputs)
    for gradient, other in zip(gradients, torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(gradient, other)


# ------------------------------------------------------------------ decoding


def decoded(layer, x, state):
    steps = []
    for t in range(x.shape[1]):
        y, state = layer.step(x[:, t : t + 1], state)
        assert y.shape == (len(x), 1, layer.output_projection.out_features)
        steps.append(y)
    return torch.cat(steps, 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_steps_give_the_causal_pass_position_by_position(dtype):
    layer, x = make(out_dim=OUT).to(dtype), tokens(B, 23, D).to(dtype)
    found, expected = decoded(layer, x, layer.start(B)), layer(x, mask=regard.causal())
    tolerance = 20 * torch.finfo(dtype).eps
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_steps_over_a_memory_give_the_pass_over_it():
    layer = make(key_dim=K)
    x, memory, count = tokens(B, M, D), tokens(B, N, K), torch.tensor([N, 3, 0])
    torch.testing.assert_close(decoded(layer, x, layer.start(B, memory)), layer(x, memory))
    expected = layer(x, memory, mask=regard.lengths(count))
    for mask in (count, torch.arange(N) < count.unsqueeze(-1), regard.lengths(count)):
        memory[1, 3:] = torch.nan
        found = decoded(layer, x, layer.start(B, memory, mask))
        torch.testing.assert_close(found, expected)


def test_beams_of_a_sentence_share_its_memory():
    layer, x, memory = make(), tokens(2 * B, M, D), tokens(B, N, D)
    mask = torch.tensor([N, 3, 1])
    found = decoded(layer, x, layer.start(2 * B, memory, mask))
    expected = layer(
        x, memory.repeat_interleave(2, 0), mask=regard.lengths(mask.repeat_interleave(2))
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("with_memory", [False, True])
def test_beams_take_their_past_along(with_memory):
    layer, x, memory = make(), tokens(B, M, D), tokens(B, N, D)
    state = layer.start(B, memory) if with_memory else layer.start(B)
    for t in range(3):
        _, state = layer.step(x[:, t : t + 1], state)
    index = torch.tensor([2, 0, 0, 1, 2])
    found, _ = layer.step(x[index, 3:4], state.reorder(index))
    if with_memory:
        expected = layer(x[index], memory[index])
    else:
        expected = layer(x[index], mask=regard.causal())
    torch.testing.assert_close(found, expected[:, 3:4])


def test_a_step_leaves_the_old_state_as_it_was():
    layer, x = make(), tokens(B, 2, D)
    _, state = layer.step(x[:, :1], layer.start(B))
    kept = [part.clone() for part in state.past]
    first, _ = layer.step(x[:, 1:], state)
    again, _ = layer.step(x[:, 1:], state)
    assert first.equal(again)
    assert all(map(torch.equal, state.past, kept))


def test_gradients_flow_through_the_steps():
    layer, x = make(), tokens(B, M, D)
    stepwise = torch.autograd.grad(
        decoded(layer, x, layer.start(B)).square().sum(), layer.parameters()
    )
    whole = torch.autograd.grad(layer(x, mask=regard.causal()).square().sum(), layer.parameters())
    for gradient, other in zip(stepwise, whole, strict=True):
        torch.testing.assert_close(gradient, other)


# ------------------------------------------------------------------ everything else


def test_a_key_hidden_from_all_queries_may_hold_anything():
    layer, query, key = make(key_dim=K), tokens(B, M, D), tokens(B, N, K)

    def run(key):
        key = key.clone().requires_grad_()
        output = layer(query, key, mask=regard.lengths([N, 3, 0]))
        return output, torch.autograd.grad(output.square().sum(), [key, *layer.parameters()])

    clean, expected = run(key)
    for rubbish in (torch.nan, torch.inf):
        key[1, 3:], key[2] = rubbish, rubbish
        dirty, gradients = run(key)
        assert dirty.equal(clean)
        assert all(map(torch.equal, gradients, expected))


def test_no_key_at_all_gives_the_bias_of_the_output():
    layer, x = make(), tokens(B, N, D)
    output, map = layer(x, mask=regard.lengths([0, 0, 0]), return_map=True)
    assert output.equal(layer.output_projection.bias.expand(B, N, D))
    assert not map.dense().any()


@pytest.mark.parametrize("causal", [False, True])
def test_sequences_of_a_batch_do_not_influence_each_other(causal):
    torch.manual_seed(2)
    layer, x = EfficientAttention(24, 3), torch.randn(3, 67, 24)
    mask = regard.lengths([67, 31, 11])
    mask = mask & regard.causal() if causal else mask
    before = layer(x, mask=mask)
    x[1] = torch.randn(67, 24)
    after = layer(x, mask=mask)
    assert after[[0, 2]].equal(before[[0, 2]])
    assert not after[1].equal(before[1])
    for wild in (100 * torch.randn(67, 24), torch.full((67, 24), torch.nan)):
        x[1] = wild  # may change how the others are cut into pieces, but not what they are
        torch.testing.assert_close(layer(x, mask=mask)[[0, 2]], before[[0, 2]])


def test_a_longer_future_does_not_change_the_past():
    layer, x = make(), tokens(B, 67, D)
    torch.testing.assert_close(
        layer(x, mask=regard.causal())[:, :31], layer(x[:, :31], mask=regard.causal())
    )


@pytest.mark.parametrize("mask", [None, regard.causal()])
def test_memory_is_linear_in_the_length(mask, peak_memory):
    torch.manual_seed(0)
    layer, x = EfficientAttention(64, 8), torch.randn(1, 4096, 64, requires_grad=True)
    layer(x[:, :100], mask=mask).sum().backward()  # whatever is loaded once
    with peak_memory() as peak:
        output, map = layer(x, mask=mask, return_map=True)
        output.sum().backward()
        assert map[0, 0, 3000].shape == (4096,)
    assert peak[0] < 100e6  # the maps of all heads: 537 MB


def test_a_bad_configuration_raises_a_helpful_error():
    with pytest.raises(ValueError, match=r"multiple of heads.*try dim=9 or dim=12"):
        EfficientAttention(10, 3)
    with pytest.raises(ValueError, match=r"multiple of heads.*try dim=3 or dim=6"):
        EfficientAttention(4, 3)
    for name in ("key_dim", "value_dim", "out_dim"):
        with pytest.raises(ValueError, match=f"{name} must be 1 or more, got 0"):
            EfficientAttention(4, 2, **{name: 0})
    with pytest.raises(ValueError, match="heads must be 1 or more, got 0"):
        EfficientAttention(4, 0)


def test_bad_inputs_raises_a_helpful_error():
    layer, x = make(key_dim=K), tokens(B, N, D)
    with pytest.raises(ValueError, match=r"key should be \(batch, length, 11\), got \(3, 7, 10\)"):
        layer(x)
    layer = make()
    with pytest.raises(ValueError, match="the same for all queries"):
        layer(x, mask=triangle(N, N))
    with pytest.raises(ValueError, match=r"the same for all queries .* got window\(2, 0\)"):
        layer(x, mask=regard.window(2, 0))
    with pytest.raises(ValueError, match="the same for all queries"):
        layer(x, mask=regard.causal(offset=3))
    with pytest.raises(ValueError, match="does not fit"):
        layer(x, mask=regard.lengths([1, 2]))
    with pytest.raises(ValueError, match=r"one position of each .*\(3, 1, 10\)"):
        layer.step(x, layer.start(B))
    with pytest.raises(ValueError, match=r"one position of each .*\(2, 1, 10\)"):
        layer.step(x[:, :1], layer.start(2))
    with pytest.raises(ValueError, match="has no map, since its state does not hold the keys"):
        layer.step(x[:, :1], layer.start(B), return_map=True)
    with pytest.raises(ValueError, match=r"multiple of 3, .* got 4"):
        layer.start(4, x)
    with pytest.raises(ValueError, match="memory_mask needs a memory"):
        layer.start(B, memory_mask=torch.tensor([1, 2, 3]))
