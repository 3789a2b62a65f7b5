"""Exhibits of `regard.layers`: every mechanism that is a module, on the same sentence pair."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard import layers
from regard.attention import Attended, attend, attend_linear
from regard.visual.gallery.exhibit import SOURCE, TARGET, WIDTH, Exhibit, Timed, train, words
from regard.visual.gallery.exhibit import WORD_WIDTH as D


class Labelled(NamedTuple):
    """A map (M, N) with its labels."""

    weights: Tensor
    rows: Sequence[str]
    columns: Sequence[str]


Maker = Callable[[], Labelled]


def exhibits() -> Iterator[Exhibit]:
    """Every layer; what has parameters to learn is trained on the sentence."""
    for number, (key, code, draw, timed) in enumerate(_table()):
        torch.manual_seed(20 + number)
        with torch.no_grad():
            shown = draw()
        yield Exhibit(key, code, *shown, timed)


def _table() -> list[tuple[str, str, Maker, Timed]]:
    return [
        ("local-local-monotonic", "layers.LocalAttention(dim, window=2)", _local,
         lambda n: _timed(n, layers.LocalAttention(WIDTH, 8))),
        ("local-local-predictive",
         "layers.LocalAttention(dim, window=3, center=layers.PredictedCenter(dim))", _predictive,
         lambda n: _timed(n, _predicting(WIDTH))),
        ("local-hard", 'layers.HardAttention(dim, score="scaled_dot")', _hard,
         lambda n: _timed(n, layers.HardAttention(WIDTH).eval())),
        ("several-multi-head-head-0", "layers.MultiHeadAttention(dim, heads=4)", lambda: _head(),
         lambda n: _timed(n, layers.MultiHeadAttention(WIDTH, 4))),
        ("several-grouped-query-head-0", "layers.MultiHeadAttention(dim, heads=4, kv_heads=1)",
         lambda: _head(kv_heads=1),
         lambda n: _timed(n, layers.MultiHeadAttention(WIDTH, 4, kv_heads=1))),
        ("several-multi-dimensional-feature-0", "layers.MultiDimensionalAttention(dim)", _feature,
         lambda n: _timed(n, layers.MultiDimensionalAttention(WIDTH))),
        ("several-differential-head-0", "layers.DifferentialAttention(dim, heads=4)",
         lambda: _previous_word(layers.DifferentialAttention(D, 4)),
         lambda n: _timed(n, layers.DifferentialAttention(WIDTH, 4))),
        ("several-latent-head-0", "layers.LatentAttention(dim, heads=4, latent=8, rotary=4)",
         lambda: _previous_word(layers.LatentAttention(D, 4, latent=8, rotary=4)),
         lambda n: _timed(n, layers.LatentAttention(WIDTH, 4, latent=16, rotary=8))),
        ("several-pooling-head-0", "layers.PoolingAttention(dim, heads=4, queries=3)", _pooled,
         lambda n: _timed(n, layers.PoolingAttention(WIDTH, 4, queries=3))),
        ("positions-sinusoidal", "layers.PositionalEncoding(dim)", _sinusoids,
         lambda n: _timed(n, layers.PositionalEncoding(WIDTH))),
        ("positions-rotary",
         "layers.MultiHeadAttention(dim, heads, position=layers.Rotary(head_dim))", _rotary,
         lambda n: _timed(n, layers.MultiHeadAttention(WIDTH, 4, position=layers.Rotary(16)))),
        ("positions-alibi", "layers.MultiHeadAttention(dim, heads, position=layers.ALiBi(heads))",
         _alibi,
         lambda n: _timed(n, layers.MultiHeadAttention(WIDTH, 4, position=layers.ALiBi(4)))),
        ("positions-yarn", "layers.Rotary(head_dim, scaling=layers.YaRN(4.0, length=4096))",
         lambda: _rotary(scaling=layers.YaRN(4.0, 32)),
         lambda n: _timed(n, layers.MultiHeadAttention(
             WIDTH, 4, position=layers.Rotary(16, scaling=layers.YaRN(4.0, 512))))),
        ("positions-relative-bias",
         "layers.MultiHeadAttention(dim, heads, position=layers.RelativeBias(heads))", _relative,
         lambda n: _timed(n, layers.MultiHeadAttention(WIDTH, 4, position=layers.RelativeBias(4)))),
        ("efficient-efficient-attention", "regard.attend_linear(q, k, v)",
         lambda: _linear(causal=False), lambda n: _timed(n, attend_linear, inputs=3)),
        ("efficient-efficient-causal", "regard.attend_linear(q, k, v, causal=True)",
         lambda: _linear(causal=True),
         lambda n: _timed(n, partial(attend_linear, causal=True), inputs=3)),
        ("efficient-gated-delta-recurrence",
         "regard.attend_linear(q, k, v, causal=True, log_decay=g, beta=b)", _recurrence,
         lambda n: _timed(n, partial(attend_linear, causal=True, log_decay=-0.1), inputs=3)),
        ("two-co-attention", "layers.CoAttention(left_dim, right_dim, hidden)", _co,
         lambda n: _timed(n, layers.CoAttention(WIDTH, WIDTH, WIDTH), inputs=2)),
        ("two-hierarchical", "layers.HierarchicalAttention(dim)", _hierarchical, _timed_document),
        ("two-graph-attention", "layers.GraphAttention(in_dim, out_dim)", _graph, _timed_graph),
        ("two-memory-neural-turing-machine", "layers.MemoryAttention(dim, slots=12, width=8)",
         _memory, _timed_memory),
    ]  # fmt: skip


# ------------------------------------------------------------------ maps


def _sentences() -> tuple[Tensor, Tensor]:
    source, target = words()
    return target.unsqueeze(0), source.unsqueeze(0)


def _aligned(map: Any) -> Labelled:
    return Labelled(map.dense().flatten(0, -3)[0], TARGET, SOURCE)


def _local() -> Labelled:
    _, source = _sentences()
    layer = layers.LocalAttention(D, 2, score="scaled_dot")
    return Labelled(layer(source / 3, source, return_map=True).map.dense()[0], SOURCE, SOURCE)


class _RightPosition(torch.nn.Module):
    def forward(self, query: Tensor, length: Tensor) -> Tensor:
        source, _ = words()
        best = (query @ source.T).argmax(-1, keepdim=True)
        return best.to(query.dtype)


def _predictive() -> Labelled:
    target, source = _sentences()
    layer = layers.LocalAttention(D, 3, score="scaled_dot", center=_RightPosition())
    return _aligned(layer(target / 3, source, return_map=True).map)


def _hard() -> Labelled:
    target, source = _sentences()
    layer = layers.HardAttention(D, score="scaled_dot").eval()
    return _aligned(layer(target, source, return_map=True).map)


def _head(**more: Any) -> Labelled:
    target, source = _sentences()
    layer = layers.MultiHeadAttention(D, 4, **more)
    train(layer.parameters(), lambda: layer(target, source, return_map=True).map.dense()[0, 0])
    return _aligned(layer(target, source, return_map=True).map)


def _feature() -> Labelled:
    target, source = _sentences()
    layer = layers.MultiDimensionalAttention(D)

    def weights() -> Tensor:
        return _aligned(layer(target, source, return_map=True).map).weights

    train(layer.parameters(), weights)
    return Labelled(weights(), TARGET, SOURCE)


PREVIOUS = [max(0, word - 1) for word in range(len(SOURCE))]


def _previous_word(layer: torch.nn.Module) -> Labelled:
    """The first head of self-attention that is trained to attend to the word before."""
    x = words().source.unsqueeze(0)

    def weights() -> Tensor:
        return layer(x, return_map=True).map.dense()[0, 0].clamp(min=0)

    train(layer.parameters(), weights, goal=PREVIOUS)
    return Labelled(weights(), SOURCE, SOURCE)


def _pooled() -> Labelled:
    layer, x = layers.PoolingAttention(D, 4, queries=3), words().source.unsqueeze(0)

    def weights() -> Tensor:
        return layer(x, return_map=True).map.dense()[0, 0]

    found = [SOURCE.index(word) for word in ("agreement", "signed", "1992")]
    train(layer.parameters(), weights, goal=found)
    return Labelled(weights(), ("query 1", "query 2", "query 3"), SOURCE)


def _sinusoids() -> Labelled:
    positions = layers.PositionalEncoding(D)(torch.zeros(1, len(SOURCE), D))
    seen = attend(positions, positions, positions, score="dot", return_map=True).map
    return Labelled(seen.dense()[0], SOURCE, SOURCE)


def _alike() -> Tensor:
    return torch.randn(1, 1, D).expand(1, len(SOURCE), D)


def _rotary(**options: Any) -> Labelled:
    x = layers.Rotary(D, **options).rotate(_alike())
    seen = attend(x, x, x, return_map=True).map
    return Labelled(seen.dense()[0], SOURCE, SOURCE)


def _relative() -> Labelled:
    x, position = _alike(), layers.RelativeBias(1)

    def weights() -> Tensor:
        bias = position.bias(len(SOURCE), len(SOURCE))
        return attend(x, x, x, bias=bias, return_map=True).map.dense()[0]

    train(position.parameters(), weights, goal=PREVIOUS)
    return Labelled(weights(), SOURCE, SOURCE)


def _alibi() -> Labelled:
    x = _alike()
    bias = layers.ALiBi(4).bias(len(SOURCE), len(SOURCE))[0]
    seen = attend(x, x, x, bias=2 * bias, return_map=True).map
    return Labelled(seen.dense()[0], SOURCE, SOURCE)


def _linear(*, causal: bool) -> Labelled:
    _, source = _sentences()
    q, k = 2.5 * source, 2.5 * source
    seen = attend_linear(q, k, source, causal=causal, return_map=True)
    assert isinstance(seen, Attended)
    return Labelled(seen.map.dense()[0], SOURCE, SOURCE)


def _recurrence() -> Labelled:
    _, source = _sentences()
    unit = source / source.norm(dim=-1, keepdim=True)
    nearby = unit + unit.roll(1, dims=1)  # a query is like its own word and the one before
    beta = torch.full((len(SOURCE), 1), 0.9)
    seen = attend_linear(
        nearby / 2, unit, source, causal=True, log_decay=-0.1, beta=beta, return_map=True
    )
    assert isinstance(seen, Attended)
    return Labelled(seen.map.dense()[0].clamp(0, 1), SOURCE, SOURCE)


def _co() -> Labelled:
    target, source = _sentences()
    layer = layers.CoAttention(D, D, D)
    layer.affinity.copy_(torch.eye(D) / D)
    affinity = layer(target, source).affinity
    assert affinity is not None
    return Labelled(affinity.dense()[0].clamp(min=0), TARGET, SOURCE)


def _hierarchical() -> Labelled:
    source, _ = words()
    document = torch.zeros(1, 2, 8, D)
    document[0, 0, :8], document[0, 1, :5] = source[:8], source[8:]
    layer = layers.HierarchicalAttention(D)

    def weights() -> Tensor:
        return layer(document, word_lengths=torch.tensor([[8, 5]])).word_map.dense()[0, :, 0]

    train(layer.parameters(), weights, goal=[1, 2])  # "agreement" and "August"
    first, second = " ".join(SOURCE[:2]) + " …", " ".join(SOURCE[8:10]) + " …"
    return Labelled(weights(), [first, second], [f"word {number}" for number in range(1, 9)])


def _chain(length: int) -> Tensor:
    """Edges between neighbours, both ways, and from each node to itself, (2, E)."""
    here, there = torch.arange(length - 1), torch.arange(1, length)
    edges = torch.stack([torch.cat([here, there]), torch.cat([there, here])])
    return layers.with_self_loops(edges, length)


def _graph() -> Labelled:
    source, _ = words()
    edges, size = _chain(len(SOURCE)), len(SOURCE)
    layer = layers.GraphAttention(D, 8)

    def weights() -> Tensor:
        found = layer(source, edges, return_map=True).map[:, 0]
        return torch.zeros(size, size).index_put((edges[1], edges[0]), found)

    train(layer.parameters(), weights, goal=[min(word + 1, size - 1) for word in range(size)])
    return Labelled(weights(), SOURCE, SOURCE)


def _memory() -> Labelled:
    source, _ = words()
    layer = layers.MemoryAttention(D, slots=12, width=8)

    def weights() -> Tensor:
        state, rows = layer.start(batch=1), []
        for word in source:
            _, state = layer.step(word.unsqueeze(0), state)
            rows.append(state.read_weights[0, 0])
        return torch.stack(rows)

    train(layer.parameters(), weights, goal=[word % 12 for word in range(len(SOURCE))])
    return Labelled(weights(), SOURCE, [f"slot {number}" for number in range(12)])


# ------------------------------------------------------------------ functions to time


def _timed(length: int, function: Callable[..., Any], *, inputs: int = 1) -> Callable[[], Any]:
    x = torch.randn(1, length, WIDTH)
    return lambda: function(*[x] * inputs)


def _predicting(dim: int) -> layers.LocalAttention:
    return layers.LocalAttention(dim, 8, center=layers.PredictedCenter(dim))


def _timed_document(length: int) -> Callable[[], Any]:
    layer = layers.HierarchicalAttention(WIDTH)
    document = torch.randn(1, length // 32, 32, WIDTH)
    return lambda: layer(document)


def _timed_graph(length: int) -> Callable[[], Any]:
    layer = layers.GraphAttention(WIDTH, WIDTH)
    nodes, edges = torch.randn(length, WIDTH), _chain(length)
    return lambda: layer(nodes, edges)


def _timed_memory(length: int) -> Callable[[], Any]:
    layer = layers.MemoryAttention(WIDTH, slots=length, width=WIDTH)
    state, x = layer.start(batch=1), torch.randn(1, WIDTH)
    return lambda: layer.step(x, state)
