"""Our Transformer with its own weights in CTranslate2, to decode beside ours."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.layers.multi_head import MultiHeadAttention
from regard.layers.transformer import PreNorm
from regard.models import Transformer

SPECIAL = ("<blank>", "<s>", "</s>", "<unk>")


def token_of(number: int) -> str:
    """The name of a token, by which CTranslate2 knows it."""
    return SPECIAL[number] if number < len(SPECIAL) else f"t{number}"


def converted(model: Transformer, folder: Path, positions: int = 1024) -> Path:
    """Store a sinusoidal Transformer of dot-product heads as CTranslate2 reads it.

    Args:
        model: with as many key heads as query heads
        folder: to be made
        positions: how many rows of sinusoids to store
    """
    from ctranslate2.specs import common_spec
    from ctranslate2.specs.transformer_spec import TransformerSpec

    first = model.encoder.layers[0]
    spec = TransformerSpec.from_config(
        (len(model.encoder.layers), len(model.decoder.layers)),
        first.attention.heads,
        pre_norm=isinstance(first.around_attention, PreNorm),
        activation=common_spec.Activation.RELU,
    )
    for side, stack, reader, position in (
        (spec.encoder, model.encoder, model.source, model.source_position),
        (spec.decoder, model.decoder, model.target, model.target_position),
    ):
        table = position(torch.zeros(1, positions, reader.dim))[0]
        side.position_encodings.encodings = _numbers(table)
        embeddings = side.embeddings
        (embeddings[0] if isinstance(embeddings, list) else embeddings).weight = _numbers(
            reader.weight
        )
        side.scale_embeddings = True
        if isinstance(stack.norm, nn.LayerNorm):
            _norm(side.layer_norm, stack.norm)
        for theirs, ours in zip(side.layer, stack.layers, strict=True):
            _self_attention(theirs.self_attention, ours.attention)
            _norm(theirs.self_attention.layer_norm, ours.around_attention.norm)
            if side is spec.decoder:
                _attention(theirs.attention, ours.memory_attention)
                _norm(theirs.attention.layer_norm, ours.around_memory_attention.norm)
            _linear(theirs.ffn.linear_0, ours.feed_forward.inner)
            _linear(theirs.ffn.linear_1, ours.feed_forward.outer)
            _norm(theirs.ffn.layer_norm, ours.around_feed_forward.norm)
    _linear(spec.decoder.projection, model.output)
    names = [token_of(number) for number in range(model.output.out_features)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.validate()
    spec.optimize(quantization="float32")
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    return folder


def _self_attention(theirs: Any, ours: MultiHeadAttention) -> None:
    _linear(theirs.linear[0], ours.query_projection, ours.key_projection, ours.value_projection)
    _linear(theirs.linear[1], ours.output_projection)


def _attention(theirs: Any, ours: MultiHeadAttention) -> None:
    _linear(theirs.linear[0], ours.query_projection)
    _linear(theirs.linear[1], ours.key_projection, ours.value_projection)
    _linear(theirs.linear[2], ours.output_projection)


def _linear(theirs: Any, *ours: nn.Module) -> None:
    theirs.weight = _numbers(torch.cat([layer.weight for layer in ours]))  # type: ignore
    theirs.bias = _numbers(torch.cat([layer.bias for layer in ours]))  # type: ignore


def _norm(theirs: Any, ours: nn.Module) -> None:
    theirs.gamma, theirs.beta = _numbers(ours.weight), _numbers(ours.bias)  # type: ignore


def _numbers(tensor: Any) -> Any:
    return tensor.detach().float().numpy()
