"""Hard attention: each query takes the value of a single key.

A choice has no gradient. Three estimators make it trainable:

| estimator | the choice in training | its gradient |
|---|---|---|
| `straight_through` | the best key | that of softmax(s) |
| `HardGumbel(τ)` | a sample of softmax(s) | that of softmax((s + g) / τ), the sample's relaxation |
| `choose` and `reinforce_loss` | a sample of softmax(s) | reward · ∇ log p, unbiased |

In eval mode all of them take the best key; without gradients only that value is read.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Attended, attend
from regard.attention.dispatch import Computation, dispatch, weigh
from regard.attention.observer import observed
from regard.core import noise
from regard.core.blocks import by_rows
from regard.core.lower import lower
from regard.core.map import AttentionMap
from regard.core.mask import Mask
from regard.core.names import layer_score
from regard.core.normalize import hard as straight_through
from regard.core.request import Request, make_request
from regard.core.score import Score
from regard.layers.checks import check_sizes
from regard.paths.additive import with_kernel
from regard.paths.blockwise import row_elements


class HardGumbel:
    """A one-hot sample of softmax(s), with the gradient of its relaxation softmax((s + g) / τ).

    The straight-through Gumbel-softmax estimator of Jang et al. 2017, section 2.2.

    Args:
        temperature: τ, above zero; the lower, the smaller the bias and the larger the variance
    """

    needs_noise = True

    def __init__(self, temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        self.temperature = temperature

    def __call__(self, scores: Tensor, mask: Tensor | None, uniform: Tensor) -> Tensor:
        return straight_through(_perturbed(scores, uniform) / self.temperature, mask)


class Choice(NamedTuple):
    """The choice of each query, and its probability."""

    output: Tensor  # (..., M, width), the chosen values
    chosen: Tensor  # (..., M), indices of keys; −1 for a query without a visible key
    log_probability: Tensor  # (..., M), of the choice
    entropy: Tensor  # (..., M), of the distribution over keys, in nats


class HardAttention(nn.Module):
    """Attend to one key: the best one, or a sample.

        s ~ Multinoulli(softmax(score(q, k))),  output = v_s

    Xu et al. 2015, section 4.1.

    >>> layer = HardAttention(5)
    >>> x = torch.randn(2, 3, 5)
    >>> output, map = layer(x, torch.randn(2, 7, 5), return_map=True)
    >>> map.dense().sum(-1).unique()
    tensor([1.], grad_fn=<Unique2Backward0>)
    >>> choice = layer.choose(x)
    >>> choice.output.shape, choice.log_probability.shape
    (torch.Size([2, 3, 5]), torch.Size([2, 3]))

    Args:
        dim: width of the queries
        key_dim: width of the keys, `dim` if None
        score: a name, a module or a callable; "general" if None
        estimator: a normalizer (scores, mask) -> one-hot weights for training, such as
            `straight_through` or `HardGumbel(temperature)`
    """

    def __init__(
        self,
        dim: int,
        *,
        key_dim: int | None = None,
        score: str | Score | None = None,
        estimator: Callable[..., Tensor] = straight_through,
    ) -> None:
        super().__init__()
        key_dim = dim if key_dim is None else key_dim
        check_sizes(dim=dim, key_dim=key_dim)
        if not callable(estimator):
            raise TypeError(
                "estimator should be a normalizer such as straight_through or HardGumbel(1.0), got "
                f"{estimator!r}; for REINFORCE call choose() and reinforce_loss()"
            )
        self.dim, self.key_dim = dim, key_dim
        self.score = layer_score("general" if score is None else score, dim, key_dim)
        self.estimator = estimator

    @observed
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        return_map: bool = False,
    ) -> Tensor | Attended:
        """The chosen value of each query, with the gradient of the estimator.

        Args:
            query: (..., M, dim)
            key: (..., N, key_dim), the query if not given
            value: (..., N, width), the key if not given
            mask: a Mask, or bool with True = may attend, (..., M, N)
            return_map: also return the lazy map (..., M, N), one-hot rows

        Returns: (..., M, width), or `Attended(output, map)`
        """
        key = query if key is None else key
        value = key if value is None else value
        self._check(query, key)
        normalize = self.estimator if self.training else straight_through
        return attend(
            query,
            key,
            value,
            score=self.score,
            mask=mask,
            normalize=normalize,
            return_map=return_map,
        )

    @observed
    def choose(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
    ) -> Choice:
        """A sample in train mode, or the best key in eval mode, with its log-probability.

        The output has no gradient with respect to the choice; use `reinforce_loss`.

        Args: those of `forward`
        """
        key = query if key is None else key
        value = key if value is None else value
        self._check(query, key)
        request = make_request(query, key, value, score=self.score, mask=mask)
        choices: list[Choice] = []  # of the one computation, besides its output

        def compute(request: Request) -> Tensor:
            choices.append(self._choose(request))
            return choices[0].output

        how = Computation("choice", compute, lambda request: _map(request, choices[0]), weigh)
        dispatch(request, how)
        return choices[0]

    def _choose(self, request: Request) -> Choice:
        request = with_kernel(lower(request))
        query, leading = request.query, request.leading
        N, width = request.keys, request.value.shape[-1]
        if not N:
            empty = query.new_zeros(*leading, request.queries)
            index = torch.full_like(empty, -1, dtype=torch.long)
            return Choice(query.new_zeros(*empty.shape, width), index, empty, empty)
        seed = noise.draw_seed(query.device) if self.training else None
        query = query.expand(*leading, *query.shape[-2:])
        with torch.no_grad():
            index = by_rows(partial(_best, request, seed), query, elements=row_elements(request))
        likely = by_rows(
            partial(_likelihood, request), query, index, elements=row_elements(request)
        )
        blind = index < 0
        taken = index.clamp(min=0).expand(*index.shape[:-1], width)
        output = request.value.expand(*leading, N, width).gather(-2, taken).masked_fill(blind, 0.0)
        log_probability, entropy = likely.unbind(-1)
        return Choice(output, index.squeeze(-1), log_probability, entropy)

    def _check(self, query: Tensor, key: Tensor) -> None:
        for name, x, width in (("query", query, self.dim), ("key", key, self.key_dim)):
            if x.dim() < 2 or x.shape[-1] != width:
                raise ValueError(
                    f"{name} should be (..., length, {width}), got {tuple(x.shape)}; the width of "
                    "a query is dim, that of a key is key_dim"
                )

    def extra_repr(self) -> str:
        return f"{self.dim}, key_dim={self.key_dim}"


def _best(request: Request, seed: Tensor | None, query: Tensor, rows: slice) -> Tensor:
    """The best visible key of some rows, −1 if none is; with a seed, a sample. (..., r, 1)"""
    scores, mask = request.scores(query, None), request.visible(rows)
    if seed is not None:
        size = (request.queries, request.keys)
        uniform = noise.uniform(seed, request.leading, rows, size).to(scores.dtype)
        scores = _perturbed(scores, uniform)  # its argmax is a sample of softmax(scores)
    if mask is None:
        return scores.argmax(-1, keepdim=True)
    index = scores.masked_fill(~mask, -math.inf).argmax(-1, keepdim=True)
    return index.masked_fill(~mask.any(-1, keepdim=True), -1)


def _map(request: Request, choice: Choice) -> AttentionMap:
    """One at each chosen key, zeros elsewhere and where nothing was chosen."""

    def rows(some: slice) -> Tensor:
        key = torch.arange(request.keys, device=request.key.device)
        return (choice.chosen[..., some].unsqueeze(-1) == key).to(request.value.dtype)

    return AttentionMap(rows, None, (*request.leading, *request.size))


def _likelihood(request: Request, query: Tensor, index: Tensor, rows: slice) -> Tensor:
    """The log-probability of a choice and the entropy of its distribution, (..., rows, 2)."""
    scores, mask = request.scores(query, None), request.visible(rows)
    if mask is not None:
        blind = ~mask.any(-1, keepdim=True)
        scores = scores.masked_fill(~(mask | blind), -math.inf)
    log_weights = scores.log_softmax(-1)
    log_probability = log_weights.gather(-1, index.clamp(min=0))
    hidden = log_weights == -math.inf  # 0 · log 0 is 0
    entropy = -(log_weights.exp() * log_weights.masked_fill(hidden, 0.0)).sum(-1, keepdim=True)
    found = torch.cat((log_probability, entropy), dim=-1)
    return found if mask is None else found.masked_fill(blind, 0.0)


def _perturbed(scores: Tensor, uniform: Tensor) -> Tensor:
    """Scores with Gumbel noise g = −log(−log u)."""
    return scores - (-uniform.log()).log()


class MovingBaseline(nn.Module):
    """The expected reward: a moving average. Xu et al. 2015, section 4.1.

        b_k = 0.9 · b_(k−1) + 0.1 · mean reward

    Call it once per training step. The average is a buffer of the module.

    >>> baseline = MovingBaseline(decay=0.5)
    >>> baseline(torch.tensor([1.0, 3.0])), baseline(torch.tensor([4.0]))
    (tensor(0.), tensor(1.))

    Args:
        decay: the weight of the old average, 0.9 in the paper
    """

    value: Tensor

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay must be at least 0 and below 1, got {decay}")
        self.decay = decay
        self.register_buffer("value", torch.zeros(()))

    def forward(self, reward: Tensor) -> Tensor:
        """The baseline before this reward, a scalar; in train mode it is then updated."""
        before = self.value.clone()
        if self.training:
            self.value.lerp_(reward.detach().mean().to(self.value.dtype), 1.0 - self.decay)
        return before


def reinforce_loss(
    log_probability: Tensor,
    reward: Tensor,
    *,
    baseline: Tensor | float = 0.0,
    entropy: Tensor | None = None,
    entropy_weight: float = 0.0,
) -> Tensor:
    """A loss whose gradient raises the probability of rewarded choices.

        −mean[ (R − b) · log p(choice) + λ · H ]

    Williams 1992; with the entropy term, Xu et al. 2015, eq. 12. Add it to the loss of the task.

    >>> log_probability = torch.tensor([-1.0, -2.0], requires_grad=True)
    >>> loss = reinforce_loss(log_probability, reward=torch.tensor([1.0, 0.0]), baseline=0.5)
    >>> loss.backward(); log_probability.grad
    tensor([-0.2500,  0.2500])

    Args:
        log_probability: of the choices, (batch, ...)
        reward: R, higher is better, with the first dimensions of `log_probability`: the choices
            of a sequence share its reward
        baseline: b, broadcast to the reward
        entropy: H, like `log_probability`; it encourages exploration
        entropy_weight: λ

    Returns: a scalar
    """
    if reward.shape != log_probability.shape[: reward.dim()]:
        raise ValueError(
            f"reward should be {tuple(log_probability.shape)} like log_probability, or its first "
            f"dimensions, got {tuple(reward.shape)}"
        )
    advantage = (reward - baseline).detach()
    advantage = advantage.reshape(*reward.shape, *(1,) * (log_probability.dim() - reward.dim()))
    loss = -(advantage * log_probability).mean()
    if entropy is not None:
        loss = loss - entropy_weight * entropy.mean()
    return loss
