"""What holds for every layer: dtypes, copies, compiling, exporting, and nothing stays on it."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import regard
from regard.core.normalize import Normalizer
from regard.layers import (
    ALiBi,
    AlignedCoAttention,
    AlternatingCoAttention,
    CoAttention,
    DecoderLayer,
    DifferentialAttention,
    EfficientAttention,
    FeedForward,
    HardAttention,
    HierarchicalAttention,
    LatentAttention,
    MemoryAttention,
    MultiDimensionalAttention,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    RelativeBias,
    Rotary,
    SourceToToken,
)
from tests.layers.local.kinds import DIM, KINDS

B, M, N, D = 3, 33, 67, 12


class Case(NamedTuple):
    """A layer, its inputs, and its outputs."""

    make: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]
    others: tuple[Tensor, ...]  # of the same shapes
    call: Callable[..., Any] = lambda layer, *inputs: layer(*inputs)  # to a tensor, or several
    maps: Callable[..., Any] | None = None  # likewise, to a map
    more: Callable[..., Any] | None = None  # other ways to use it
    tolerance: float = 20.0  # of a dtype, in multiples of its epsilon
    grows: int = 2  # the leading dimensions of inputs that may have any size


def double(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def padded(make: Callable[[], nn.Module], causal: bool = False, **options: Any) -> Case:
    """Self-attention of sequences of different lengths."""

    def mask(lengths: Tensor) -> regard.Mask:
        return regard.lengths(lengths) & regard.causal() if causal else regard.lengths(lengths)

    return Case(
        make,
        (double(B, N, D), torch.tensor([N, 13, 5])),
        (double(B, N, D, seed=1), torch.tensor([5, 61, 17])),
        lambda layer, x, lengths: layer(x, mask=mask(lengths)),
        lambda layer, x, lengths: layer(x, mask=mask(lengths), return_map=True).map,
        **options,
    )


def co(kind: type[nn.Module], *hidden: int) -> Case:
    return Case(
        lambda: kind(5, 3, *hidden),
        (double(B, 7, 5), double(B, 11, 3), torch.tensor([7, 4, 0]), torch.tensor([2, 11, 5])),
        (double(B, 7, 5), double(B, 11, 3), torch.tensor([0, 4, 7]), torch.tensor([5, 11, 2])),
        lambda layer, left, right, *lengths: layer(
            left, right, left_mask=lengths[0], right_mask=lengths[1]
        )[:2],
        lambda layer, left, right, *lengths: layer(left, right, left_mask=lengths[0]).left_map,
        tolerance=30,
    )


def steps(layer: Any, x: Tensor, *_: Tensor) -> None:
    layer.step(x[:, :1], layer.start(len(x)))


def unrolled(layer: MemoryAttention, controller: Tensor) -> Tensor:
    state, reads = layer.start(len(controller)), []
    for now in controller.unbind(1):
        read, state = layer.step(now, state)
        reads.append(read)
    return torch.stack(reads, 1)


def grown(case: Case) -> tuple[Tensor, ...]:
    """The inputs of a case with one sentence more, and two positions more."""
    return tuple(
        torch.cat((x, x[:, :2]), 1) if case.grows > 1 and x.dim() > 1 else x
        for x in (torch.cat((x, x[:1])) for x in case.inputs)
    )


def decoder(order: type[PostNorm]) -> Case:
    return Case(
        lambda: DecoderLayer(D, 6, 11, add_norm=order, position=Rotary(2)),
        (double(B, M, D), double(B, 29, D, seed=1)),
        (double(B, M, D, seed=2), double(B, 29, D, seed=3)),
        more=lambda layer, x, memory: layer.step(x[:, :1], layer.start(B, memory)),
        tolerance=64,
    )


WORDS = torch.tensor([[7, 2, 1, 3, 5], [4, 0, 6, 0, 0], [0, 0, 0, 0, 0]])
X, Y = double(B, M, D), double(B, M, D, seed=1)
CASES = {
    "co, parallel": co(CoAttention, 13),
    "co, alternating": co(AlternatingCoAttention, 13),
    "co, aligned": co(AlignedCoAttention),
    "decoder, post-norm": decoder(PostNorm),
    "decoder, pre-norm": decoder(PreNorm),
    "differential": padded(lambda: DifferentialAttention(D, 3), more=steps),
    "efficient": padded(lambda: EfficientAttention(D, 2), more=steps),
    "efficient, causal": padded(lambda: EfficientAttention(D, 2), causal=True),
    "feed-forward": Case(lambda: FeedForward(D, 11), (X,), (Y,)),
    "hard": Case(
        lambda: HardAttention(D).eval(), (X,), (Y,), more=lambda layer, x: layer.choose(x)
    ),
    "hierarchical": Case(
        lambda: HierarchicalAttention(11, 13),
        (double(B, 5, 7, 11), WORDS, torch.tensor([5, 3, 0])),
        (double(B, 5, 7, 11), WORDS.flip(1), torch.tensor([0, 3, 5])),
        lambda layer, x, words, sentences: (
            layer(x, word_lengths=words, sentence_lengths=sentences).document
        ),
        lambda layer, x, words, sentences: layer(x, word_lengths=words).word_map,
    ),
    "latent": padded(lambda: LatentAttention(D, 3, latent=5, rotary=2), more=steps, tolerance=64),
    **{
        f"local, {kind}": Case(
            lambda kind=kind: KINDS[kind](2).eval(),
            (double(B, 300, DIM),),  # bfloat16 cannot count that far
            (double(B, 300, DIM, seed=1),),
            maps=lambda layer, x: layer(x, return_map=True).map,
            more=steps,
        )
        for kind in KINDS
    },
    "memory": Case(
        lambda: MemoryAttention(11, slots=7, width=5, reads=3, writes=2),
        (double(2, 3, 11),),
        (double(2, 3, 11, seed=1),),
        unrolled,
        tolerance=128,  # float16: an empty slot of 1e-6 is subnormal
        grows=1,
    ),
    "multi-dimensional": padded(lambda: MultiDimensionalAttention(D)),
    "multi-head": padded(lambda: MultiHeadAttention(D, 6, position=Rotary(2)), causal=True),
    "multi-head, relative bias": padded(
        lambda: MultiHeadAttention(D, 6, position=RelativeBias(6)), causal=True
    ),
    "multi-head, sinks": padded(
        lambda: MultiHeadAttention(D, 6, normalize=Normalizer(sink=nn.Parameter(torch.zeros(6))))
    ),
    "multi-head, sparse, sinks": padded(
        lambda: MultiHeadAttention(
            D, 6, normalize=Normalizer("sparsemax", sink=nn.Parameter(torch.zeros(6)))
        ),
    ),
    "multi-head, grouped": Case(
        lambda: MultiHeadAttention(D, 6, kv_heads=3, position=ALiBi(6)),
        (X, torch.arange(M) < torch.tensor([[M], [20], [0]])),
        (Y, torch.arange(M) < torch.tensor([[7], [0], [M]])),
        lambda layer, x, real: layer(x, mask=real.unsqueeze(1)),
        more=steps,
        tolerance=64,
    ),
    "source to token": padded(lambda: SourceToToken(D)),
}
OF_DTYPE = ("hard", "differential")  # another choice, and RMSNorm's epsilon, depend on the dtype
EVERY = pytest.mark.parametrize("name", CASES)


class Called(nn.Module):
    """The call of a case as a module."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.call = case.make().double(), case.call

    def forward(self, *inputs: Tensor) -> Any:
        return self.call(self.layer, *inputs)


@pytest.mark.parametrize("name", [name for name in CASES if name not in OF_DTYPE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_gives_its_own(name, dtype):
    case = CASES[name]
    layer = Called(case).to(dtype)
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in case.inputs]
    found, maps = layer(*inputs), case.maps and case.maps(layer.layer, *inputs)
    assert maps is None or maps.dense().dtype == dtype
    exact = layer.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
    many = isinstance(found, tuple)
    for one, other in zip(found if many else [found], exact if many else [exact], strict=True):
        assert one.dtype == dtype
        error = (one.double() - other).abs()
        worst = error.mean() if name.startswith("local") else error.max()  # a centre may move
        limit = case.tolerance * torch.finfo(dtype).eps * other.abs().max().clamp(min=1.0)
        assert worst < limit


@EVERY
def test_copies_and_saved_weights_agree_and_nothing_stays_on_the_layer(name):
    case = CASES[name]
    module = Called(case)
    layer = module.layer
    before = {name: set(vars(part)) for name, part in layer.named_modules()}
    values = {key: value for key, value in vars(layer).items() if not key.startswith("_")}
    expected = module(*case.inputs)
    if case.maps is not None:
        case.maps(layer, *case.inputs).dense()
    if case.more is not None:
        case.more(layer, *case.inputs)
    assert {name: set(vars(part)) for name, part in layer.named_modules()} == before
    assert {key: value for key, value in vars(layer).items() if not key.startswith("_")} == values
    other = Called(case._replace(make=lambda: _changed(case.make())))
    other.load_state_dict(module.state_dict())
    for same in (copy.deepcopy(module), other):
        torch.testing.assert_close(same(*case.inputs), expected, rtol=0, atol=0)


def _changed(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.constant_(parameter, 7.0)
    return layer


def compiled(module: nn.Module, inputs: tuple[Tensor, ...], case: Case) -> Callable[..., Any]:
    return torch.compile(module, backend="aot_eager", fullgraph=True)


def compiled_for_any_size(
    module: nn.Module, inputs: tuple[Tensor, ...], case: Case
) -> Callable[..., Any]:
    return torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=True)


def exported(module: nn.Module, inputs: tuple[Tensor, ...], case: Case) -> Callable[..., Any]:
    return torch.export.export(module, inputs).module()


def exported_for_any_size(
    module: nn.Module, inputs: tuple[Tensor, ...], case: Case
) -> Callable[..., Any]:
    sizes = [dict.fromkeys(range(min(case.grows, x.dim())), Dim.DYNAMIC) for x in inputs]
    return torch.export.export(module, inputs, dynamic_shapes=(tuple(sizes),)).module()


GRAPHS = [compiled, exported, compiled_for_any_size, exported_for_any_size]
ANY_SIZE = (compiled_for_any_size, exported_for_any_size)
QUICK = ("multi-head", "multi-head, relative bias", "multi-head, grouped")
# torch.export makes constants of some of their sizes; compiled for any size they are right.
ONE_SIZE = ("differential", "efficient, causal", "memory", "multi-dimensional")


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        pytest.param(name, graph, marks=[pytest.mark.slow] * (graph in ANY_SIZE))
        if name not in QUICK
        else (name, graph)
        for name in CASES
        for graph in GRAPHS
        if graph is not exported_for_any_size or name not in ONE_SIZE
    ],
)
def test_a_graph_gives_what_the_layer_gives(name, graph):
    case = CASES[name]
    torch.compiler.reset()
    module = Called(case)
    call = graph(module, case.inputs, case)
    for inputs in (case.inputs, grown(case) if graph in ANY_SIZE else case.others):
        torch.testing.assert_close(call(*inputs), module(*inputs))
