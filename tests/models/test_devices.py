"""Every model and layer: a training step on the meta device, and under autocast."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import layers
from regard.core.mask import causal, lengths
from regard.core.score import BUILDERS
from regard.decoding.scores import OutputScorer
from regard.models import KINDS, build
from regard.models.classifier import DocumentClassifier
from regard.models.graph import GraphAttentionNetwork
from regard.models.hard import HardReader
from regard.models.image import ImageClassifier
from regard.models.pair import AlignedPairClassifier, PairClassifier
from regard.models.recommender import Factorisation, Recommender
from regard.models.turing import LongShortTermMemory, NeuralTuringMachine

B, S, T, SOURCE, TARGET, DIM = 2, 7, 5, 13, 17, 12
RECURRENT = {"source_vocabulary": SOURCE, "target_vocabulary": TARGET, "embedding": 5, "hidden": 6}
ATTENTIVE = {"source_vocabulary": SOURCE, "target_vocabulary": TARGET, "dim": DIM, "heads": 3}
ATTENTIVE |= {"hidden": 11, "layers": 2, "dropout": 0.2}

Case = tuple[Callable[[], nn.Module], Callable[[nn.Module], Tensor]]


def ids(*shape: int, high: int = SOURCE) -> Tensor:
    return torch.randint(high, shape)


def seq2seq(kind: str, **options: Any) -> Case:
    sizes = ATTENTIVE if kind == "transformer" else RECURRENT

    def run(model: Any) -> Tensor:
        return model.output(model(ids(B, S), torch.tensor([S, 4]), ids(B, T, high=TARGET)))

    return lambda: build(kind, **(sizes | options)), run


def of(make: Callable[[], nn.Module], run: Callable[[Any], Any]) -> Case:
    return make, run


def recommend(model: Any) -> Tensor:
    users, profiles = ids(B, high=5), torch.rand(B, 3)
    return model(users, profiles, ids(B, 4, high=7), torch.tensor([4, 2])).scores


EDGES = [[0, 1, 2, 3], [1, 0, 3, 2]]
CASES: dict[str, Case] = {
    **{kind: seq2seq(kind) for kind in KINDS if kind != "language" and kind != "gnmt"},
    "gnmt": seq2seq("gnmt", layers=3),
    **{f"luong, {score}": seq2seq("luong", score=score) for score in BUILDERS},
    **{
        f"bahdanau, {score}": seq2seq("bahdanau", score=score, bidirectional="none")
        for score in BUILDERS
    },
    "luong, fed": seq2seq("luong", feeding=True, layers=2, cell="lstm", dropout=0.2),
    "luong, local": seq2seq("luong", attention="local", window=2),
    "luong, predictive": seq2seq("luong", attention="predictive", window=2),
    "luong, hard": seq2seq("luong", attention="hard"),
    "luong, gumbel": seq2seq("luong", attention="gumbel"),
    "luong, sparsemax": seq2seq("luong", attention="sparsemax"),
    "luong, entmax15": seq2seq("luong", attention="entmax15"),
    "transformer, rotary": seq2seq("transformer", position="rotary", norm="pre"),
    "transformer, alibi": seq2seq("transformer", position="alibi", kv_heads=1),
    "transformer, learned": seq2seq("transformer", position="learned"),
    "transformer, efficient": seq2seq("transformer", encoder_attention="efficient"),
    "language": of(
        lambda: build("language", vocabulary=SOURCE, dim=DIM, heads=3, hidden=11, layers=2),
        lambda m: m.output(m(ids(B, T))),
    ),
    "document classifier": of(
        lambda: DocumentClassifier(SOURCE, 3, dim=5, hidden=4, word_dropout=0.1, presence=True),
        lambda m: m(ids(B, 3, S), torch.full((B, 3), 4), torch.tensor([3, 2])).logits,
    ),
    "pair classifier": of(
        lambda: PairClassifier(
            3, left_vocabulary=SOURCE, right_cells=5, dim=DIM, heads=3, phrase=3
        ),
        lambda m: m(ids(B, S), torch.tensor([S, 4]), torch.rand(B, 4, 5), torch.tensor([4, 4]))[0],
    ),
    "aligned pair": of(
        lambda: AlignedPairClassifier(3, left_vocabulary=SOURCE, right_vocabulary=11, dim=DIM),
        lambda m: m(ids(B, S), torch.tensor([S, 4]), ids(B, 5, high=11), torch.tensor([3, 5]))[0],
    ),
    "alternating pair": of(
        lambda: PairClassifier(
            3,
            left_vocabulary=SOURCE,
            right_vocabulary=11,
            dim=DIM,
            heads=3,
            attention="alternating",
        ),
        lambda m: m(ids(B, S), torch.tensor([S, 4]), ids(B, 4, high=11), torch.tensor([4, 3]))[0],
    ),
    "graph": of(
        lambda: GraphAttentionNetwork(5, 3, hidden=4, heads=2),
        lambda m: m(torch.rand(4, 5), torch.tensor(EDGES)),
    ),
    "image": of(
        lambda: ImageClassifier((4, 6), 3, patch=2, dim=DIM, heads=3),
        lambda m: m(torch.rand(B, 4, 6)).logits,
    ),
    "image, regions": of(
        lambda: ImageClassifier((4, 8), 3, patch=1, dim=DIM, heads=3, region=2, attention="dot"),
        lambda m: m(torch.rand(B, 4, 8)).logits,
    ),
    **{
        f"hard reader, {estimator}": of(
            lambda estimator=estimator: HardReader(5, 3, estimator=estimator),
            lambda m: m(ids(B, S, high=5), ids(B, S, high=3), torch.tensor([S, 4])).logits,
        )
        for estimator in ("straight_through", "gumbel", "reinforce")
    },
    "turing machine": of(
        lambda: NeuralTuringMachine(3, 5, hidden=6, slots=7, width=4),
        lambda m: m(torch.rand(B, T, 3)).logits,
    ),
    "lstm": of(
        lambda: LongShortTermMemory(3, 5, hidden=6, layers=2),
        lambda m: m(torch.rand(B, T, 3)).logits,
    ),
    "recommender": of(
        lambda: Recommender(
            5, torch.rand(5, 3), torch.rand(7, 4), dim=6, heads=2, self_attention=1
        ),
        lambda m: (
            m(ids(B, high=5), torch.rand(B, 3), ids(B, 4, high=7), torch.tensor([4, 2])).scores
        ),
    ),
    "factorisation": of(
        lambda: Factorisation(5, 7, dim=6),
        lambda m: (
            m(ids(B, high=5), torch.rand(B, 3), ids(B, 4, high=7), torch.tensor([4, 2])).scores
        ),
    ),
    "multi-head": of(
        lambda: layers.MultiHeadAttention(DIM, 3, dropout=0.1),
        lambda m: m(torch.rand(B, S, DIM), mask=causal() & lengths(torch.tensor([S, 4]))),
    ),
    "multi-head, grouped": of(
        lambda: layers.MultiHeadAttention(DIM, 6, kv_heads=2, position=layers.ALiBi(6)),
        lambda m: m(torch.rand(B, S, DIM), mask=torch.ones(B, S, S, dtype=torch.bool)),
    ),
    "differential": of(
        lambda: layers.DifferentialAttention(DIM, 3),
        lambda m: m(torch.rand(B, S, DIM), mask=causal() & lengths(torch.tensor([S, 4]))),
    ),
    "latent": of(
        lambda: layers.LatentAttention(DIM, 3, latent=5, rotary=2),
        lambda m: m(torch.rand(B, S, DIM), mask=causal() & lengths(torch.tensor([S, 4]))),
    ),
    "pooling": of(
        lambda: layers.PoolingAttention(DIM, 3, queries=2, dropout=0.1),
        lambda m: m(torch.rand(B, S, DIM), mask=lengths(torch.tensor([S, 4]))),
    ),
    "drop-in for torch": of(
        lambda: layers.TorchMultiheadAttention(DIM, 3, batch_first=True),
        lambda m: m(*(torch.rand(B, S, DIM) for _ in range(3)), need_weights=False)[0],
    ),
    "efficient": of(
        lambda: layers.EfficientAttention(DIM, 3),
        lambda m: m(torch.rand(B, S, DIM), mask=causal() & lengths(torch.tensor([S, 4]))),
    ),
    "multi-dimensional": of(
        lambda: layers.MultiDimensionalAttention(DIM),
        lambda m: m(torch.rand(B, S, DIM), mask=lengths(torch.tensor([S, 4]))),
    ),
    "source to token": of(
        lambda: layers.SourceToToken(DIM),
        lambda m: m(torch.rand(B, S, DIM), mask=torch.tensor([S, 4])),
    ),
    "local": of(
        lambda: layers.LocalAttention(DIM, 2, dropout=0.1),
        lambda m: m(torch.rand(B, S, DIM), mask=lengths(torch.tensor([S, 4]))),
    ),
    "local, predictive": of(
        lambda: layers.LocalAttention(DIM, 2, center=layers.PredictedCenter(DIM)),
        lambda m: m(torch.rand(B, S, DIM), mask=lengths(torch.tensor([S, 4]))),
    ),
    "graph layer, mask": of(
        lambda: layers.GraphAttention(5, 4, heads=2, score="gatv2"),
        lambda m: m(torch.rand(4, 5), mask=torch.ones(4, 4, dtype=torch.bool)),
    ),
    "graph layer, edges": of(
        lambda: layers.GraphAttention(5, 4, heads=2, score="gatv2"),
        lambda m: m(torch.rand(4, 5), torch.tensor(EDGES)),
    ),
}


def train_step(name: str, device: str) -> Tensor:
    """The output of a forward pass, after a backward pass and a step of the optimizer."""
    make, run = CASES[name]
    with torch.device(device):
        model = make().train()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        output = run(model)
        output.float().square().mean().backward()
        optimizer.step()
    return output


@pytest.mark.parametrize("name", CASES)
def test_a_training_step_runs_on_the_meta_device_with_the_same_shape(name):
    output = train_step(name, "meta")
    assert output.is_meta
    assert output.shape == train_step(name, "cpu").shape


SEARCHED = [name for name in CASES if name.partition(",")[0] in {*KINDS} - {"language"}]


@pytest.mark.parametrize("name", SEARCHED)
def test_a_step_of_every_search_runs_on_the_meta_device(name):
    """Encode, start, step, the best tokens; reordering beams is indexing, which needs values."""
    with torch.device("meta"), torch.inference_mode():
        model = CASES[name][0]().eval()
        state = model.start(model.encode(ids(B, S), torch.tensor([S, 4])))
        scorer = OutputScorer(model.output, torch.tensor([0, 1]))
        tokens = torch.full((B,), 1)
        for _ in range(2):
            features, state = model.step(tokens, state)
            _, best = scorer.top(features, 3, None)
            tokens = best[:, 0]
        sums = scorer(features).logits.double().softmax(-1).cumsum(-1)  # what sampling adds
        assert (sums <= 0.5).sum(-1).is_meta
    assert best.shape == (B, 3)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # of RMSNorm
@pytest.mark.parametrize("name", CASES)
def test_a_training_step_runs_under_autocast(name):
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.isfinite(train_step(name, "cpu")).all()


def test_every_kind_of_model_and_every_attention_layer_is_here():
    assert set(KINDS) <= set(CASES)
    made = {type(part) for make, _ in CASES.values() for part in make().modules()}
    public = {getattr(layers, name) for name in layers.__all__}
    modules = {each for each in public if isinstance(each, type) and issubclass(each, nn.Module)}
    attention = {each for each in modules if "Attention" in each.__name__}
    assert attention - made <= {layers.AttentionWeight, layers.Attention, layers.TimeAttention}
