"""regard.check finds each broken model of the museum by its own finding, and no sound one."""

import warnings

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.analysis.check import KINDS
from regard.layers import EfficientAttention, MultiHeadAttention
from regard.models.build import PRESETS, build
from regard.models.recommender import Recommender
from tests.analysis.museum import BROKEN, IDS, REAL, SOUND, TEXT, CausalModel, Encoder

B, L, D = 3, 9, 6


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_is_found_by_its_own_finding(name: str) -> None:
    kinds, module, make, inputs = BROKEN[name]
    torch.manual_seed(0)
    report = regard.check(make(), inputs)
    assert {each.kind for each in report.findings} == set(kinds.split())
    own = next(each for each in report.findings if each.kind == kinds.split()[0])
    assert own.module == module
    assert own.value > 0 or own.kind == "order"
    assert own.is_serious is (own.kind != "heads")
    if own.is_serious:
        with pytest.raises(AssertionError, match=rf"\[{own.kind}\] {module}"):
            report.raise_if_any()


@pytest.mark.parametrize("name", SOUND)
def test_the_same_models_without_the_mistake_pass(name: str) -> None:
    make, inputs = SOUND[name]
    torch.manual_seed(0)
    report = regard.check(make(), inputs)
    assert report.findings == []
    assert {"batch", "order"} <= set(report.passed)
    assert {*report.passed, *report.skipped} == set(KINDS)
    report.raise_if_any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mistake", ["", "diagonal off by one", "positions of a cache"])
def test_rounding_is_no_finding_and_a_mistake_is_one_in_every_dtype(
    dtype: torch.dtype, mistake: str
) -> None:
    torch.manual_seed(0)
    model = CausalModel(mistake).to(dtype)
    kinds = {each.kind for each in regard.check(model, IDS).findings}
    assert kinds == ({"future"} if "diagonal" in mistake else {"cache"} if mistake else set())


def test_a_check_leaves_no_trace_in_the_model() -> None:
    model = Encoder()
    model.train()
    model.head.eval()
    modes = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    before = torch.get_rng_state()
    regard.check(model, TEXT)
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


X = torch.randn(B, L, D, generator=torch.Generator().manual_seed(1))


class Random(nn.Module):
    """A model whose output is noise in evaluation mode as well."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x) * 0.1


class Counting(nn.Module):
    """A model that returns a number."""

    def forward(self, x: Tensor) -> int:
        return len(x)


@pytest.mark.parametrize(
    ("make", "inputs", "options"),
    [
        (lambda: nn.MultiheadAttention(D, 2, batch_first=True), (X, X, X), {}),
        (lambda: nn.MultiheadAttention(D, 2), (X, X, X), {}),  # (L, B, D)
        (lambda: nn.MultiheadAttention(D, 2), (X[0], X[0], X[0]), {}),
        (lambda: nn.TransformerEncoderLayer(D, 2, 8, batch_first=True), X, {}),
        (
            lambda: nn.Transformer(D, 2, 1, 1, 8, batch_first=True),
            {"src": X, "tgt": X, "tgt_mask": torch.ones(L, L, dtype=torch.bool).triu(1)},
            {},
        ),
        (lambda: MultiHeadAttention(D, 2), X, {}),
        (lambda: MultiHeadAttention(D, 2), {"query": X, "mask": regard.causal()}, {}),
        (lambda: EfficientAttention(D, 2), X, {}),
        (lambda: nn.GRU(D, 5, batch_first=True), X, {"causal": True}),
        (Random, X, {"causal": True}),
        (lambda: nn.Linear(D, 5), X[0], {}),
        (lambda: nn.Conv2d(2, 3, 3), torch.randn(2, 2, 5, 7), {}),
    ],
)
def test_layers_pass(make, inputs, options) -> None:
    torch.manual_seed(0)
    report = regard.check(make(), inputs, **options)
    assert report.findings == []


def test_torchs_encoder_gives_nan_where_everything_is_padding() -> None:
    layer = nn.TransformerEncoderLayer(D, 2, 8, batch_first=True)
    report = regard.check(layer, {"src": X, "src_key_padding_mask": ~REAL})
    assert [(each.kind, each.module) for each in report.findings] == [
        ("empty", "TransformerEncoderLayer")
    ]
    assert "padding" in report.passed


def test_a_mask_that_is_given_with_the_other_meaning_leaks() -> None:
    layer = nn.TransformerEncoderLayer(D, 2, 8, batch_first=True)
    report = regard.check(layer, {"src": X, "src_key_padding_mask": REAL})
    assert "padding" in report.passed  # as it says: True is hidden
    report = regard.check(layer, {"src": X, "src_key_padding_mask": REAL}, padding=~REAL)
    assert {each.kind for each in report.findings} & {"padding", "inverted"}


@pytest.mark.parametrize("kind", sorted(PRESETS.keys() - {"language"}))
def test_our_encoder_decoders_pass(kind: str) -> None:
    torch.manual_seed(0)
    model = build(kind, "tiny", source_vocabulary=29, target_vocabulary=29)
    inputs = {"source": IDS, "source_lengths": REAL.sum(1), "target": IDS[:, :7].flip(1)}
    report = regard.check(model, inputs)
    assert report.findings == []
    assert {"future", "padding", "cache", "batch"} <= set(report.passed)


def test_a_set_has_no_order_and_the_finding_can_be_left_out() -> None:
    torch.manual_seed(0)
    model = Recommender(5, torch.rand(5, 4), torch.rand(29, 4), dim=6)
    inputs = (torch.arange(B), torch.rand(B, 4), IDS, REAL.sum(1))
    assert [each.kind for each in regard.check(model, inputs).findings] == ["order"]
    report = regard.check(model, inputs, ignore=["order"])
    assert report.findings == []
    assert report.skipped["order"] == "ignored"


def test_a_report_reads_well_and_is_json() -> None:
    torch.manual_seed(0)
    report = regard.check(CausalModel("diagonal off by one"), IDS)
    text = str(report)
    assert text.startswith("CausalModel: 1 finding\n[future] block.attention: changing a token")
    assert "cause  the causal mask is missing, off by one" in text
    assert "skipped  cache: the full pass sees the future" in text
    found = report.to_json()
    assert found["model"] == "CausalModel"
    assert found["findings"][0]["kind"] == "future"
    nan = regard.check(nn.Sequential(nn.Linear(D, D)), torch.full((B, L, D), torch.inf))
    assert [each.kind for each in nan.findings] == ["empty"]


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(TypeError, match="check takes a torch module"):
        regard.check(len, X)
    with pytest.raises(TypeError, match="inputs should be what the model is called with"):
        regard.check(Random(), 3.0)
    with pytest.raises(TypeError, match="returns a float tensor, got int"):
        regard.check(Counting(), X)
    with pytest.raises(ValueError, match="ignore should be of future"):
        regard.check(Random(), X, ignore=["futures"])


# ------------------------------------------------------------------------ transformers

transformers = pytest.importorskip("transformers", reason="needs transformers")
from tests.trace import test_hugging_face_architectures as families  # noqa: E402

TRUE = {
    "Canine": "padding",  # characters are averaged in fours
    "ConvBert": "padding",  # convolutions reach over the end
    "Nystromformer": "padding",  # landmarks are means over padding as well
    "Funnel": "padding",  # pools the last token with padding
    "FSMT": "future",  # makes no causal mask unless use_cache=False
}
"""What is found in random models of transformers, and why it is so."""
FEW = ("Bert", "GPT2", "Llama", "T5", "FSMT")
MODELS = families.INTERFACE | families.OWN_CODE | families.TABLES


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FEW else pytest.mark.slow) for n in MODELS]
)
def test_models_of_transformers_pass_or_the_finding_is_true(name: str) -> None:
    options, inputs = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attention = "sdpa" if name in families.INTERFACE else "eager"
        try:
            model = families.model_of(name, options, attention)
        except ValueError:  # it has eager attention alone
            model = families.model_of(name, options, "eager")
        report = regard.check(model, inputs)
    assert [each.kind for each in report.findings] == ([TRUE[name]] if name in TRUE else [])
    if name in FEW:
        assert len(report.passed) > 5
