"""The calls of a generation are one call of each layer, in linear memory."""

import gc
import warnings

import pytest
import torch

import regard

transformers = pytest.importorskip("transformers", reason="needs transformers")

LLAMA = {
    "vocab_size": 29, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 16, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
IDS = torch.tensor([[5, 7, 11, 3, 9, 4]])
PADDED = torch.tensor([[5, 7, 11, 3, 9, 4], [0, 0, 6, 8, 3, 12]])
GREEDY = {"max_new_tokens": 9, "min_new_tokens": 9, "do_sample": False, "use_cache": True}


def model_of(name: str = "Llama", attention: str | None = None, **options: object):
    regard.trace.register_transformers()
    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(**(LLAMA | options))
    kind = getattr(transformers, f"{name}ForCausalLM")
    model = kind._from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for parameter in model.parameters():  # fresh models attend almost uniformly
            parameter.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(11))
    return model.eval()


def generate(model, ids=IDS, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mask = (ids != 0).long()
        return model.generate(ids, attention_mask=mask, **(GREEDY | options))


def eager_maps(model, ids, prompt=1):
    """The maps of one pass over what was generated, but for the last token."""
    ids = ids[:, :-1]
    eager = type(model)._from_config(model.config, attn_implementation="eager").eval()
    eager.load_state_dict(model.state_dict())
    mask = (ids != 0).long()
    mask[:, prompt:] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        output = eager(
            ids, attention_mask=mask, position_ids=positions, output_attentions=True,
            use_cache=False,
        )  # fmt: skip
    return output.attentions


CASES = {
    "a dynamic cache": ({}, {}, IDS),
    "padding": ({}, {}, PADDED),
    "a static cache": ({}, {"cache_implementation": "static"}, IDS),
    "a static cache, padding": ({}, {"cache_implementation": "static"}, PADDED),
    "windows": ({"name": "Mistral", "sliding_window": 4}, {}, IDS),
    "regard": ({"attention": "regard"}, {}, IDS),
    "regard, padding": ({"attention": "regard"}, {}, PADDED),
    "one head of keys": ({"num_key_value_heads": 1}, {}, PADDED),
    "a prompt in chunks": ({}, {"prefill_chunk_size": 4}, IDS),
    "a prompt of one token": ({}, {}, IDS[:, :1]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_generation_is_one_square_map_for_each_layer(name):
    options, more, ids = CASES[name]
    model = model_of(**options)
    before = generate(model, ids, **more)
    with regard.capture(model) as trace:
        during = generate(model, ids, **more)
    assert torch.equal(before, during)
    assert trace.names == [f"model.layers.{layer}.self_attn" for layer in range(2)]
    real = torch.ones(during[:, :-1].shape, dtype=torch.bool)
    real[:, : ids.shape[1]] = ids != 0
    real = real[:, None, :, None]
    for call, expected in zip(trace, eager_maps(model, during, ids.shape[1]), strict=True):
        weights = call.map.dense()
        assert weights.shape == expected.shape
        assert torch.allclose(weights * real, expected * real, atol=1e-5)
        assert torch.allclose(
            call.map[..., 7:9, :] * real[..., 7:9, :],
            weights[..., 7:9, :] * (real[..., 7:9, :]),
            atol=1e-6,
        )
        assert call.verify() < 1e-4
        prompt = more.get("prefill_chunk_size", ids.shape[1])  # of the first call
        assert call.provenance["prompt"] == prompt
        assert torch.allclose(call.map.received(), weights.sum(-2), atol=1e-5)
    assert trace.missed == []


def test_beams_that_reorder_their_cache_keep_the_rows_of_their_past():
    model = model_of()
    with regard.capture(model) as trace:
        output = generate(model, num_beams=3, num_return_sequences=3)
    whole = trace.stitched()
    for call, expected in zip(whole, eager_maps(model, output), strict=False):
        weights = call.map.dense()
        assert weights.shape[-1] == output.shape[1] - 1
        best = expected[0]
        # the best beam is one of those that were kept to the last step
        rows = best.shape[-2] - 1
        gaps = [(each[:, :rows] - best[:, :rows]).abs().amax() for each in weights]
        assert min(gaps) < 1e-4
        assert call.verify() < 1e-4


def test_a_cache_that_is_cropped_drops_the_rows_that_were_rejected():
    model = model_of()
    with torch.no_grad(), regard.capture(model) as trace:
        cache = transformers.DynamicCache(config=model.config)
        model(IDS, past_key_values=cache)
        model(torch.tensor([[8, 6, 7]]), past_key_values=cache)  # candidates
        cache.crop(-2)  # of which one is accepted
        model(torch.tensor([[9]]), past_key_values=cache)
    ids = torch.tensor([[*IDS[0].tolist(), 8, 9, 0]])
    for call, expected in zip(trace, eager_maps(model, ids), strict=True):
        assert torch.allclose(call.map.dense(), expected, atol=1e-5)
        assert call.verify() < 1e-4


def test_a_cache_of_other_keys_is_another_call():
    model = model_of()
    with torch.no_grad(), regard.capture(model) as trace:
        cache = transformers.DynamicCache(config=model.config)
        model(IDS, past_key_values=cache)
        cache.layers[0].keys = cache.layers[0].keys + 0.1
        model(torch.tensor([[8]]), past_key_values=cache)
        model(IDS)
    names = [name.removeprefix("model.layers.") for name in trace.names]
    assert sorted(names) == sorted(
        ["0.self_attn", "1.self_attn", "0.self_attn#2", "0.self_attn#3", "1.self_attn#2"]
    )
    for call in trace:
        assert call.verify() < 1e-4


def test_a_translation_has_one_map_for_each_layer_of_the_decoder():
    torch.manual_seed(3)
    config = transformers.BartConfig(
        vocab_size=29, d_model=12, encoder_layers=1, decoder_layers=2, encoder_attention_heads=3,
        decoder_attention_heads=3, encoder_ffn_dim=16, decoder_ffn_dim=16,
        max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, forced_eos_token_id=None,
    )  # fmt: skip
    model = transformers.BartForConditionalGeneration(config).eval()
    with regard.capture(model) as trace:
        generate(model, PADDED.flip(1))
    crossing = [call for call in trace if call.role == "encoder–decoder attention"]
    assert [call.shape for call in crossing] == [(2, 3, 9, 6)] * 2
    assert len(trace) == 5
    for call in crossing:
        weights = call.map.dense()
        assert torch.allclose(weights.sum(-1), torch.ones(2, 3, 9), atol=1e-5)
        assert float(weights[1, ..., 4:].abs().max()) == 0.0  # padding
        assert call.verify() < 1e-5


def test_memory_grows_with_the_length_not_with_its_square():
    model = model_of(max_position_embeddings=512)

    def held(count: int) -> int:
        gc.collect()
        before = {id(each) for each in gc.get_objects() if type(each) is torch.Tensor}
        with regard.capture(model) as trace:
            generate(model, max_new_tokens=count, min_new_tokens=count)
        gc.collect()
        storages = {
            each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
            for each in gc.get_objects()
            if type(each) is torch.Tensor and id(each) not in before
        }
        assert len(trace) == 2
        return sum(storages.values())

    held(5)
    once, twice = held(100), held(200)
    assert twice < 2.2 * once
    width = 32 + 2 * 2 * 8  # queries; keys and values of two heads
    assert twice < 1.25 * 4 * 2 * 206 * width  # of which a store has spare rows
