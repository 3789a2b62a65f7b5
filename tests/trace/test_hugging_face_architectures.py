"""Hugging Face architectures under attn_implementation="regard" give what "eager" gives, or refuse.

Small random models with padding. Those that compute attention in their own code never call
`attend`; a mask of the wrong kind would silently take causality and padding from them.
"""

import pytest
import torch

import regard
from regard.trace import register_transformers

transformers = pytest.importorskip("transformers", reason="needs transformers")

IDS = torch.tensor([[5, 7, 11, 3, 2, 9, 13], [4, 6, 8, 2, 0, 0, 0]])
MASK = (IDS != 0).long()
TEXT = {"input_ids": IDS, "attention_mask": MASK}
PAIR = TEXT | {"decoder_input_ids": torch.tensor([[1, 9, 8, 7], [1, 5, 6, 4]])}
IMAGE = {"pixel_values": torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))}

BERT = {
    "vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 16, "max_position_embeddings": 32, "pad_token_id": 0,
}  # fmt: skip
LLAMA = {
    "vocab_size": 29, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 16, "max_position_embeddings": 32,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT = {
    "vocab_size": 29, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 32,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
BART = {
    "vocab_size": 29, "d_model": 12, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {
    "vocab_size": 29, "d_model": 12, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 3,
    "relative_attention_num_buckets": 8, "decoder_start_token_id": 1, "pad_token_id": 0,
    "eos_token_id": 2,
}  # fmt: skip
VIT = {
    "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 16,
    "image_size": 8, "patch_size": 4,
}  # fmt: skip
ENCODER_DECODER = ("target", "source")
MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}

OWN_CODE = {
    "Bloom": ({"vocab_size": 29, "hidden_size": 12, "n_layer": 2, "n_head": 3}, TEXT),
    "MPNet": (BERT | {"pad_token_id": 1}, TEXT),
    "Mpt": (
        {"vocab_size": 29, "d_model": 16, "n_layers": 2, "n_heads": 4, "max_seq_len": 32},
        TEXT,
    ),
    "XGLM": (
        {"vocab_size": 29, "d_model": 12, "num_layers": 2, "attention_heads": 3, "ffn_dim": 16,
         "max_position_embeddings": 32, "pad_token_id": 0},
        TEXT,
    ),
    "CodeGen": (GPT | {"n_embd": 16, "n_head": 4, "rotary_dim": 4, "n_ctx": 32}, TEXT),
    "RoFormer": (BERT | {"hidden_size": 24, "embedding_size": 24}, TEXT),
    "RemBert": (BERT | {"input_embedding_size": 8, "output_embedding_size": 8}, TEXT),
    "MegatronBert": (BERT, TEXT),
    "IBert": (BERT | {"pad_token_id": 1}, TEXT),
    "Canine": (
        BERT | {"local_transformer_stride": 4, "downsampling_rate": 2, "num_hash_functions": 2,
                "num_hash_buckets": 16, "upsampling_kernel_size": 2, "hidden_size": 12},
        TEXT,
    ),
    "Luke": (BERT | {"entity_vocab_size": 5, "entity_emb_size": 6, "pad_token_id": 1}, TEXT),
    "BigBird": (BERT | {"attention_type": "original_full"}, TEXT),
    "GPTNeoXJapanese": (
        {"vocab_size": 29, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_multiple_size": 2, "max_position_embeddings": 32},
        TEXT,
    ),
    "ConvBert": (BERT | {"embedding_size": 12, "num_attention_heads": 2, "hidden_size": 16}, TEXT),
    "SqueezeBert": (
        BERT | {"embedding_size": 16, "hidden_size": 16, "num_attention_heads": 4}, TEXT
    ),
    "Nystromformer": (BERT | {"num_landmarks": 7, "segment_means_seq_len": 7}, TEXT),
    "Tapas": (BERT | {"type_vocab_sizes": [3, 256, 256, 2, 256, 256, 10]}, TEXT),
    "DebertaV2": (BERT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, TEXT),
    "Deberta": (BERT, TEXT),
    "XLNet": (
        {"vocab_size": 29, "d_model": 12, "n_layer": 2, "n_head": 3, "d_inner": 16,
         "pad_token_id": 0},
        TEXT,
    ),
    "XLM": ({"vocab_size": 29, "emb_dim": 12, "n_layers": 2, "n_heads": 3, "pad_index": 0}, TEXT),
    "Funnel": (
        {"vocab_size": 29, "block_sizes": [1, 1], "d_model": 12, "n_head": 3, "d_head": 4,
         "d_inner": 16},
        TEXT,
    ),
    "FSMT": (
        BART | {"src_vocab_size": 29, "tgt_vocab_size": 29, "langs": ["en", "de"]}, PAIR
    ),
}  # fmt: skip
TABLES = {
    "Falcon": ({"vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 2,
                "num_attention_heads": 3}, TEXT),
    "GPTJ": (GPT | {"rotary_dim": 4}, TEXT),
    "GPTNeo": ({"vocab_size": 29, "hidden_size": 12, "num_layers": 2, "num_heads": 3,
                "attention_types": [[["global", "local"], 1]]}, TEXT),
}  # fmt: skip
INTERFACE = {
    "Bert": (BERT, TEXT),
    "GPT2": (GPT, TEXT),
    "Llama": (LLAMA, TEXT),
    "Bart": (BART, PAIR),
    "T5": (T5, PAIR),
    "ViT": (VIT, IMAGE),
    "Roberta": (BERT | {"pad_token_id": 1}, TEXT),
    "XLMRoberta": (BERT | {"pad_token_id": 1}, TEXT),
    "Camembert": (BERT | {"pad_token_id": 1}, TEXT),
    "DistilBert": (
        {"vocab_size": 29, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 16,
         "max_position_embeddings": 32},
        TEXT,
    ),
    "Albert": (BERT | {"embedding_size": 8}, TEXT),
    "Electra": (BERT | {"embedding_size": 8}, TEXT),
    "Ernie": (BERT, TEXT),
    "Esm": (BERT | {"pad_token_id": 1, "mask_token_id": 28}, TEXT),
    "Qwen2": (LLAMA, TEXT),
    "Qwen3": (LLAMA | {"head_dim": 4}, TEXT),
    "Mistral": (LLAMA | {"sliding_window": 3}, TEXT),
    "Mixtral": (LLAMA | MOE, TEXT),
    "Gemma": (LLAMA | {"head_dim": 4}, TEXT),
    "Gemma2": (
        LLAMA | {"head_dim": 4, "sliding_window": 3, "attn_logit_softcapping": 2.0,
                 "query_pre_attn_scalar": 9},
        TEXT,
    ),
    "Gemma3Text": (LLAMA | {"head_dim": 4, "sliding_window": 3}, TEXT),
    "GptOss": (LLAMA | MOE | {"head_dim": 4, "sliding_window": 3}, TEXT),
    "DeepseekV3": (
        LLAMA | {"num_key_value_heads": 6, "q_lora_rank": 8, "kv_lora_rank": 8,
                 "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 6,
                 "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2,
                 "moe_intermediate_size": 8},
        TEXT,
    ),
    "OPT": (
        {"vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 2, "ffn_dim": 16,
         "num_attention_heads": 3, "max_position_embeddings": 32, "word_embed_proj_dim": 12,
         "pad_token_id": 0},
        TEXT,
    ),
    "GPTNeoX": (BERT | {"hidden_size": 24}, TEXT),
    "GPTBigCode": (GPT, TEXT),
    "Phi": (LLAMA, TEXT),
    "Cohere": (LLAMA, TEXT),
    "Olmo2": (LLAMA, TEXT),
    "Granite": (LLAMA | {"attention_multiplier": 0.3}, TEXT),
    "CTRL": (
        {"vocab_size": 29, "n_positions": 32, "n_embd": 12, "dff": 16, "n_layer": 2, "n_head": 3},
        TEXT,
    ),
    "MBart": (BART, PAIR),
    "Pegasus": (BART, PAIR),
    "Marian": (BART | {"decoder_vocab_size": 29}, PAIR),
    "M2M100": (BART, PAIR),
    "MT5": (T5, PAIR),
    "Whisper": (
        BART | {"num_mel_bins": 5, "max_source_positions": 6, "max_target_positions": 16},
        {"input_features": torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(3)),
         "decoder_input_ids": PAIR["decoder_input_ids"],
         "decoder_attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])},
    ),
    "DeiT": (VIT, IMAGE),
    "ModernBert": (BERT | {"local_attention": 4, "global_attn_every_n_layers": 2,
                           "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1,
                           "sep_token_id": 2}, TEXT),
}  # fmt: skip
NAMED = {
    "Llama": "grouped heads, rotary positions",
    "Qwen3": "normalized queries and keys",
    "Mistral": "sliding window",
    "Gemma2": "soft cap, windows in every other layer",
    "GptOss": "learned sinks, windows in every other layer",
    "DeepseekV3": "multi-head latent attention",
    "GPT2": "",
    "T5": "relative position bias, cross-attention",
    "Bart": "cross-attention",
    "Whisper": "speech, cross-attention",
    "ViT": "images",
    "Bert": "",
}
"""Models whose maps and cached steps are compared as well, and what is special about them."""

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
QUICK = ("Bert", "GPT2", "Llama", "T5", "Bloom", "XGLM")


def cases(table: dict) -> list:
    return [
        pytest.param(name, *table[name], id=name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in table
    ]


def model_of(name: str, options: dict, attention: str) -> torch.nn.Module:
    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(**options)
    model = getattr(transformers, f"{name}Model")._from_config(
        config, attn_implementation=attention
    )
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():  # fresh models attend almost uniformly
            if parameter.is_floating_point():
                parameter.normal_(0.0, 0.4, generator=generator)
    return model.eval()


def check(name: str, options: dict, inputs: dict) -> regard.trace.Trace:
    """Assert that the outputs are those of eager attention, and return what capture recorded."""
    register_transformers()
    with torch.no_grad():
        expected = model_of(name, options, "eager")(**inputs)[0]
        ours = model_of(name, options, "regard")
        with regard.capture(ours) as trace:
            found = ours(**inputs)[0]
    real = inputs.get("decoder_attention_mask", inputs.get("attention_mask"))
    real = torch.ones(found.shape[:2]) if real is None or real.shape != found.shape[:2] else real
    scale = expected[real.bool()].abs().max().clamp(min=1.0)
    assert torch.allclose(found[real.bool()] / scale, expected[real.bool()] / scale, atol=1e-5)
    return trace


@pytest.mark.parametrize(("name", "options", "inputs"), cases(INTERFACE))
def test_models_that_use_the_attention_interface_run_on_attend(name, options, inputs):
    trace = check(name, options, inputs)
    assert len(trace) > 0
    assert all(call.provenance["path"] != "scaled_dot_product_attention" for call in trace)
    assert trace.missed == []


@pytest.mark.parametrize(("name", "options", "inputs"), cases(OWN_CODE))
@pytest.mark.filterwarnings("ignore:capture recorded nothing")
def test_models_with_attention_code_of_their_own_keep_their_masks_and_are_recorded(
    name, options, inputs
):
    trace = check(name, options, inputs)
    assert bool(trace.missed) == (name == "Nystromformer")  # the product of three softmaxes
    assert bool(trace.calls) == (not trace.missed)
    assert all(call.verify() < 1e-5 for call in trace)


@pytest.mark.parametrize(("name", "options", "inputs"), cases(TABLES))
def test_models_with_a_table_of_attention_classes_are_refused(name, options, inputs):
    register_transformers()
    with pytest.raises(ValueError, match="_ATTENTION_CLASSES, not through"):
        model_of(name, options, "regard")
    model_of(name, options, "eager")(**inputs)


def passes(name: str, options: dict, inputs: dict, attention: str) -> list[tuple]:
    """The output, the maps and the real queries of a full pass; then of a prefill and two steps.

    The shorter sequence of a decoder is padded on the left, as for generation.
    """
    model = model_of(name, options, attention)
    found = []

    def run(real: torch.Tensor, **more: object) -> dict:
        with torch.no_grad(), regard.capture(model) as trace:
            output = model(**more, output_attentions=attention == "eager")
        if attention == "eager":
            names = ("attentions", "decoder_attentions", "cross_attentions")
            maps = [map for name in names for map in (output.get(name) or ())]
        else:  # the decoder's own attention before that to the memory, as transformers lists them
            calls = sorted(trace, key=lambda call: (call.queries, call.keys) == ENCODER_DECODER)
            maps = [call.map.dense() for call in calls]
        found.append((output[0], maps, real.bool()))
        return output

    pair = "decoder_input_ids" in inputs
    ids = inputs["decoder_input_ids"] if pair else inputs.get("input_ids")
    if ids is None:  # an image
        run(torch.ones(2, 5), **inputs)
        return found
    if not pair:
        mask = inputs["attention_mask"].flip(1) if name != "Bert" else inputs["attention_mask"]
        inputs = {"input_ids": ids, "attention_mask": mask}
    else:
        mask = torch.ones_like(ids)
        inputs = {key: value for key, value in inputs.items() if "decoder" not in key}
        encoded = model.get_encoder()(**inputs)
        mask_of = {"attention_mask": inputs["attention_mask"]} if "attention_mask" in inputs else {}
        inputs = {"encoder_outputs": encoded, "decoder_input_ids": ids, **mask_of}
    run(mask, **inputs)
    if name == "Bert":
        return found
    past = None
    for start, stop in ((0, 2), (2, 3), (3, 4)) if pair else ((0, 5), (5, 6), (6, 7)):
        step = {"decoder_input_ids" if pair else "input_ids": ids[:, start:stop]}
        grown = {} if pair else {"attention_mask": mask[:, :stop]}
        cached = {"past_key_values": past, "use_cache": True}
        past = run(mask[:, start:stop], **(inputs | step | grown | cached))["past_key_values"]
    return found


@pytest.mark.parametrize("name", NAMED)
def test_outputs_and_maps_are_those_of_eager_in_full_passes_and_cached_steps(name):
    register_transformers()
    options, inputs = INTERFACE[name]
    ours, eager = (passes(name, options, inputs, kind) for kind in ("regard", "eager"))
    whole = ours[0][0]
    for (output, maps, real), (truth, expected, _) in zip(ours, eager, strict=True):
        torch.testing.assert_close(output[real], truth[real], atol=1e-5, rtol=1e-5)
        assert len(maps) == len(expected) > 0
        for map, other in zip(maps, expected, strict=True):
            rows = real.unsqueeze(1).expand(map.shape[:-1])
            torch.testing.assert_close(map[rows], other[rows], atol=1e-5, rtol=1e-5)
    steps = torch.cat([output for output, _, _ in ours[1:]], 1) if len(ours) > 1 else whole
    real = ours[0][2]
    torch.testing.assert_close(steps[real], whole[real], atol=1e-4, rtol=1e-4)
