"""Random models of attention that is and is not recorded: `missed` names the latter, and no other.

Each leaf is attention that capture records, attention that it cannot, or a part of neither; blocks
around them are named after attention or not, share modules, skip some, and run some twice.
"""

import random
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.layers import EfficientAttention, LocalAttention, MultiHeadAttention
from tests.attack.conftest import Attempts

WIDTH = 6


class Projected(nn.Module):
    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.names = names
        for name in names:
            self.add_module(name, nn.Linear(WIDTH, WIDTH * 3 // len(names)))

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        return torch.cat([getattr(self, name)(x) for name in self.names], -1).chunk(3, -1)


class Kernel(Projected):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*self.project(x))


class Handmade(Projected):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)
        return torch.softmax(q @ k.mT, -1) @ v


class Logarithm(Projected):
    """Weights that no softmax gives."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)
        return torch.log_softmax(q @ k.mT, -1).exp() @ v


class LogarithmAttention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(x @ x.mT, -1).exp() @ x


class TorchSelf(nn.Module):
    """Attention of torch, named after nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x)[0]


class AttentionNorm(nn.LayerNorm):
    """A part of attention, by its name."""


class Block(nn.Module):
    """Runs some of its parts, some of them twice."""

    def __init__(self, parts: list[nn.Module], order: list[int]) -> None:
        super().__init__()
        self.parts, self.order = nn.ModuleList(parts), order

    def forward(self, x: Tensor) -> Tensor:
        for place in self.order:
            x = x + self.parts[place](x)
        return x


class AttentionBlock(Block): ...


NAMES = [("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("to_qkv",), ("wq", "wk", "wv")]
RECORDED = (Kernel, Handmade, TorchSelf, MultiHeadAttention, EfficientAttention, LocalAttention)
MISSED = (Logarithm, LogarithmAttention)
NEITHER = (nn.Linear, AttentionNorm)


def leaf(rng: random.Random) -> nn.Module:
    kind = rng.choice((*RECORDED, *MISSED, *MISSED, *NEITHER))
    if issubclass(kind, Projected):
        return kind(rng.choice(NAMES))
    if kind in (MultiHeadAttention, EfficientAttention):
        return kind(WIDTH, heads=rng.choice([1, 2, 3]))
    if kind is LocalAttention:
        return kind(WIDTH, window=2)
    return kind(WIDTH, WIDTH) if kind is nn.Linear else kind(*[WIDTH] * (kind is AttentionNorm))


def grown(rng: random.Random, depth: int, known: list[nn.Module]) -> nn.Module:
    if known and rng.random() < 0.1:
        return rng.choice(known)  # shared
    if depth == 0 or rng.random() < 0.3:
        known.append(leaf(rng))
        return known[-1]
    parts = [grown(rng, depth - 1, known) for _ in range(rng.randrange(1, 4))]
    order = [rng.randrange(len(parts)) for _ in range(rng.randrange(len(parts) + 2))]
    return rng.choice([Block, AttentionBlock])(parts, order)


def ran(module: nn.Module) -> set[int]:
    """The ids of all modules that run."""
    inside = [module.parts[place] for place in module.order] if isinstance(module, Block) else []
    return {id(module)}.union(*map(ran, inside))


def is_missed(module: nn.Module) -> bool:
    """Whether a module cannot be recorded, or has nothing of attention but its name."""
    attention = (*RECORDED, *MISSED, AttentionBlock)
    parts = [part for part in module.modules() if part is not module]
    is_empty = isinstance(module, AttentionBlock) and not any(
        isinstance(part, attention) for part in parts
    )
    return is_empty or isinstance(module, MISSED)


@pytest.mark.parametrize("grad", [False, True])
def test_missed_is_what_ran_and_cannot_be_recorded(attempts: Attempts, grad: bool) -> None:
    for rng in attempts(40):
        torch.manual_seed(rng.randrange(2**31))
        model = Block([grown(rng, 3, []) for _ in range(2)], [0, 1]).eval()
        x = torch.randn(2, 5, WIDTH)
        running = ran(model)
        named = {name: part for name, part in model.named_modules() if id(part) in running}
        expected = {name for name, part in named.items() if is_missed(part)}
        records = any(isinstance(part, RECORDED) for part in named.values())
        before = [{k: id(v) for k, v in vars(part).items()} for part in model.modules()]
        with torch.set_grad_enabled(grad), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plain = model(x)
            with regard.capture(model) as trace:
                captured = model(x)
            after = model(x)
        assert torch.equal(plain, captured)
        assert torch.equal(plain, after)
        assert {each.name for each in trace.missed} == expected
        assert len(trace.missed) == len(expected)
        assert bool(trace.calls) == records
        texts = [str(each.message) for each in caught]
        assert len(texts) == (1 if expected or not records else 0)
        assert before == [{k: id(v) for k, v in vars(part).items()} for part in model.modules()]
