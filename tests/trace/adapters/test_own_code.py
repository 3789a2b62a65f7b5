"""Attention that a model computes in its own code is recorded; another softmax is not."""

import math
import threading
import warnings

import pytest
import torch
from torch import einsum, matmul, nn, softmax
from torch.nn import functional as F

import regard
from regard.trace import edit
from regard.trace.adapters.own_code import PATCHES

B, H, M, D = 2, 3, 5, 4
X = torch.randn(B, M, H * D, generator=torch.Generator().manual_seed(3))


class Written(nn.Module):
    """Attention by hand; `weights` are those of its last call, (batch, heads, M, N)."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = H
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(H * D, H * D) for _ in range(3))
        self.drop = nn.Dropout(0.4)

    def split(self, x):
        three = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        return (each.view(*x.shape[:2], H, D).transpose(1, 2) for each in three)

    def keep(self, weights):
        self.weights = weights.detach().clone()
        return weights


class Minimal(Written):
    """As in small GPTs."""

    def forward(self, x):
        q, k, v = self.split(x)
        scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(D))
        hidden = torch.ones(M, M, device=x.device).tril() == 0
        weights = self.keep(F.softmax(scores.masked_fill(hidden, -math.inf), dim=-1))
        return (self.drop(weights) @ v).transpose(1, 2).reshape(x.shape)


class Annotated(Written):
    """A function beside the module."""

    def forward(self, x):
        context, weights = attention(*self.split(x), self.drop)
        self.keep(weights)
        return context.transpose(1, 2).contiguous().view(x.shape)


def attention(query, key, value, dropout):
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
    weights = scores.softmax(dim=-1)
    return torch.matmul(dropout(weights), value), weights


class Joined(Written):
    """Batch and heads in one dimension."""

    def forward(self, x):
        q, k, v = (each.reshape(B * H, M, D) for each in self.split(x))
        weights = nn.Softmax(dim=-1)(torch.bmm(q, k.transpose(1, 2)))
        self.keep(weights.view(B, H, M, M))
        context = torch.bmm(self.drop(weights), v)
        return context.view(B, H, M, D).transpose(1, 2).reshape(x.shape)


class JoinedForTheProduct(Written):
    def forward(self, x):
        q, k, v = self.split(x)
        weights = self.keep(torch.softmax(q @ k.mT, -1))
        context = torch.bmm(self.drop(weights).view(B * H, M, M), v.reshape(B * H, M, D))
        return context.view(B, H, M, D).transpose(1, 2).reshape(x.shape)


class Einsum(Written):
    def forward(self, x):
        q, k, v = self.split(x)
        weights = self.keep(einsum("b h i d, b h j d -> b h i j", q, k).softmax(dim=-1))
        return einsum("b h i j, b h j d -> b i h d", self.drop(weights), v).flatten(2)


class LengthFirst(Written):
    """Keys before queries, batch and heads last."""

    def forward(self, x):
        q, k, v = (each.permute(2, 0, 1, 3) for each in self.split(x))  # (length, batch, heads, D)
        weights = torch.einsum("ibhd,jbhd->jibh", q, k).softmax(0)
        self.keep(weights.permute(2, 3, 1, 0))
        return torch.einsum("jibh,jbhd->ibhd", self.drop(weights), v).transpose(0, 1).flatten(2)


class Shared(Written):
    """One head of keys and values."""

    def forward(self, x):
        q, k, v = self.split(x)
        weights = self.keep((q @ k[:, :1].mT).softmax(-1))
        return (self.drop(weights) @ v[:, :1]).transpose(1, 2).reshape(x.shape)


class SharedEinsum(Written):
    def forward(self, x):
        q, k, v = self.split(x)
        weights = self.keep(torch.einsum("bhid,bjd->bhij", q, k[:, 0]).softmax(-1))
        return torch.einsum("bhij,bjd->bihd", self.drop(weights), v[:, 0]).flatten(2)


class Transposed(Written):
    """Values from the left, as for images: C = V Wᵀ."""

    def forward(self, x):
        q, k, v = self.split(x)
        weights = self.keep((q @ k.mT).softmax(-1))
        return (v.mT @ self.drop(weights).mT).permute(0, 3, 1, 2).reshape(x.shape)


class Early(Written):
    """Names that were bound before."""

    def forward(self, x):
        q, k, v = self.split(x)
        weights = self.keep(softmax(matmul(q, k.mT), dim=-1))
        return matmul(self.drop(weights), v).transpose(1, 2).reshape(x.shape)


class Changed(Written):
    """What stands between a softmax and its product."""

    def forward(self, x):
        q, k, v = self.split(x)
        weights = (q @ k.mT).softmax(-1, dtype=torch.float64).to(q.dtype)
        weights = weights.masked_fill(torch.ones(M, M).triu(2) == 1, 0.0)
        weights = torch.where(weights > 0.05, weights, 0.0)
        weights = self.keep(weights * torch.tensor([1.0, 0.0, 0.5]).view(H, 1, 1))
        weights = self.drop(weights).type_as(v).contiguous()
        return (weights @ v).transpose(1, 2).reshape(x.shape)


class InPlace(Written):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.4, inplace=True)

    def forward(self, x):
        q, k, v = self.split(x)
        weights = self.keep((q @ k.mT).softmax(-1))
        context = (self.drop(weights) @ v).transpose(1, 2).reshape(x.shape)
        context += x
        return context


class Additive(Written):
    """One query of a decoder."""

    def forward(self, x):
        scores = torch.tanh(self.q_proj(x[:, :1]) + self.k_proj(x)).sum(-1)  # (batch, N)
        weights = scores.softmax(1)
        self.keep(weights.view(B, 1, 1, M))
        return self.drop(weights).unsqueeze(1).bmm(self.v_proj(x)).squeeze(1)


class Sink(Written):
    """A score more than there are keys, whose weight is dropped."""

    def forward(self, x):
        q, k, v = self.split(x)
        scores = torch.cat([q @ k.mT, torch.ones(B, H, M, 1)], -1)
        weights = self.keep(scores.softmax(-1)[..., :-1])
        return (self.drop(weights) @ v).transpose(1, 2).reshape(x.shape)


KINDS = [Minimal, Annotated, Joined, JoinedForTheProduct, Einsum, LengthFirst, Shared, SharedEinsum]
KINDS += [Transposed, Early, Changed, InPlace, Additive, Sink]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("train", [False, True])
def test_the_map_of_attention_written_by_hand_is_its_weights(kind, train):
    torch.manual_seed(5)
    model = kind().train(train)

    def run():
        torch.manual_seed(7)
        return model(X)

    before = run()
    with regard.capture(model, gradients=True) as trace:
        during = run()
    assert torch.equal(before, during)
    (call,) = trace
    assert torch.equal(call.map.dense(), model.weights)
    assert call.verify() < 1e-6
    assert (trace.missed, call.provenance["path"]) == ([], "softmax")
    assert ("sink" in call.provenance) == (kind is Sink)
    if kind is not InPlace:
        during.sum().backward()
        assert call.gradient.shape == call.shape


@pytest.mark.parametrize("kind", [Minimal, Joined, Einsum, LengthFirst, Transposed, Additive])
def test_the_gradient_is_that_of_the_weights(kind):
    torch.manual_seed(5)
    model = kind().eval()
    with regard.capture(model, gradients=True) as trace:
        output = model(X)
    output.square().sum().backward()
    call = trace[0]
    with torch.no_grad():  # the context of head h at query i changes by ΔW · V
        step = 1e-3 * torch.randn_like(call.map.dense())
        wide = step.reshape(trace._recorder.calls[0].shape)
        record = trace._recorder.calls[0]
        rows = slice(0, wide.shape[-2])
        now = record.combine(None, record.map.dense(), rows).double()
        moved = record.combine(None, record.map.dense() + wide, rows).double()
        expected = moved.square().sum() - now.square().sum()
    assert torch.allclose(
        (call.gradient.dense() * step).sum().double(), expected, rtol=0.02, atol=2e-4
    )


@pytest.mark.parametrize("kind", [Minimal, Joined, Einsum, LengthFirst, Shared, Transposed, Early])
def test_attention_written_by_hand_can_be_edited(kind):
    torch.manual_seed(5)
    model = kind().eval()
    model(X)
    weights = model.weights
    with edit(model, heads=[1], keys=[0]), regard.capture(model) as trace:
        edited = model(X)
    expected = weights.clone()
    expected[:, 1, :, 0] = 0
    expected /= expected.sum(-1, keepdim=True).clamp(min=1e-30)
    assert torch.allclose(trace[0].map.dense(), expected, atol=1e-6)
    assert trace[0].verify() < 1e-6
    assert not torch.equal(edited, model(X))


def test_a_map_that_is_read_inside_of_the_block_is_not_a_call():
    with regard.capture() as trace:
        output = regard.attend(X, X, X)
        assert torch.allclose(trace[0].map.dense() @ X[:, None], output[:, None], atol=1e-5)
        assert trace[0].verify() < 1e-5
    assert len(trace) == 1


# ---------------------------------------------------------------------- not attention


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(H * D, 4)
        self.experts = nn.ModuleList(nn.Linear(H * D, H * D) for _ in range(4))

    def forward(self, x):
        mixed = torch.stack([expert(x) for expert in self.experts], -2)  # (B, M, 4, D)
        return (self.gate(x).softmax(-1).unsqueeze(-2) @ mixed).squeeze(-2)


class Codes(nn.Module):
    """A mixture of the rows of a table, once a parameter and once a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, H * D))
        self.register_buffer("other", torch.randn(7, H * D))

    def forward(self, x):
        return (x @ self.table.T).softmax(-1) @ self.table + F.softmax(x @ self.other.T, -1) @ (
            self.other
        )


class Classes(nn.Module):
    def forward(self, x):
        return x.softmax(-1).amax(-1)


class TwoSoftmaxes(Written):
    """Linear attention: no map of queries and keys exists."""

    def forward(self, x):
        q, k, v = self.split(x)
        return (q.softmax(-1) @ (k.softmax(-2).mT @ v)).transpose(1, 2).reshape(x.shape)


@pytest.mark.parametrize("kind", [Experts, Codes, Classes, TwoSoftmaxes])
def test_another_softmax_is_not_recorded(kind):
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(H * D, H, batch_first=True)})
    model["other"] = kind()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with regard.capture(model) as trace:
            model["other"](model["attention"](X, X, X)[0])
    assert trace.names == ["attention"]
    assert [each.name for each in trace.missed] == ["other"] * (kind is TwoSoftmaxes)


def test_a_second_softmax_that_is_not_weights_is_named():
    class Both(Written):
        def forward(self, x):
            q, k, v = self.split(x)
            gate = q.softmax(-1).sum(-1, keepdim=True)
            return ((q @ k.mT).softmax(-1) @ v * gate).transpose(1, 2).reshape(x.shape)

    model = nn.Sequential(Both())
    with pytest.warns(UserWarning, match="only a part"), regard.capture(model) as trace:
        model(X)
    assert trace.names == [each.name for each in trace.missed] == ["0"]


# ---------------------------------------------------------------------- what is replaced


def places():
    return {(id(owner), name): vars(owner).get(name) for owner, name in PATCHES}


def test_torch_is_as_it_was_after_capture_also_after_an_error_and_in_other_threads():
    before, model = places(), Minimal().eval()
    names = []

    def other():
        (model.q_proj(X) @ X.mT).softmax(-1) @ X
        names.append(torch.softmax.__name__)

    with regard.capture(model) as trace:
        model(X)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert places() == before
    with pytest.raises(RuntimeError), regard.capture(model):
        model(X[..., 1:])
    assert places() == before
    assert (len(trace), names) == (1, ["softmax"])
    with regard.capture() as outer, regard.capture(model) as inner:
        model(X)
    assert places() == before
    assert (len(outer), len(inner)) == (1, 1)


@pytest.mark.parametrize("mode", ["inference", "autocast", "meta", "vmap", "double backward"])
def test_modes_of_torch_are_left_alone(mode):
    model = Minimal().eval()
    x = X.clone().requires_grad_(mode == "double backward")

    def run():
        if mode == "inference":
            with torch.inference_mode():
                return model(x)
        if mode == "autocast":
            with torch.autocast("cpu", torch.bfloat16):
                return model(x)
        if mode == "vmap":
            return torch.vmap(lambda each: (each @ each.mT).softmax(-1) @ each)(x)
        if mode == "double backward":
            (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
            return torch.autograd.grad(first.square().sum(), x)[0]
        model.keep = lambda weights: weights
        return model.to("meta")(x.to("meta"))

    before = run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with regard.capture(model) as trace:
            during = run()
    assert before.shape == during.shape
    assert mode == "meta" or torch.equal(before, during)
    assert len(trace) == (mode not in ("vmap", "meta"))
    if mode == "autocast":
        assert trace[0].verify() < 0.02


def test_a_model_that_is_compiled_inside_of_capture_gives_the_same():
    model = Minimal().eval()
    before = model(X)
    compiled = torch.compile(nn.Sequential(nn.Linear(H * D, H * D)), backend="eager")
    with regard.capture(model):
        model(compiled(X) * 0 + X)
    assert torch.equal(model(X), before)


# ---------------------------------------------------------------------- transformers

SWIN = {
    "image_size": 16, "patch_size": 2, "embed_dim": 6, "depths": [2, 1], "num_heads": [2, 3],
    "window_size": 4,
}  # fmt: skip
FAMILIES = ("Bloom", "GPTJ", "Deberta", "DebertaV2", "Swin", "XLNet", "Falcon", "Funnel", "T5")


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_the_maps_of_transformers_are_those_that_it_returns(name):
    pytest.importorskip("transformers", reason="needs transformers")
    from tests.trace import test_hugging_face_architectures as known

    pixels = {"pixel_values": torch.randn(2, 3, 16, 16)}
    tables = {**known.INTERFACE, **known.OWN_CODE, **known.TABLES, "Swin": (SWIN, pixels)}
    options, inputs = tables[name]
    model = known.model_of(name, options, "eager")
    names = ("attentions", "decoder_attentions", "cross_attentions", "encoder_attentions")
    with torch.no_grad():
        plain = model(**inputs)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with regard.capture(model) as trace:
                captured = model(**inputs)
        output = model(**inputs, output_attentions=True)
    assert torch.equal(plain[0], captured[0])
    expected = [map for each in names for map in (output.get(each) or ())]
    assert len(expected) == (2 if name == "Swin" else len(trace)) > 0  # of Swin each last block
    maps = [call.map.dense() for call in trace]
    for map in expected:
        assert any(own.shape == map.shape and torch.allclose(own, map, atol=1e-6) for own in maps)
    assert all(call.verify() < 1e-5 for call in trace)
