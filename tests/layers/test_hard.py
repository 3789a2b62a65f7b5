"""Hard attention: what it chooses, what its gradients are, and that each estimator learns."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.core import blocks
from regard.layers import (
    HardAttention,
    HardGumbel,
    MovingBaseline,
    reinforce_loss,
    straight_through,
)

B, M, N, DIM, KEY, VALUE = 3, 5, 7, 5, 7, 11


def double(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return double(B, M, DIM), double(B, N, KEY, seed=1), double(B, N, VALUE, seed=2)


def hard_attention(**options) -> HardAttention:
    return HardAttention(DIM, key_dim=KEY, **options).double()


@pytest.fixture(params=[None, 3], ids=["whole", "blocks"])
def block_size(request, monkeypatch):
    """Once in one block, once with a border every few rows."""
    if request.param:
        monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", request.param * B * N)


# ------------------------------------------------------------------ what it chooses


@pytest.mark.parametrize("estimator", [straight_through, HardGumbel(0.5)])
def test_in_eval_mode_it_is_the_value_of_the_best_visible_key(block_size, estimator):
    layer = hard_attention(estimator=estimator).eval()
    query, key, value = inputs()
    mask = regard.lengths([N, 3, 0])
    with torch.no_grad():
        output, map = layer(query, key, value, mask=mask, return_map=True)
        choice = layer.choose(query, key, value, mask=mask)
    expected = torch.zeros(B, M, VALUE, dtype=torch.float64)
    for b, length in enumerate((N, 3, 0)):
        for i in range(M if length else 0):
            scores = layer.score.scale * query[b, i] @ layer.score.weight @ key[b, :length].T
            expected[b, i] = value[b, scores.argmax()]
            assert choice.chosen[b, i] == scores.argmax()
            assert map.dense()[b, i].tolist() == F.one_hot(scores.argmax(), N).tolist()
            torch.testing.assert_close(choice.log_probability[b, i], scores.log_softmax(-1).max())
    assert torch.equal(output, expected)
    assert torch.equal(choice.output, expected)
    assert (choice.chosen[2] == -1).all()
    assert (map.dense()[2] == 0).all()


def test_at_inference_no_weights_are_made():
    query = torch.randn(2, 64, 8)
    with torch.no_grad():
        plan = regard.explain(query, query, query, score=regard.General(8, 8), normalize="hard")
    assert plan.path == "gather"


def test_training_with_dropout_and_padding_stays_off_the_reference_path():
    query = torch.randn(2, 64, 8)
    for normalize in (straight_through, HardGumbel()):
        plan = regard.explain(
            query,
            query,
            query,
            score=regard.General(8, 8),
            normalize=normalize,
            mask=regard.lengths([64, 9]),
        )
        assert plan.path != "reference"


@pytest.mark.parametrize("kind", ["gumbel", "choose"])
def test_samples_have_the_frequencies_of_the_softmax(kind):
    torch.manual_seed(0)
    layer = HardAttention(DIM, estimator=HardGumbel(0.3)).double()
    query, key = double(1, 1, DIM).expand(1, 20_000, DIM), double(1, N, DIM, seed=1)
    visible = torch.tensor([True] * 5 + [False] * 2)
    if kind == "gumbel":
        chosen = layer(query, key, mask=visible, return_map=True).map.dense().argmax(-1)
    else:
        chosen = layer.choose(query, key, mask=visible).chosen
    found = chosen.flatten().bincount(minlength=N) / chosen.numel()
    scores = (layer.score.scale * query[0, 0] @ layer.score.weight @ key[0].T).masked_fill(
        ~visible, -math.inf
    )
    torch.testing.assert_close(found.double(), scores.softmax(-1).detach(), atol=0.015, rtol=0.0)


def test_a_choice_knows_its_probability_and_entropy(block_size):
    torch.manual_seed(0)
    layer = hard_attention()
    query, key, value = inputs()
    mask = regard.lengths([N, 3, 0]) & regard.causal(offset=0)
    choice = layer.choose(query, key, value, mask=mask)
    visible = mask.dense(M, N, leading=1)
    weights = regard.attention_weight(
        layer.score.scale * query @ layer.score.weight @ key.mT, visible
    )
    for b in range(2):
        for i in range(M):
            row = weights[b, i]
            torch.testing.assert_close(choice.log_probability[b, i], row[choice.chosen[b, i]].log())
            seen = row[visible[b, i]]
            torch.testing.assert_close(choice.entropy[b, i], -(seen * seen.log()).sum())
            assert torch.equal(choice.output[b, i], value[b, choice.chosen[b, i]])
    assert (choice.log_probability[2] == 0).all()
    assert (choice.entropy[2] == 0).all()
    assert (choice.output[2] == 0).all()


# ------------------------------------------------------------------ gradients


def test_the_straight_through_gradient_is_that_of_softmax():
    layer = hard_attention()
    query, key, value = (x.requires_grad_() for x in inputs())
    chosen = layer(query, key, value)
    up = torch.randn_like(chosen)
    found = torch.autograd.grad(chosen, [query, key, layer.score.weight], up)
    soft = regard.attend(query, key, value.detach(), score=layer.score)
    wanted = torch.autograd.grad(soft, [query, key, layer.score.weight], up)
    torch.testing.assert_close(found, wanted)


def test_the_gumbel_gradient_is_that_of_its_own_relaxation():
    layer = hard_attention(estimator=HardGumbel(0.7))
    query, key, value = (x.requires_grad_() for x in inputs())
    torch.manual_seed(0)
    chosen = layer(query, key, value)
    up = torch.randn_like(chosen)
    found = torch.autograd.grad(chosen, [query, key], up)
    torch.manual_seed(0)
    relaxed = regard.attend(
        query, key, value, score=layer.score, normalize=regard.Gumbel(0.7), return_map=True
    )
    wanted = torch.autograd.grad(relaxed.output, [query, key], up)
    torch.testing.assert_close(found, wanted)
    assert torch.equal(chosen, value.gather(1, relaxed.map.topk(1).indices.expand(B, M, VALUE)))


def test_reinforce_is_an_unbiased_gradient_of_the_expected_reward():
    torch.manual_seed(0)
    layer = HardAttention(DIM).double()
    key, rewards = double(1, N, DIM, seed=1), double(N, seed=2)
    query = double(1, 1, DIM).expand(1, 40_000, DIM)
    choice = layer.choose(query, key)
    loss = reinforce_loss(choice.log_probability, rewards[choice.chosen], baseline=rewards.mean())
    (found,) = torch.autograd.grad(loss, layer.score.weight)
    weights = (layer.score.scale * query[:, :1] @ layer.score.weight @ key.mT).softmax(-1)
    (wanted,) = torch.autograd.grad(-(weights @ rewards).sum(), layer.score.weight)
    torch.testing.assert_close(found, wanted, atol=0.02 * wanted.abs().max().item(), rtol=0.0)


def test_gradients_of_a_choice_are_finite_under_masks(block_size):
    layer = hard_attention()
    query, key, value = inputs()
    key[1, 3:], value[1, 3:] = math.nan, math.nan
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    choice = layer.choose(query, key, value, mask=regard.lengths([N, 3, 0]))
    total = choice.output.sum() + choice.log_probability.sum() + choice.entropy.sum()
    assert total.isfinite()
    for gradient in torch.autograd.grad(total, [query, key, value, layer.score.weight]):
        assert gradient.isfinite().all()


# ------------------------------------------------------------------ learning


def marked(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sequences in which one position is marked; its class is the answer.

    Returns: keys (count, 11, 8), values (count, 11, 7), the place and the class
    """
    key = torch.randn(count, 11, 8, generator=generator)
    place = torch.randint(11, (count,), generator=generator)
    classes = torch.randint(7, (count, 11), generator=generator)
    key[..., 0] = 0.0
    key[torch.arange(count), place, 0] = 3.0
    return key, F.one_hot(classes, 7).float(), place, classes[torch.arange(count), place]


@pytest.mark.parametrize("kind", ["straight-through", "gumbel", "reinforce"])
def test_each_estimator_learns_to_find_the_marked_position(kind):
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(0)
    estimator = HardGumbel(1.0) if kind == "gumbel" else straight_through
    layer, reader, baseline = (
        HardAttention(8, estimator=estimator),
        nn.Linear(7, 7),
        MovingBaseline(),
    )
    query = nn.Parameter(torch.randn(1, 1, 8))
    parameters = [query, *layer.parameters(), *reader.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-2)
    for _ in range(150):
        key, value, _, answer = marked(64, generator)
        if kind == "reinforce":
            choice = layer.choose(query.expand(64, 1, 8), key, value)
            task = F.cross_entropy(reader(choice.output[:, 0]), answer, reduction="none")
            reward = -task.detach()
            loss = task.mean() + reinforce_loss(
                choice.log_probability,
                reward,
                baseline=baseline(reward),
                entropy=choice.entropy,
                entropy_weight=0.01,
            )
        else:
            output = layer(query.expand(64, 1, 8), key, value)
            loss = F.cross_entropy(reader(output[:, 0]), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    layer.eval()
    with torch.no_grad():
        key, value, place, answer = marked(1000, generator)
        choice = layer.choose(query.expand(1000, 1, 8), key, value)
        right = reader(choice.output[:, 0]).argmax(-1) == answer
    assert (choice.chosen[:, 0] == place).float().mean() >= 0.99
    assert right.float().mean() >= 0.99


def test_the_baseline_is_a_moving_average_in_train_mode():
    baseline = MovingBaseline(decay=0.9)
    expected = 0.0
    for reward in (1.0, 3.0, -2.0):
        assert baseline(torch.full((5,), reward)).item() == pytest.approx(expected)
        expected = 0.9 * expected + 0.1 * reward
    baseline.eval()
    baseline(torch.tensor([100.0]))
    assert baseline.value.item() == pytest.approx(expected)


def test_one_reward_is_shared_by_a_sequence_of_choices():
    log_probability = torch.randn(B, M, requires_grad=True)
    reward = torch.randn(B)
    loss = reinforce_loss(log_probability, reward, baseline=0.5)
    (gradient,) = torch.autograd.grad(loss, log_probability)
    torch.testing.assert_close(gradient, -(reward[:, None] - 0.5).expand(B, M) / (B * M))
    entropy = torch.rand(B, M)
    more = reinforce_loss(
        log_probability, reward, baseline=0.5, entropy=entropy, entropy_weight=2.0
    )
    torch.testing.assert_close(more, loss - 2 * entropy.mean())


# ------------------------------------------------------------------ as a module


def test_sequences_of_a_batch_do_not_influence_each_other():
    x = torch.randn(B, 33, DIM)
    changed = x.clone()
    changed[1] = torch.randn(33, DIM) * 100
    layer = HardAttention(DIM, estimator=HardGumbel(0.5))
    for call in (layer, lambda x: layer.choose(x).output):
        outputs = []
        for sequences in (x, changed):
            torch.manual_seed(1)
            outputs.append(call(sequences))
        assert torch.equal(outputs[0][[0, 2]], outputs[1][[0, 2]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_comes_out_as_it_went_in(dtype):
    layer = HardAttention(DIM).to(dtype)
    x = torch.randn(B, 33, DIM, dtype=dtype)
    output = layer(x)
    assert output.dtype == dtype
    assert layer.choose(x).output.dtype == dtype
    for row in output.flatten(0, 1):  # a value as it came, not a mixture
        assert (x.flatten(0, 1) == row).all(-1).any()


def test_no_keys_at_all_give_zeros():
    layer = HardAttention(DIM)
    choice = layer.choose(torch.randn(B, M, DIM), torch.randn(B, 0, DIM), torch.randn(B, 0, 2))
    assert choice.output.shape == (B, M, 2)
    assert (choice.chosen == -1).all()


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: HardAttention(0), ValueError, "dim must be 1 or more"),
        (lambda: HardAttention(5, score="dots"), ValueError, "did you mean 'dot'"),
        (lambda: HardAttention(5, estimator="reinforce"), TypeError, "call choose"),
        (lambda: HardGumbel(0.0), ValueError, "temperature must be above 0, got 0.0"),
        (lambda: MovingBaseline(1.0), ValueError, "decay must be at least 0 and below 1"),
        (lambda: HardAttention(5)(torch.zeros(2, 3, 7)), ValueError, "length, 5"),
        (
            lambda: reinforce_loss(torch.zeros(3, 5), torch.zeros(5)),
            ValueError,
            r"reward should be \(3, 5\)",
        ),
    ],
)
def test_a_bad_configuration_raises_a_helpful_error(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()
