"""What the parts of a Transformer layer are for: the scale, residuals, positions, projections."""

import math

import torch
from torch import Tensor, nn

from regard.attention import attend, attention_weight
from regard.claims.finding import Chart, Curves, Finding
from regard.core.score import dot, scaled_dot
from regard.layers import FeedForward, MultiHeadAttention, PositionalEncoding

KEYS = 32


def scaling_keeps_the_variance(quick: bool) -> Finding:
    """Variance of q · k, with and without 1/√d, and the gradient that softmax lets through."""
    dims = (4, 64) if quick else (4, 16, 64, 256, 1024)
    generator = torch.Generator().manual_seed(1)
    rows: list[tuple[str | float, ...]] = []
    variance: Curves = {"q·k": [], "q·k/√d": []}
    slopes: Curves = {"q·k": [], "q·k/√d": []}
    for d in dims:
        query, key = (torch.randn(200, KEYS, d, generator=generator) for _ in range(2))
        row: list[str | float] = [d]
        for name, score in (("q·k", dot), ("q·k/√d", scaled_dot)):
            scores = score(query, key)
            weights = attention_weight(scores)
            # the norm of softmax's Jacobian diag(w) − w wᵀ, in the mean over all queries
            square = weights.square()
            norm = square.sum(-1) - 2 * (square * weights).sum(-1) + square.sum(-1).square()
            slope = float(norm.clamp(min=0).sqrt().mean())
            row += [float(scores.var()), slope]
            variance[name].append((d, float(scores.var())))
            slopes[name].append((d, slope))
        rows.append(tuple(row))
    scaled, plain = variance["q·k/√d"][-1][1], variance["q·k"][-1][1]
    lost = slopes["q·k"][-1][1] / slopes["q·k"][0][1]
    return Finding(
        ("d", "var q·k", "softmax gradient", "var q·k/√d", "softmax gradient /√d"),
        rows,
        abs(scaled - 1) < 0.15 and plain > 0.8 * dims[-1] and lost < 0.9,
        f"at d = {dims[-1]} the variance is {scaled:.2f} with the scale and {plain:.0f} without; "
        f"without it the gradient of softmax falls to {lost:.0%} of that at d = {dims[0]}",
        "d",
        [Chart("variance of the scores", variance, log=True), Chart("softmax gradient", slopes)],
    )


class _Block(nn.Module):
    """x + f(Norm(x)) or, without the residual connection, f(Norm(x)), for both sublayers."""

    def __init__(self, dim: int, residual: bool) -> None:
        super().__init__()
        self.sublayers = nn.ModuleList([MultiHeadAttention(dim, 2), FeedForward(dim, 2 * dim)])
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in self.sublayers)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        for sublayer, norm in zip(self.sublayers, self.norms, strict=True):
            change = sublayer(norm(x))
            x = x + change if self.residual else change
        return x


def residuals_keep_the_gradient(quick: bool) -> Finding:
    """The gradient at the input of untrained stacks as they get deeper, geometric mean of seeds."""
    depths, seeds = ((1, 8), 2) if quick else ((1, 2, 4, 8, 16, 32), 5)
    rows: list[tuple[str | float, ...]] = []
    curves: Curves = {"with residuals": [], "without": []}
    for depth in depths:
        for name, residual in (("with residuals", True), ("without", False)):
            logs = [math.log(_input_gradient(depth, residual, seed)) for seed in range(seeds)]
            curves[name].append((depth, math.exp(sum(logs) / seeds)))
        rows.append((depth, *(line[-1][1] for line in curves.values())))
    kept = {name: line[-1][1] / line[0][1] for name, line in curves.items()}
    return Finding(
        ("layers", "gradient with residuals", "without"),
        rows,
        kept["with residuals"] > max(0.5, 2 * kept["without"]),
        f"from {depths[0]} to {depths[-1]} layers the gradient at the input changes by a factor "
        f"of {kept['with residuals']:.2g} with residual connections and of {kept['without']:.2g} "
        "without",
        "layers",
        [Chart("gradient at the input", curves, log=True)],
    )


def _input_gradient(depth: int, residual: bool, seed: int) -> float:
    torch.manual_seed(seed)
    stack = nn.Sequential(*(_Block(32, residual) for _ in range(depth)))
    x = torch.randn(8, 11, 32, requires_grad=True)
    (gradient,) = torch.autograd.grad((stack(x) * torch.randn(8, 11, 32)).sum(), x)
    return float(gradient.norm(dim=-1).mean())


def attention_knows_no_order(quick: bool) -> Finding:
    """How much the outputs change when the input is shuffled and the output shuffled back."""
    torch.manual_seed(1)
    count, dim = (7, 16) if quick else (31, 64)
    attention, positions = MultiHeadAttention(dim, 4), PositionalEncoding(dim)
    x, order = torch.randn(5, count, dim), torch.randperm(count)
    changes = {}
    with torch.no_grad():
        for name, encode in (("no positions", lambda x: x), ("sinusoidal positions", positions)):
            straight, shuffled = attention(encode(x)), attention(encode(x[:, order]))
            difference = (shuffled - straight[:, order]).norm() / straight.norm()
            changes[name] = float(difference)
    without, with_positions = changes.values()
    return Finding(
        ("input", "relative change of the output"),
        list(changes.items()),
        without < 1e-5 and with_positions > 0.05,
        f"shuffling {count} tokens changes the outputs by {without:.0e} without positions and by "
        f"{with_positions:.0%} with them",
    )


def projections_can_lower_a_weight(quick: bool) -> Finding:
    """The weight of a token for itself, whose similarity is the largest of all.

    Learned W_Q and W_K are trained to reconstruct each token's right neighbour, for which a token
    must look away from itself; raw similarity has nothing to train.
    """
    torch.manual_seed(1)
    count, dim, steps = 8, 16, 150 if quick else 500
    x = torch.randn(1, count, dim)
    wanted = x.roll(-1, dims=1)
    _, raw = attend(x, x, x, return_map=True)
    projections = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(2))
    optimizer = torch.optim.Adam(projections.parameters(), lr=1e-2)
    for _ in range(steps):
        query, key = (projection(x) for projection in projections)
        loss = (attend(query, key, x) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        query, key = (projection(x) for projection in projections)
        _, learned = attend(query, key, x, return_map=True)
    own = [float(m.dense()[0].diagonal().mean()) for m in (raw, learned)]
    # row i moved left by one has the weight of neighbour i + 1 on the diagonal
    neighbour = [float(m.dense()[0].roll(-1, dims=1).diagonal().mean()) for m in (raw, learned)]
    return Finding(
        ("weights from", "of the token itself", "of its neighbour"),
        [("raw similarity", own[0], neighbour[0]), ("W_Q and W_K", own[1], neighbour[1])],
        own[0] > 0.5 and own[1] < 0.1,
        f"each token is most similar to itself and gives itself a weight of {own[0]:.2f}; with "
        f"learned projections it is {own[1]:.2g}",
    )
