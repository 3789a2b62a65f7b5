"""Co-attention against Lu et al. 2016, eq. 3-7, and Parikh et al. 2016, eq. 1-2, written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.layers import AlignedCoAttention, AlternatingCoAttention, CoAttention

B, L, R, LEFT, RIGHT, H = 3, 7, 11, 5, 3, 13
LEFT_LENGTHS, RIGHT_LENGTHS = torch.tensor([7, 4, 0]), torch.tensor([2, 11, 5])
BOTH = pytest.mark.parametrize("kind", [CoAttention, AlternatingCoAttention])


def make(kind):
    torch.manual_seed(0)
    return kind(LEFT, RIGHT, H).double()


def pairs():
    torch.manual_seed(1)
    left = torch.randn(B, L, LEFT, dtype=torch.float64)
    return left, torch.randn(B, R, RIGHT, dtype=torch.float64)


def parallel(layer, left, right):
    """Eq. 3-5 for one pair, Q (d, T) and V (d, N) as columns."""
    Q, V = left.T, right.T
    W_b, W_q, W_v = layer.affinity, layer.left_projection.weight, layer.right_projection.weight
    C = torch.tanh(Q.T @ W_b @ V)  # (T, N)
    H_v = torch.tanh(W_v @ V + (W_q @ Q) @ C)
    H_q = torch.tanh(W_q @ Q + (W_v @ V) @ C.T)
    a_v = torch.softmax(layer.right_query @ H_v, dim=-1)  # (1, N)
    a_q = torch.softmax(layer.left_query @ H_q, dim=-1)
    return (a_q @ left)[0], (a_v @ right)[0], a_q, a_v, C


def alternating(layer, left, right):
    """Eq. 6-7 for one pair, the three steps in turn."""

    def attended(X, W_x, w_hx, guide):
        H = torch.tanh(W_x @ X.T + guide.unsqueeze(-1))
        a = torch.softmax(w_hx @ H, dim=-1)
        return a @ X, a

    summary, score_v, score_q = layer.summary, layer.right_score, layer.left_score
    zero = torch.zeros(H, dtype=torch.float64)
    s, _ = attended(left, summary.projection.weight, summary.query[0], zero)
    v, a_v = attended(right, score_v.key_weight, score_v.vector, score_v.query_weight @ s)
    q, a_q = attended(left, score_q.key_weight, score_q.vector, score_q.query_weight @ v)
    return q, v, a_q, a_v


def test_parallel_is_the_equations_of_the_paper():
    layer = make(CoAttention)
    left, right = pairs()
    found = layer(left, right)
    for b in range(B):
        q, v, a_q, a_v, C = parallel(layer, left[b], right[b])
        torch.testing.assert_close(found.left[b], q)
        torch.testing.assert_close(found.right[b], v)
        torch.testing.assert_close(found.left_map[b], a_q)
        torch.testing.assert_close(found.right_map[b], a_v)
        torch.testing.assert_close(found.affinity[b], C)


def test_each_glimpse_is_a_co_attention_with_its_own_vectors():
    torch.manual_seed(0)
    layer = CoAttention(LEFT, RIGHT, H, glimpses=2).double()
    one = make(CoAttention)
    left, right = pairs()
    found = layer(left, right, left_mask=LEFT_LENGTHS, right_mask=RIGHT_LENGTHS)
    assert found.left_map.shape == (B, 2, L)
    for glimpse in range(2):
        weights = layer.state_dict()
        for name in ("left_query", "right_query"):
            weights[name] = weights[name][glimpse : glimpse + 1]
        one.load_state_dict(weights)
        alone = one(left, right, left_mask=LEFT_LENGTHS, right_mask=RIGHT_LENGTHS)
        torch.testing.assert_close(found.left.view(B, 2, LEFT)[:, glimpse], alone.left)
        torch.testing.assert_close(found.right.view(B, 2, RIGHT)[:, glimpse], alone.right)
        torch.testing.assert_close(found.right_map[:, glimpse], alone.right_map[:, 0])
    with pytest.raises(ValueError, match="glimpses must be 1 or more, got 0"):
        CoAttention(LEFT, RIGHT, H, glimpses=0)


def test_alternating_is_the_equations_of_the_paper():
    layer = make(AlternatingCoAttention)
    left, right = pairs()
    found = layer(left, right)
    for b in range(B):
        q, v, a_q, a_v = alternating(layer, left[b], right[b])
        torch.testing.assert_close(found.left[b], q)
        torch.testing.assert_close(found.right[b], v)
        torch.testing.assert_close(found.left_map[b, 0], a_q)
        torch.testing.assert_close(found.right_map[b, 0], a_v)
    assert found.affinity is None


@settings(max_examples=12)
@given(st.data())
def test_any_padding_agrees_with_one_pair_at_a_time(data):
    left, right = pairs()
    lefts = data.draw(st.lists(st.integers(1, L), min_size=B, max_size=B))
    rights = data.draw(st.lists(st.integers(1, R), min_size=B, max_size=B))
    for kind, equations in ((CoAttention, parallel), (AlternatingCoAttention, alternating)):
        layer = make(kind)
        found = layer(left, right, left_mask=torch.tensor(lefts), right_mask=torch.tensor(rights))
        for b, (of_left, of_right) in enumerate(zip(lefts, rights, strict=True)):
            q, v, *_ = equations(layer, left[b, :of_left], right[b, :of_right])
            torch.testing.assert_close(found.left[b], q)
            torch.testing.assert_close(found.right[b], v)
            assert not found.left_map[b, 0, of_left:].any()
            assert not found.right_map[b, 0, of_right:].any()


def test_affinity_is_zero_where_either_side_is_padding():
    found = make(CoAttention)(*pairs(), left_mask=LEFT_LENGTHS, right_mask=RIGHT_LENGTHS)
    affinity = found.affinity.dense()
    assert affinity.shape == (B, L, R)
    for b in range(B):
        real = affinity[b, : LEFT_LENGTHS[b], : RIGHT_LENGTHS[b]]
        assert real.ne(0).all()
        assert affinity[b].count_nonzero() == real.numel()


def test_padding_may_have_gaps():
    layer = make(CoAttention)
    left, right = pairs()
    kept = torch.tensor([0, 2, 3, 6])
    real = torch.zeros(B, L, dtype=torch.bool)
    real[:, kept] = True
    found, expected = layer(left, right, left_mask=real), layer(left[:, kept], right)
    torch.testing.assert_close(found.left, expected.left)
    torch.testing.assert_close(found.right, expected.right)


@BOTH
def test_lengths_booleans_and_masks_say_the_same(kind):
    layer = make(kind)
    left, right = pairs()
    expected = layer(left, right, left_mask=LEFT_LENGTHS, right_mask=RIGHT_LENGTHS)
    booleans = layer(
        left,
        right,
        left_mask=torch.arange(L) < LEFT_LENGTHS.unsqueeze(-1),
        right_mask=torch.arange(R) < RIGHT_LENGTHS.unsqueeze(-1),
    )
    masks = layer(
        left,
        right,
        left_mask=regard.lengths(LEFT_LENGTHS),
        right_mask=regard.lengths(RIGHT_LENGTHS),
    )
    for found in (booleans, masks):
        torch.testing.assert_close(found.left, expected.left)
        torch.testing.assert_close(found.right, expected.right)


@BOTH
def test_what_padding_holds_reaches_neither_output_nor_gradient(kind):
    layer = make(kind)
    hide_left = (torch.arange(L) >= LEFT_LENGTHS.unsqueeze(-1)).unsqueeze(-1)
    hide_right = (torch.arange(R) >= RIGHT_LENGTHS.unsqueeze(-1)).unsqueeze(-1)

    def run(left, right):
        left, right = left.clone().requires_grad_(), right.clone().requires_grad_()
        found = layer(left, right, left_mask=LEFT_LENGTHS, right_mask=RIGHT_LENGTHS)
        loss = found.left.square().sum() + found.right.square().sum()
        return found, torch.autograd.grad(loss, [left, right, *layer.parameters()])

    left, right = pairs()
    clean, expected = run(left, right)
    for rubbish in (torch.nan, torch.inf, 1e300):
        dirty, gradients = run(
            left.masked_fill(hide_left, rubbish), right.masked_fill(hide_right, rubbish)
        )
        assert dirty.left.equal(clean.left)
        assert dirty.right.equal(clean.right)
        assert dirty.left_map.dense().equal(clean.left_map.dense())
        assert all(map(torch.equal, gradients, expected))
    assert not expected[0][hide_left.expand_as(left)].any()
    assert not expected[1][hide_right.expand_as(right)].any()


@BOTH
def test_an_empty_side_gives_zeros_and_the_other_side_goes_on(kind):
    layer = make(kind)
    found = layer(*pairs(), left_mask=LEFT_LENGTHS, right_mask=RIGHT_LENGTHS)
    assert not found.left[2].any()
    assert not found.left_map[2].any()
    assert found.right[2].any()
    torch.testing.assert_close(found.right_map[2].sum(), torch.tensor(1.0, dtype=torch.float64))


@BOTH
def test_gradients_pass_gradcheck(kind):
    layer = make(kind)
    left, right = pairs()
    left, right = left[:, :3].requires_grad_(), right[:, :5].requires_grad_()

    def run(left, right, *_):
        found = layer(left, right, left_mask=LEFT_LENGTHS.clamp(max=3))
        return found.left, found.right

    assert torch.autograd.gradcheck(run, (left, right, *layer.parameters()), fast_mode=True)


@BOTH
def test_autocast_keeps_the_dtype_of_the_inputs(kind):
    layer = make(kind).float()
    left, right = pairs()
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(left.float(), right.float(), left_mask=LEFT_LENGTHS)
    assert found.left.dtype == found.right.dtype == torch.float32


@BOTH
def test_pairs_of_a_batch_do_not_influence_each_other(kind):
    torch.manual_seed(2)
    layer = kind(17, 19, 23)
    left, right = torch.randn(4, 67, 17), torch.randn(4, 83, 19)
    masks = {
        "left_mask": torch.tensor([67, 13, 29, 5]),
        "right_mask": torch.tensor([3, 83, 31, 17]),
    }
    others = [0, 2, 3]
    before = layer(left, right, **masks)
    left[1], right[1] = torch.randn(67, 17), torch.randn(83, 19)
    after = layer(left, right, **masks)
    assert after.left[others].equal(before.left[others])
    assert after.right[others].equal(before.right[others])
    assert not after.left[1].equal(before.left[1])


def test_large_inputs_agree_with_the_equations_in_value_and_gradient():
    torch.manual_seed(3)
    layer = CoAttention(17, 19, 23).double()
    left = torch.randn(1, 301, 17, dtype=torch.float64, requires_grad=True)
    right = torch.randn(1, 293, 19, dtype=torch.float64, requires_grad=True)
    inputs = [left, right, *layer.parameters()]
    found = layer(left, right)
    q, v, *_ = parallel(layer, left[0], right[0])
    torch.testing.assert_close(found.left[0], q)
    gradients = torch.autograd.grad(found.left.sum() + found.right.square().sum(), inputs)
    expected = torch.autograd.grad(q.sum() + v.square().sum(), inputs)
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-9)


@BOTH
def test_long_inputs_need_no_memory_for_every_pair_and_feature(kind, peak_memory):
    torch.manual_seed(0)
    layer = kind(64, 64, 64)
    left = torch.randn(1, 2048, 64, requires_grad=True)
    right = torch.randn(1, 2048, 64, requires_grad=True)
    layer(left[:, :100], right[:, :100]).left.sum().backward()  # whatever is loaded once
    with peak_memory() as peak:
        found = layer(left, right, left_mask=torch.tensor([2000]))
        (found.left.sum() + found.right.sum()).backward()
    assert peak[0] < 150e6  # every pair and feature: 1074 MB


def test_the_maps_make_the_contexts():
    for kind in (CoAttention, AlternatingCoAttention):
        left, right = pairs()
        found = make(kind)(left, right, left_mask=LEFT_LENGTHS, right_mask=RIGHT_LENGTHS)
        torch.testing.assert_close((found.left_map.dense() @ left).squeeze(-2), found.left)
        torch.testing.assert_close((found.right_map.dense() @ right).squeeze(-2), found.right)


def test_an_image_and_a_text_attend_to_each_other():
    image, text = torch.randn(2, RIGHT, 4, 5), torch.randn(2, L, LEFT)
    found = make(CoAttention).float()(text, image.flatten(2).mT)
    assert found.affinity[0].unflatten(-1, (4, 5)).shape == (L, 4, 5)


@BOTH
def test_bad_arguments_raises_a_helpful_error(kind):
    with pytest.raises(ValueError, match="right_dim must be 1 or more, got 0"):
        kind(5, 0, 3)
    layer = make(kind)
    left, right = pairs()
    with pytest.raises(ValueError, match=r"left should be \(batch, length, 5\)"):
        layer(right, left)
    with pytest.raises(ValueError, match=r"an image .* is given as image\.flatten\(2\)\.mT"):
        layer(left, right.mT.unflatten(-1, (11, 1)))
    with pytest.raises(ValueError, match="same batch size, got 3 and 2"):
        layer(left, right[:2])
    with pytest.raises(ValueError, match=r"right_mask, how many .* got \(2,\)"):
        layer(left, right, right_mask=torch.tensor([1, 2]))
    with pytest.raises(ValueError, match=r"left_mask, which .* should be \(3, 7\)"):
        layer(left, right, left_mask=torch.ones(B, R, dtype=torch.bool))
    with pytest.raises(TypeError, match="left_mask should be bool"):
        layer(left, right, left_mask=torch.ones(B, L))
    with pytest.raises(ValueError, match="has 8 keys but there are only 7"):
        layer(left, right, left_mask=torch.tensor([8, 1, 1]))
    with pytest.raises(ValueError, match="does not fit"):
        layer(left, right, left_mask=regard.lengths([1, 2]))


# ------------------------------------------------------------------ aligned, Parikh et al. 2016


def test_each_position_has_the_average_of_what_it_aligns_with():
    torch.manual_seed(0)
    layer = AlignedCoAttention(LEFT, RIGHT).double()
    left, right = pairs()
    lefts, rights = torch.tensor([7, 4, 5]), torch.tensor([2, 11, 5])
    found = layer(left, right, left_mask=lefts, right_mask=rights)
    for b in range(B):
        q, v = left[b, : lefts[b]], right[b, : rights[b]]
        e = q @ layer.affinity @ v.T / RIGHT**0.5
        there, back = e.softmax(1), e.softmax(0).T
        torch.testing.assert_close(found.left_map.dense()[b, : lefts[b], : rights[b]], there)
        torch.testing.assert_close(found.right_map.dense()[b, : rights[b], : lefts[b]], back)
        torch.testing.assert_close(found.left[b, : lefts[b]], there @ v)
        torch.testing.assert_close(found.right[b, : rights[b]], back @ q)


def test_padding_aligns_with_nothing_and_an_empty_side_gives_zeros():
    layer = AlignedCoAttention(LEFT, RIGHT).double()
    hide_left = (torch.arange(L) >= LEFT_LENGTHS.unsqueeze(-1)).unsqueeze(-1)

    def run(left, right):
        left = left.clone().requires_grad_()
        found = layer(left, right, left_mask=LEFT_LENGTHS, right_mask=RIGHT_LENGTHS)
        loss = found.left[~hide_left.squeeze(-1)].square().sum() + found.right.square().sum()
        return found, torch.autograd.grad(loss, [left, *layer.parameters()])

    left, right = pairs()
    clean, expected = run(left, right)
    dirty, gradients = run(left.masked_fill(hide_left, torch.nan), right)
    assert dirty.right.equal(clean.right)
    assert all(map(torch.equal, gradients, expected))
    assert not expected[0][hide_left.expand_as(left)].any()
    assert not clean.right_map.dense()[1, :, 4:].any()
    assert not clean.right[2].any()  # the left side of the third pair is empty
    with pytest.raises(ValueError, match=r"left should be \(batch, length, 5\)"):
        layer(right, left)
