"""Any architecture of transformers as a small random model, with inputs that it reads."""

import copy
import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

WIDTH, HEADS, VOCABULARY, IMAGE, PATCH = 32, 4, 64, 32, 8
TOKENS = 7  # of a text
LARGEST = 80_000_000  # parameters of a model that is tried
OUTPUTS = ("logits", "last_hidden_state", "logits_per_image", "prediction_logits")

# What an integer of a configuration becomes, by the first pattern that its name matches; None: as
# it is. Sizes of vectors become equal, so that those of different parts still fit each other.
SIZES: tuple[tuple[str, int | None], ...] = (
    (r"type_vocab_size|chunk_size_feed_forward|num_channels|num_labels|in_channels|in_chans", None),
    (r"vocab_size|num_embeddings$|codebook_size", VOCABULARY),
    (r"feat_extract_layers|max_window_layers|head_depth|num_layers_per", None),
    (r"(layers?|layer|depth|n_layers|num_blocks|num_loops)$", 2),
    (r"(key_value|kv|linear_key|linear_num_key)_heads|num_kv|linear_num_key_heads", 2),
    (r"(heads?|n_head|nhead)$", HEADS),
    (r"qk_head_dim", 16),
    (r"rotary_dim", 4),
    (r"_period$", 2),
    (r"_offset$", 1),
    (r"(head_dim|d_kv|head_size|dim_head|head_width)$|rope_head_dim|nope_head_dim", 8),
    (r"lora_rank|_rank$", 8),
    (r"experts_per_tok|moe_topk|moe_top_k|num_selected|experts_top_k|moe_k$", 2),
    (r"shared_experts|n_group|topk_group|first_k_dense|nextn", 1),
    (r"num_(local_)?experts$|n_routed_experts|num_.*experts$", 4),
    (r"(intermediate|ffn|mlp|inner|ff).*(size|dim)$|d_ff|d_inner|n_inner|dff|feedforward", 48),
    (r"(hidden|embed|embedding|model|proj|projection|output|input|encoder|decoder|text|vision|"
     r"audio|out|q_pooling|class|conv|latent|state|query|key|value|fusion|d|n|emb|depth|pooler)"
     r"?_?(hidden_)?(size|dim|dims|embd|width|model|channels)$|^dim$|^width$|^channels$", WIDTH),
    (r"max_.*position|n_positions|max_seq|n_ctx|context_length|max_len", 64),
    (r"sliding_window|local_attention|attention_chunk_size|attention_window|local_window", 4),
    (r"image_size|img_size|input_resolution", IMAGE),
    (r"temporal_patch_size|merge_size", None),
    (r"patch_size|patch_stride", PATCH),
    (r"num_queries|num_query_tokens|num_latents|num_denoising", 5),
    (r"num_mel_bins", 16),
    (r"index_topk|block_topk|topk_blocks", 3),
    (r"relative_attention_num_buckets", 8),
)  # fmt: skip
FEWER = tuple((pattern, size) for pattern, size in SIZES if size in (2, 4, VOCABULARY))
"""Rules for models whose vectors must keep their sizes: fewer layers, experts and tokens."""

PAIRS = (
    ("num_key_value_heads", "num_attention_heads"),
    ("num_key_value_heads", "num_heads"),
    ("mamba_n_heads", "num_attention_heads"),
    ("qk_rope_head_dim", "head_dim"),
)
"""Names of numbers that stay equal where they are."""

MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8}
OWN_SIZES: dict[str, dict[str, Any]] = {
    "bamba": MAMBA | {"attn_layer_indices": [1]},
    "deepseek_v2": {"num_experts_per_tok": 2, "topk_method": "greedy"},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 1, "mask_token_id": 2},
    "falcon_h1": MAMBA | {"mamba_d_ssm": 64},
    "granitemoehybrid": MAMBA | {"layer_types": ["linear_attention", "full_attention"]},
    "mamba2": {"head_dim": 16, "n_groups": 1},
    "nemotron": {"num_key_value_heads": 4},
    "xmod": {"default_language": "en_XX"},
}
"""Numbers by the type of model, which follow from others by a rule of their own."""

IDS = re.compile(r"(token|bos|eos|pad|sep|cls|unk|mask|start|end)_?(token)?_?(id|index|ids)$|_id$")
INDICES = re.compile(r"(attn_)?layer_indices$|layer_ids$")
LISTS = re.compile(r"depths$|blocks_per_stage|num_blocks|stage_num_blocks")


def small_configs(config_class: Any) -> Iterator[Any]:
    """Yield configurations of a class, the smallest first; a model of the first may not build."""
    default = config_class()
    for rules in (SIZES, FEWER):
        for keep in ((), ("vision", "audio")):
            try:
                yield _shrunk(default, rules, keep)
            except Exception:  # a size that its own check refuses
                continue
    yield default


def _shrunk(config: Any, rules: tuple, keep: tuple[str, ...]) -> Any:
    """A copy of a configuration, and of those inside it, with small numbers."""
    from transformers import PretrainedConfig

    fields = {k: v for k, v in vars(config).items() if not k.startswith("_")}
    layers = _kept_layers(fields)
    changed: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, PretrainedConfig):
            inside = any(part in name for part in keep)
            changed[name] = copy.deepcopy(value) if inside else _shrunk(value, rules, keep)
        elif isinstance(value, bool) or name in ("model_type", "transformers_version", "dtype"):
            continue
        elif isinstance(value, int):
            changed[name] = _number(name, value, rules, len(layers))
        elif isinstance(value, list | tuple) and value:
            changed[name] = _list(name, value, rules, layers, fields)
    for few, all_heads in PAIRS:
        if fields.get(few) is not None and fields.get(few) == fields.get(all_heads):
            changed[few] = changed.get(all_heads, fields[all_heads])
    if fields.get("qk_rope_head_dim") and fields.get("qk_nope_head_dim"):
        changed["qk_head_dim"] = changed["qk_rope_head_dim"] + changed["qk_nope_head_dim"]
    if "head_dim" in fields and fields["head_dim"] is None and rules is SIZES:
        changed["head_dim"] = 8
    has_sections = "mrope_section" in getattr(config, "ignore_keys_at_rope_validation", ())
    if isinstance(fields.get("rope_parameters"), dict) and rules is SIZES and has_sections:
        changed["rope_parameters"] = _sections(fields["rope_parameters"])
    if rules is SIZES:
        changed |= OWN_SIZES.get(config.model_type, {})
    new = copy.deepcopy(config)
    for name, value in changed.items():
        try:
            setattr(new, name, value)
        except (AttributeError, NotImplementedError):
            continue  # computed from others
    return new


def _sections(rope: dict[str, Any]) -> dict[str, Any]:
    """Parameters of rotary positions, with the sections of heads of 8 numbers."""
    half = int(8 * rope.get("partial_rotary_factor", 1.0)) // 2
    sections = [half // 3] * 3
    sections[0] += half - sum(sections)
    return rope | {"mrope_section": sections}


def _kept_layers(fields: dict[str, Any]) -> list[int]:
    """The numbers of the layers that are kept: two, or the first of each kind."""
    count = next(
        (fields[n] for n in ("num_hidden_layers", "n_layer", "num_layers") if n in fields), 2
    )
    lists = [v for v in fields.values() if isinstance(v, list | tuple) and len(v) == count]
    if not isinstance(count, int) or count < 3 or not lists:
        return [0, 1]
    kinds: dict[str, int] = {}
    for layer in range(count):
        kinds.setdefault(repr([each[layer] for each in lists]), layer)
    first = sorted(kinds.values())[:4]
    return first if len(first) > 1 else [first[0], count - 1]


def _number(name: str, value: int, rules: tuple, layers: int) -> int:
    if value <= 1:
        return value
    if IDS.search(name):
        return value if value < VOCABULARY else VOCABULARY - 1 - value % 19
    for pattern, size in rules:
        if re.search(pattern, name):
            if size is None:
                return value
            if re.search(r"num_hidden_layers|^n_layer$|^num_layers$", name):
                return min(value, layers)
            return min(value, size)
    return value


def _list(name: str, value: Any, rules: tuple, layers: list[int], fields: dict[str, Any]) -> Any:
    counts = [fields.get(n) for n in ("num_hidden_layers", "n_layer", "num_layers")]
    if len(value) in counts and len(value) > 2:
        return type(value)(value[layer] for layer in layers)
    if IDS.search(name) and all(isinstance(each, int) for each in value):
        return type(value)(_number(name, each, rules, len(layers)) for each in value)
    if LISTS.search(name):
        return type(value)(1 for _ in value)
    if INDICES.search(name) and all(isinstance(each, int) for each in value):
        return type(value)([len(layers) - 1])
    if re.search(r"image_size|img_size", name) and rules is SIZES:
        return type(value)(min(each, IMAGE) for each in value)
    return value


def build(model_class: Any, config: Any, attention: str) -> nn.Module:
    """A model with weights of normal scale, the same for each attention implementation.

    Raises:
        ValueError: if it has more parameters than are tried
    """
    with torch.device("meta"):
        size = sum(each.numel() for each in model_class(copy.deepcopy(config)).parameters())
    if size > LARGEST:
        raise ValueError(f"it has {size:,} parameters")
    torch.manual_seed(7)
    model = model_class._from_config(
        copy.deepcopy(config), attn_implementation=attention, dtype=torch.float32
    )
    generator = torch.Generator().manual_seed(11)
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_floating_point():
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            if id(parameter) in tables:
                parameter.copy_(noise)
            elif parameter.dim() > 1:  # so that vectors keep their length, and attention is uneven
                parameter.copy_(1.5 * noise / max(parameter[0].numel(), 1) ** 0.5)
            else:
                parameter.add_(0.1 * noise)
    return model.eval()


def inputs_of(model: Any) -> Iterator[dict[str, Any]]:
    """Yield what a model may read, a padded batch of two; the first that fits is used."""
    names = inspect.signature(model.forward).parameters
    config, main = model.config, model.main_input_name
    takes_pairs = "decoder_input_ids" in names and config.is_encoder_decoder
    text = text_inputs(left=model.can_generate() and not config.is_encoder_decoder)
    pair = {"decoder_input_ids": torch.tensor([[1, 9, 8, 7], [1, 5, 6, 4]])} if takes_pairs else {}
    image = {"pixel_values": _noise(2, _find(config, "num_channels", 3), *_sides(config))}
    if main == "input_ids" or "input_ids" in names:
        only = {name: text[name] for name in text if name in names}
        yield only | pair
        if "pixel_values" in names:
            yield only | image | pair
        if "bbox" in names:
            yield only | {"bbox": torch.randint(0, 60, (2, TOKENS, 4)).sort(-1).values} | pair
            boxes = {"bbox": torch.randint(0, 60, (2, TOKENS, 4)).sort(-1).values}
            yield only | boxes | image | pair
    if "pixel_values" in names:
        yield image | pair
        frames = _find(config, "num_frames", 2)
        yield {"pixel_values": image["pixel_values"].unsqueeze(1).repeat(1, frames, 1, 1, 1)}
    if "pixel_values_videos" in names:
        frames = _find(config, "frames_per_clip", _find(config, "num_frames", 2))
        video = image["pixel_values"].unsqueeze(1).repeat(1, frames, 1, 1, 1)
        yield {"pixel_values_videos": video}
    mel = _find(config, "num_mel_bins", _find(config, "input_feat_per_channel", 16))
    length = 2 * _find(config, "max_source_positions", 32)
    for name in ("input_features", "input_values", "inputs_embeds", "past_values", "inputs"):
        if name not in names:
            continue
        if name == "input_values":
            yield {name: _noise(2, 2400)} | pair
            yield {name: _noise(2, _find(config, "max_length", 64), mel)}
            yield {name: _noise(2, 1, 2400)}
        elif name == "past_values":
            steps = _find(config, "context_length", 64)
            yield {name: _noise(2, steps, _find(config, "num_input_channels", 1))}
        else:
            yield {name: _noise(2, mel, min(length, 200))} | pair
            yield {name: _noise(2, 40, mel)} | pair
            yield {name: _noise(2, 40, WIDTH)} | pair


def text_inputs(*, left: bool) -> dict[str, Tensor]:
    """Two texts, of which the second is padded."""
    ids = torch.tensor([[5, 7, 11, 3, 12, 9, 13], [4, 6, 8, 10, 0, 0, 0]])
    mask = torch.tensor([[1] * TOKENS, [1] * 4 + [0] * 3])
    if left:
        ids[1], mask[1] = ids[1].roll(3), mask[1].roll(3)
    return {"input_ids": ids, "attention_mask": mask}


def main_output(output: Any, batch: int = 2) -> Tensor:
    """The tensor of an output that is compared."""
    values = dict(output) if hasattr(output, "keys") else dict(enumerate(output))
    named = [values[name] for name in OUTPUTS if isinstance(values.get(name), Tensor)]
    for value in [*named, *values.values()]:
        if isinstance(value, Tensor) and value.is_floating_point() and len(value) == batch:
            return value
    raise ValueError("it returns no tensor of the batch")


def _find(config: Any, name: str, default: int) -> Any:
    """A number of a configuration, or of one inside it."""
    for place in (
        config,
        *(getattr(config, each, None) for each in getattr(config, "sub_configs", {})),
    ):
        value = getattr(place, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def _sides(config: Any) -> tuple[int, int]:
    for place in (getattr(config, "vision_config", None), config):
        size = getattr(place, "image_size", None)
        if isinstance(size, int):
            return size, size
        if isinstance(size, list | tuple) and len(size) == 2:
            return tuple(size)
    return IMAGE, IMAGE


def _noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))
