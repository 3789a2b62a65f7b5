"""Attribution equals what autograd gives through attention written out, and its limits are said."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard.analysis import METHODS, attribute, compare_methods, rollout
from regard.attention.dispatch import map_of
from regard.attention.observer import calling_module, observe
from regard.layers import MultiHeadAttention
from regard.models import LanguageModel, build

IDS = torch.tensor([[5, 7, 11, 3, 2, 9, 12]])
TARGET = torch.tensor([[1, 9, 8, 7]])


def language_model(**options):
    torch.manual_seed(3)
    return LanguageModel(13, dim=12, heads=3, hidden=24, layers=3, **options).eval()


def encoder_decoder(kind: str):
    torch.manual_seed(3)
    return build(kind, "tiny", source_vocabulary=13, target_vocabulary=11).eval()


def captured(model, *inputs):
    with regard.capture(model, gradients=True) as trace:
        model(*inputs)
    return trace


FAMILIES = (
    "Bert", "GPT2", "Llama", "Bart", "T5", "ViT", "Qwen3", "Mistral", "Mixtral", "DistilBert",
    "Electra", "Gemma2", "Llama alone",
)  # fmt: skip


@pytest.mark.parametrize("implementation", ["sdpa", "eager", "regard"])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_weights_are_those_of_eager_transformers(family, implementation):
    pytest.importorskip("transformers", reason="needs transformers")
    from tests.trace.test_hugging_face_architectures import INTERFACE, model_of

    if (family, implementation) == ("Gemma2", "sdpa"):
        implementation = "regard"  # torch's function has no soft cap
    regard.trace.register_transformers()
    family, _, alone = family.partition(" ")
    options, inputs = INTERFACE[family]
    inputs = {"input_ids": IDS} if alone else inputs  # without a mask torch groups the heads
    eager = model_of(family, options, "eager")
    other = model_of(family, options, implementation).requires_grad_(False)

    def target(output):
        probe = torch.randn(output[0].shape, generator=torch.Generator().manual_seed(4))
        real = inputs.get("attention_mask", torch.ones(1))
        if real.shape == output[0].shape[:2]:  # eager attention lets padded queries see anything
            probe = probe * real.unsqueeze(-1)
        return (output[0] * probe).sum()

    with regard.capture(other, gradients=True) as trace:
        output = other(**inputs)
    found = attribute(trace, target(output), signed=True)
    output = eager(**inputs, output_attentions=True)
    maps = output.get("cross_attentions") or output.attentions
    gradients = torch.autograd.grad(target(output), maps)
    expected = sum((w * g).sum((1, 2)) for w, g in zip(maps, gradients, strict=True))
    scale = max(1.0, float(expected.detach().abs().max()))
    assert torch.allclose(found, expected, atol=1e-5 * scale)


class WrittenOut:
    """An observer that computes attention as weights · values, and keeps the weights."""

    edits, gradients = True, False

    def __init__(self):
        self.weights = []

    def edit(self, request):
        def written_out(output, rows):
            weights = map_of(request).dense()
            self.weights.append((calling_module.get(), weights))
            return weights @ request.value

        return replace(request, edit_output=written_out)

    def reject(self, reason): ...

    def notify(self, call): ...


@pytest.mark.parametrize("kind", ["luong", "bahdanau", "transformer", "language"])
def test_gradients_of_our_weights_are_those_of_attention_written_out(kind):
    model = language_model() if kind == "language" else encoder_decoder(kind)
    inputs = (IDS,) if kind == "language" else (IDS, None, TARGET)
    found = attribute(captured(model, *inputs), (3, 4), signed=True, per_head=True)
    observer = WrittenOut()
    with observe(observer):
        logits = model.output(model(*inputs))[0, -1]
    modules, maps = zip(*observer.weights, strict=True)
    gradients = torch.autograd.grad(logits[3] - logits[4], maps)
    expected = {}
    names = {id(module): name for name, module in model.named_modules()}
    for module, weights, gradient in zip(modules, maps, gradients, strict=True):
        product = (weights * gradient).flatten(1, -3) if weights.dim() > 3 else weights * gradient
        name = names[id(module)]
        expected[name] = expected.get(name, 0.0) + product.reshape(-1, *product.shape[-2:]).sum(-2)
    assert set(found) <= set(expected)
    for name, scores in found.items():
        assert torch.allclose(scores, expected[name], atol=1e-5), name


def test_methods_agree_with_their_formulas():
    model = language_model()
    trace = captured(model, IDS)
    maps = [call.map.dense()[0] for call in trace]
    last = maps[0].shape[-1] - 1
    expected = torch.stack([map.mean(0)[last] for map in maps]).mean(0)
    assert torch.allclose(attribute(trace, 3, "attention"), expected, atol=1e-6)
    expected = rollout(maps)[last].float()
    assert torch.allclose(attribute(trace, 3, "rollout"), expected, atol=1e-5)
    mixed = torch.eye(last + 1)
    for call, map in zip(trace, maps, strict=True):  # Chefer et al. 2021, eq. 5 and 6
        mixed = mixed + (map * call.gradient.dense()[0]).clamp(min=0).mean(0) @ mixed
    assert torch.allclose(attribute(trace, 3, "relevance"), mixed[last], atol=1e-5)
    norms = []
    for name, map in zip(trace.names, maps, strict=True):  # Kobayashi et al. 2020, eq. 4
        layer = model.get_submodule(name)
        x = trace[name].inputs.value[0]  # (heads, N, width)
        parts = torch.zeros(last + 1, 12)
        for head in range(3):
            columns = layer.output_projection.weight[:, 4 * head : 4 * head + 4]
            parts += map[head, last, :, None] * (x[head] @ columns.T)
        norms.append(parts.norm(dim=-1))
    expected = torch.stack(norms).mean(0)
    assert torch.allclose(attribute(trace, 3, "value_norms"), expected, atol=1e-5)
    embedded = trace.forward.embedded
    logits = model.output(model(IDS))[0, -1]
    with torch.no_grad():
        saved = model.embedding.weight[IDS[0, 2]].clone()
        model.embedding.weight[IDS[0, 2]] = 0.0
        without = model.output(model(IDS))[0, -1]
        model.embedding.weight[IDS[0, 2]] = saved
    found = attribute(trace, 3, "occlusion")
    assert float(found[2]) == pytest.approx(float((logits[3] - without[3]).detach()), abs=1e-5)
    step = 1e-3 * embedded.detach()[:, 2]
    change = model.output(
        trace.forward.again(lambda x: x.index_add(1, torch.tensor([2]), step[:, None]))
    )
    found = attribute(trace, 3, "input_gradient")
    expected = float((change[0, -1, 3] - logits[3]).detach()) * 1e3
    assert float(found[2]) == pytest.approx(expected, rel=0.05, abs=1e-3)


def test_value_zeroing_compares_the_layer_with_and_without_the_values_of_a_word():
    model = language_model()
    trace = captured(model, IDS)
    found = attribute(trace, 3, "value_zeroing", layers="*.layers.2.*")
    name = trace.names[2]
    attention = model.get_submodule(name)
    layer = model.get_submodule(name.rpartition(".")[0])
    x = {}
    handle = layer.register_forward_hook(lambda _, args, output: x.update(args=args, out=output))
    model(IDS)
    handle.remove()

    def silence(_, args, output):
        output = output.clone()
        output[:, 3] = 0.0
        return output

    handle = attention.value_projection.register_forward_hook(silence)
    without = layer(*x["args"])
    handle.remove()
    first = lambda y: (y if isinstance(y, torch.Tensor) else y[0])[0, -1]  # noqa: E731
    expected = 1 - torch.cosine_similarity(first(x["out"]), first(without), dim=-1)
    assert float(found[3]) == pytest.approx(float(expected.detach()), abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["luong", "bahdanau", "transformer", "language"])
def test_every_method_has_a_number_for_each_word_and_a_random_control(kind, method):
    model = language_model() if kind == "language" else encoder_decoder(kind)
    inputs = (IDS,) if kind == "language" else (IDS, None, TARGET)
    trace = captured(model.requires_grad_(False), *inputs)
    scores = attribute(trace, (3, 4), method)
    control = attribute(trace, (3, 4), method, control=1)
    assert scores.shape == control.shape == (7,)
    assert scores.isfinite().all()
    assert scores.abs().sum() > 0
    assert not torch.allclose(scores, control)
    assert torch.equal(control, attribute(trace, (3, 4), method, control=1))


def test_a_batch_has_a_row_for_each_example():
    model = encoder_decoder("transformer")
    source, target = torch.cat([IDS, IDS.flip(1)]), TARGET.repeat(2, 1)
    whole = attribute(captured(model, source, None, target), (3, 4))
    for row, one in zip(whole, (IDS, IDS.flip(1)), strict=True):
        alone = attribute(captured(model, one, None, TARGET), (3, 4))
        assert torch.allclose(row, alone, atol=1e-5)


class Largest(TorchDispatchMode):
    """The largest tensor that an operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else [found]:
            if isinstance(each, torch.Tensor):
                self.numel = max(self.numel, each.numel())
        return found


def test_no_map_of_a_long_input_ever_exists_as_a_whole():
    length = 4096
    layer = MultiHeadAttention(8, heads=1).eval()
    x = torch.randn(1, length, 8)
    with Largest() as memory, regard.capture(layer, gradients=True) as trace:
        target = layer(x, mask=regard.causal())[0, -1].sum()
        attribute(trace, target)
        attribute(trace, target, "relevance")
        attribute(trace, target, "rollout")
    assert memory.numel < length * length / 2


def test_what_is_missing_is_said():
    model = language_model()
    with torch.no_grad(), pytest.raises(RuntimeError, match="gradients enabled"):
        captured(model, IDS)
    with regard.capture(model) as plain:
        model(IDS)
    with pytest.raises(ValueError, match=r"capture\(model, gradients=True\)"):
        attribute(plain, 3)
    trace = captured(model, IDS)
    with pytest.raises(ValueError, match="trace of capture"):
        attribute(trace.of(0), 3)
    attribute(trace, 3)
    assert torch.equal(attribute(trace.of(0)), attribute(trace))
    with pytest.raises(ValueError, match="did you mean 'input_gradient'"):
        attribute(trace, 3, "gradients")
    with pytest.raises(ValueError, match="scalar of the model's output"):
        attribute(trace, torch.zeros(2))
    with pytest.raises(ValueError, match="runs the model again"):
        attribute(trace, model.output(model(IDS))[0, -1, 3], "occlusion")
    with pytest.raises(ValueError, match="per_head is an option"):
        attribute(trace, 3, "rollout", per_head=True)
    dropping = language_model(dropout=0.3, attention_dropout=0.3).train()
    with pytest.raises(ValueError, match=r"model.eval\(\)"):
        attribute(captured(dropping, IDS), 3)
    with pytest.raises(ValueError, match="select some by layers="):
        attribute(trace, 3, layers="decoder.layers.9")


def test_parameters_get_no_gradient_and_results_stay_the_same():
    model = language_model()
    before = model(IDS)
    with regard.capture(model, gradients=True) as trace:
        during = model(IDS)
    attribute(trace, 3)
    assert torch.equal(before, during)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_methods_are_compared_by_what_hiding_their_words_does():
    """A model that reads one word alone: methods that find it lose all at the first word."""
    layer = MultiHeadAttention(6, heads=1).eval()

    class Reader(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.embedding, self.attention = torch.nn.Embedding(13, 6), layer
            with torch.no_grad():
                self.embedding.weight[3] = torch.tensor([9.0, 0, 0, 0, 0, 0])
                layer.query_projection.weight.zero_()
                layer.query_projection.bias.copy_(torch.tensor([9.0, 0, 0, 0, 0, 0]))
                layer.key_projection.weight.copy_(torch.eye(6))

        def forward(self, ids):
            return self.attention(self.embedding(ids))

    model = Reader().eval()
    trace = captured(model, IDS)

    def target(output):
        return output[0, -1] @ model(IDS)[0, -1].detach()

    found = compare_methods([(trace, target), (trace, target)], ["attention", "occlusion"], steps=7)
    scores = {(each.method, each.is_control): each for each in found.scores}
    curve = found.deletion["attention"]
    assert curve[0] - curve[1] > 0.3 * curve[0] > curve[0] / 7
    assert scores["attention", False].deletion > scores["attention", True].deletion
    assert scores["attention", False].deletion_error == pytest.approx(0.0)
    assert found.agreement["attention", "attention"] == pytest.approx(1.0)
    assert float(found.insertion["occlusion"][-1]) == pytest.approx(float(curve[0]), abs=1e-5)
    assert "random attention" in str(found)
