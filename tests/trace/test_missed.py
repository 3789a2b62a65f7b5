"""A trace names the modules that look like attention, ran, and were not recorded; no others."""

import copy
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.layers import MultiHeadAttention
from regard.models import build
from regard.trace import Missed, Trace
from regard.visual.page import document
from regard.visual.views import show

X = torch.randn(2, 7, 6, generator=torch.Generator().manual_seed(3))
SOFTMAX = "computes softmax in its own code, and not as weights · values"
COMPILED = "is compiled; "


class Projected(nn.Module):
    """Named after nothing, with three projections."""

    def __init__(self) -> None:
        super().__init__()
        self.to_q, self.to_k, self.to_v = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        return by_hand(self.to_q(x), self.to_k(x), self.to_v(x))


def by_hand(q, k, v):
    return (q @ k.mT).log_softmax(-1).exp() @ v


class HandAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log_softmax = nn.LogSoftmax(-1)

    def forward(self, x):
        return self.log_softmax(x @ x.mT).exp() @ x


class Fused(nn.Module):
    """One projection of three, and no softmax: the state of a recurrence."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj_qkvz = nn.Linear(6, 24)

    def forward(self, x):
        q, k, v, z = self.in_proj_qkvz(x).chunk(4, -1)
        return self.recurrent_rule(q, k, v) * z

    def recurrent_rule(self, q, k, v):
        return q @ (k.mT @ v)


class WindowAttn(nn.Module):
    def forward(self, x):
        return F.avg_pool1d(x.mT, 3, 1, 1).mT


class Sdpa(Projected):
    def forward(self, x):
        return F.scaled_dot_product_attention(self.to_q(x), self.to_k(x), self.to_v(x))


class AttentionOutput(nn.Module):
    """A part of attention, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(6, 6)

    def forward(self, x):
        return self.dense(x)


class AttentionBlock(nn.Module):
    """Named after attention, around an attention that may not run."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.unused, self.output = inner, HandAttention(), AttentionOutput()

    def forward(self, x, skip=False):
        return self.output(x if skip else self.inner(x))


class Scripted(nn.Module):
    """What a method other than `forward` attends to."""

    def decode(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class Unregistered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [MultiHeadAttention(6, heads=2)]

    def forward(self, x):
        return self.layers[0](x)


class Beside(nn.Module):
    """A module of torch, which is recorded, and another one."""

    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        self.first = nn.MultiheadAttention(6, 2, batch_first=True)
        self.other = other

    def forward(self, x):
        return self.other(self.first(x, x, x)[0])


def trace_of(model: nn.Module, run=None) -> tuple[Trace, list[str]]:
    """The trace of a model that gives the same under capture, and the warnings."""
    run = run or (lambda: model(X))
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = run()
        caught.clear()
        with regard.capture(model) as trace:
            during = run()
        after = run()
    assert torch.equal(before, during)
    assert torch.equal(before, after)
    return trace, [str(each.message) for each in caught if "capture recorded" in str(each.message)]


def own_forward(module: nn.Module) -> nn.Module:
    """The module with a `forward` of its own, as accelerate and others give it."""
    forward = module.forward
    module.forward = lambda *args, **options: forward(*args, **options)
    return module


def compiled(module: nn.Module) -> nn.Module:
    module.compile(backend="eager")
    return module


def compiled_forward(module: nn.Module) -> nn.Module:
    module.forward = torch.compile(module.forward, backend="eager")
    return module


def derived(module: nn.Module) -> nn.Module:
    """The module with a class that torch makes of its own, as FSDP2 and parametrizations do."""
    made = type(f"FSDP{type(module).__name__}", (type(module),), {"__module__": "torch.fsdp"})
    module.__class__ = made
    return module


MISSED = {
    "projections": (Projected, "other", SOFTMAX),
    "a name": (HandAttention, "other", SOFTMAX),
    "a recurrence": (Fused, "other", "linear attention or a recurrent state"),
    "neither": (WindowAttn, "other", "calls no attention function"),
    "inside": (lambda: AttentionBlock(HandAttention()), "other.inner", SOFTMAX),
    "deeper": (lambda: nn.Sequential(nn.Sequential(Projected())), "other.0.0", SOFTMAX),
    "its own forward": (lambda: own_forward(HandAttention()), "other", SOFTMAX),
    "derived by torch": (lambda: derived(HandAttention()), "other", SOFTMAX),
    "not registered": (Unregistered, "other", "through a module that it does not register"),
    "torch.compile": (
        lambda: torch.compile(MultiHeadAttention(6, heads=2), backend="eager"),
        "other._orig_mod",
        COMPILED,
    ),
    "compile()": (lambda: compiled(HandAttention()), "other", COMPILED),
    "a compiled forward": (lambda: compiled_forward(HandAttention()), "other", COMPILED),
    "a compiled block": (lambda: compiled(AttentionBlock(Sdpa())), "other.inner", COMPILED),
}


@pytest.mark.parametrize("name", MISSED)
def test_a_module_that_was_not_recorded_is_named_with_the_reason(name):
    torch.manual_seed(5)
    make, path, reason = MISSED[name]
    model = Beside(make()).eval()
    trace, warned = trace_of(model)
    assert trace.names == ["first"]
    missed = [each for each in trace.missed if each.name == path]
    assert len(missed) == 1
    assert reason in missed[0].reason
    assert len(warned) == 1
    assert "recorded only a part" in warned[0]
    assert str(missed[0]) in warned[0]
    if not name.startswith("a compiled block"):  # whose unused part is in the graph as well
        assert len(trace.missed) == 1


def test_a_scripted_module_is_named():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        script = torch.jit.script(nn.Sequential(HandAttention(), nn.Linear(6, 6)))
    trace, warned = trace_of(Beside(script))
    assert trace.missed == [Missed("other.0", "HandAttention", "is compiled by TorchScript")]
    assert len(warned) == 1


def test_a_graph_that_is_recorded_in_part_names_the_rest():
    model = Beside(nn.Sequential(HandAttention(), Sdpa()))
    trace, warned = trace_of(torch.compile(model, backend="eager"))
    recorded = set(trace.names)
    assert {each.name for each in trace.missed} == {"first", "other.0", "other.1"} - recorded
    assert len(warned) == 1
    with torch.compiler.set_stance("force_eager"):
        trace, _ = trace_of(torch.compile(model, backend="eager"))
    assert trace.names == ["first", "other.1"]
    assert trace.missed == [Missed("other.0", "HandAttention", SOFTMAX)]


COMPLETE = {
    "recorded": Sdpa,
    "a block": lambda: AttentionBlock(Sdpa()),
    "an outer one": lambda: AttentionBlock(AttentionBlock(nn.Sequential(Sdpa()))),
    "a part": AttentionOutput,
    "its own forward": lambda: own_forward(Sdpa()),
    "derived by torch": lambda: derived(Sdpa()),
    "ours": lambda: MultiHeadAttention(6, heads=3),
    "ours in a block": lambda: AttentionBlock(MultiHeadAttention(6, heads=3)),
    "a compiled layer": lambda: compiled(nn.Linear(6, 6)),
    "no attention": lambda: nn.GRU(6, 6),
    "a table of projections": lambda: nn.ModuleDict({n: nn.Linear(6, 6) for n in "qkv"}),
    "torch's layer": lambda: nn.TransformerEncoderLayer(6, 2, 11, batch_first=True),
    "torch's encoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(6, 2, 11, batch_first=True), 2, enable_nested_tensor=False
    ),
}


@pytest.mark.parametrize("name", COMPLETE)
def test_nothing_is_missed_where_all_is_recorded(name):
    other = COMPLETE[name]()
    model = Beside(other).eval()
    silent = isinstance(other, nn.ModuleDict | nn.GRU)
    run = (lambda: model.first(X, X, X)[0]) if silent else None
    trace, warned = trace_of(model, run)
    assert (trace.missed, warned) == ([], [])
    assert len(trace) > 0


def test_a_module_that_did_not_run_is_not_named():
    model = Beside(AttentionBlock(HandAttention()))
    trace, warned = trace_of(model, lambda: model.other(model.first(X, X, X)[0], skip=True))
    assert (trace.missed, warned) == ([], [])


def test_a_module_that_recorded_once_and_not_another_time_is_named():
    class SometimesAttention(Sdpa):
        def forward(self, x, hand=False):
            return by_hand(x, x, x) if hand else super().forward(x)

    class Reused(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = self.b = SometimesAttention()

        def forward(self, x, hand):
            return self.b(self.a(x), hand)

    model = Reused()
    trace, warned = trace_of(model, lambda: model(X, False))
    assert (trace.names, trace.missed, warned) == (["a", "a#2"], [], [])
    trace, warned = trace_of(model, lambda: model(X, True))
    assert trace.names == ["a"]
    assert trace.missed == [Missed("a", "SometimesAttention", SOFTMAX)]
    assert len(warned) == 1


def test_attention_outside_of_forward_is_named_beside_what_was_recorded():
    model = Beside(Scripted())
    trace, warned = trace_of(model, lambda: model.other.decode(model.first(X, X, X)[0]))
    assert trace.names == ["first"]
    ((name, kind, reason),) = trace.missed
    assert (name, kind) == ("other", "Scripted")
    assert "outside of forward()" in reason
    assert len(warned) == 1


def test_a_transform_of_torch_func_is_the_reason():
    model = Beside(Sdpa()).eval()
    trace, _ = trace_of(model, lambda: torch.func.vmap(model.other)(model.first(X, X, X)[0][None]))
    assert trace.names == ["first"]
    assert trace.missed == [Missed("other", "Sdpa", "ran inside a transform of torch.func")]


def test_the_reason_of_an_empty_trace_names_the_modules():
    model = nn.Sequential(HandAttention())
    trace, warned = trace_of(model)
    assert len(warned) == 1
    assert f"0 (HandAttention): {SOFTMAX}" in warned[0]
    assert f"0 (HandAttention): {SOFTMAX}" in repr(trace)


def test_a_warning_names_three_and_counts_the_others():
    trace, (text,) = trace_of(Beside(nn.Sequential(*(HandAttention() for _ in range(5)))))
    assert len(trace.missed) == 5
    assert "5 module(s)" in text
    assert "other.2 (HandAttention)" in text
    assert "other.3" not in text
    assert text.endswith("; and 2 more")


def test_other_threads_and_other_models_are_not_named():
    model, other = Beside(Sdpa()), HandAttention()
    with regard.capture(model) as trace:
        model(X)
        other(X)
        thread = threading.Thread(target=Beside(HandAttention()), args=(X,))
        thread.start()
        thread.join()
    assert trace.missed == []
    by_hand = Beside(HandAttention())
    with regard.capture(by_hand) as trace:
        by_hand.first(X, X, X)
        thread = threading.Thread(target=by_hand.other, args=(X,))
        thread.start()
        thread.join()
    assert trace.missed == []


@pytest.mark.filterwarnings("ignore:capture recorded")
def test_nested_captures_name_what_ran_in_each():
    model = Beside(nn.Sequential(HandAttention(), compiled(HandAttention())))
    with torch.no_grad(), regard.capture(model) as outer:
        model.other[0](X)
        with regard.capture(model) as inner:
            model.other[1](X)
        with regard.capture(model.first) as part:
            model(X)
    assert [each.name for each in outer.missed] == ["other.1", "other.0"]
    assert [each.name for each in inner.missed] == ["other.1"]
    assert part.missed == []


def test_a_failing_model_is_left_as_it_was_and_warns_of_nothing():
    class FailingAttention(HandAttention):
        def forward(self, x):
            super().forward(x)
            raise RuntimeError("on purpose")

    models = [
        Beside(make()) for make in (FailingAttention, lambda: own_forward(FailingAttention()))
    ]
    models.append(Beside(nn.Sequential(compiled(HandAttention()), FailingAttention())))
    for model in models:
        before = [{k: id(v) for k, v in vars(module).items()} for module in model.modules()]
        forward = FailingAttention.forward
        fails = pytest.raises(RuntimeError, match="on purpose")
        with torch.no_grad(), fails, regard.capture(model):
            model(X)
        assert FailingAttention.forward is forward
        after = [{k: id(v) for k, v in vars(module).items()} for module in model.modules()]
        assert after == before


def test_gradients_and_what_a_checkpoint_repeats_are_the_same():
    torch.manual_seed(2)
    model = Beside(nn.Sequential(Sdpa(), nn.Linear(6, 6)))
    gradients = []
    for _ in range(2):
        model.zero_grad()
        x = X.clone().requires_grad_()
        with regard.capture(model) as trace:
            checkpoint = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
            checkpoint.square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
        assert (trace.names, trace.missed) == (["first", "other.0"], [])
    model.zero_grad()
    model(X).square().sum().backward()
    for one, other in zip(gradients[0], model.parameters(), strict=True):
        assert torch.allclose(one, other.grad, atol=1e-6)


def test_the_missed_are_shown_stored_and_kept_by_every_part_of_a_trace(tmp_path):
    trace, _ = trace_of(Beside(HandAttention()))
    expected = [Missed("other", "HandAttention", SOFTMAX)]
    line = f"other (HandAttention): {SOFTMAX}"
    assert f"  not recorded: {line}" in repr(trace)
    trace.save(tmp_path / "a.attn")
    for part in (trace.of(0), trace.select(heads=[1]), trace.stitched(), copy.copy(trace)):
        assert part.missed == expected
    back = regard.load_trace(tmp_path / "a.attn")
    assert back.missed == expected
    one = back.of(1)
    assert show(one, width=60).endswith(f"\n\nnot recorded:\n  {line}")
    assert line in document(one)
    assert "not recorded" not in show(Trace(one.calls), width=60)


OWN = {
    "transformer": {"dim": 12, "heads": 3, "hidden": 7, "layers": 2, "max_length": 32},
    "bahdanau": {"hidden": 6, "embedding": 5},
    "luong": {"hidden": 6, "embedding": 5},
    "gnmt": {"hidden": 6, "embedding": 5},
}


@pytest.mark.parametrize("kind", OWN)
def test_our_own_models_miss_nothing_also_inside_of_anothers(kind):
    model = build(kind, source_vocabulary=13, target_vocabulary=11, **OWN[kind]).eval()
    source, lengths = torch.tensor([[5, 7, 3, 2]]), torch.tensor([4])
    target = torch.tensor([[1, 9, 8]])

    class Attentional(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self):
            return self.model.output(self.model(source, lengths, target))

    for one in (model, outer := Attentional()):
        trace, warned = trace_of(one, outer)
        assert (trace.missed, warned) == ([], [])
        assert len(trace) > 0


def test_a_model_that_is_distributed_keeps_its_names():
    distributed = pytest.importorskip("torch.distributed")
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        replicated = nn.parallel.DistributedDataParallel(Beside(Projected()))
        trace, _ = trace_of(replicated)
        assert trace.names == ["module.first"]
        assert [each.name for each in trace.missed] == ["module.other"]
        sharded = Beside(nn.Sequential(Projected(), Sdpa()))
        for module in (*sharded.other, sharded):
            fsdp.fully_shard(module, mesh=distributed.init_device_mesh("cpu", (1,)))
        trace, _ = trace_of(sharded)
        assert trace.names == ["first", "other.1"]
        assert [each.name for each in trace.missed] == ["other.0"]
    finally:
        distributed.destroy_process_group()


# ---------------------------------------------------------------------- transformers


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="needs transformers")


QWEN = {
    "vocab_size": 29, "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 16, "max_position_embeddings": 32,
    "head_dim": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
    "linear_key_head_dim": 4, "linear_value_head_dim": 4, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
IDS = torch.tensor([[5, 7, 11, 3, 9]])


LLAMA = {
    "vocab_size": 29, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "intermediate_size": 16, "max_position_embeddings": 32,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def test_an_attention_implementation_that_is_not_recorded_is_the_reason(transformers):
    def unknown(module, query, key, value, attention_mask, **options):
        key, value = (x.repeat_interleave(module.num_key_value_groups, 1) for x in (key, value))
        return by_hand(query, key, value).transpose(1, 2), None

    transformers.AttentionInterface.register("unknown", unknown)
    config = transformers.LlamaConfig(**LLAMA)
    model = transformers.LlamaModel._from_config(config, attn_implementation="unknown")
    trace, (text,) = trace_of(model.eval(), lambda: model(IDS).last_hidden_state)
    assert "recorded nothing" in text
    reason = "runs on attn_implementation='unknown'"
    assert trace.missed == [
        Missed(f"layers.{layer}.self_attn", "LlamaAttention", reason) for layer in range(2)
    ]


ARCHITECTURES = (
    "Bert", "GPT2", "Llama", "T5", "Whisper", "ViT", "Bart", "Roberta", "DistilBert", "Albert",
    "Electra", "Esm", "Qwen3", "Mistral", "Mixtral", "Gemma2", "GptOss", "DeepseekV3", "OPT",
    "GPTNeoX", "Marian", "ModernBert",
)  # fmt: skip
"""On transformers' attention interface, so that every layer is recorded."""


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_common_architectures_miss_nothing_in_their_default_and_in_eager_mode(transformers, name):
    from tests.trace.test_hugging_face_architectures import INTERFACE, model_of

    options, inputs = INTERFACE[name]
    for implementation in (None, "eager"):
        model = model_of(name, options, implementation)
        trace, warned = trace_of(model, lambda model=model: model(**inputs)[0])
        assert (trace.missed, warned) == ([], [])
        assert len(trace) >= 2


def test_generation_with_a_cache_misses_nothing(transformers):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).eval()
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "use_cache": True}
    trace, warned = trace_of(model, lambda: model.generate(IDS, **options))
    assert (trace.missed, warned) == ([], [])
    assert trace.names == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
