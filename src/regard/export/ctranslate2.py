"""Transformers as CTranslate2 models, and the search that CTranslate2 does with them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.decoding.batched import by_length
from regard.decoding.search import EMPTY, Hypothesis, Limits, OnStep
from regard.layers.multi_head import MultiHeadAttention
from regard.layers.position import Learned, Position, PositionalEncoding
from regard.layers.transformer import PreNorm
from regard.models import Tokens, Transformer

SPECIAL = ("<blank>", "<s>", "</s>", "<unk>")
TYPES = ("float32", "int8", "bfloat16")
POSITIONS = 4096  # rows of sinusoids that are stored: the longest source and target


def token_of(number: int) -> str:
    """Return the name by which CTranslate2 knows a token id.

    >>> token_of(2), token_of(17)
    ('</s>', 't17')
    """
    return SPECIAL[number] if number < len(SPECIAL) else f"t{number}"


def number_of(token: str) -> int:
    """Return the id of a token by its name."""
    return SPECIAL.index(token) if token in SPECIAL else int(token[1:])


# ------------------------------------------------------------------------------ to write


def write_ctranslate2(model: Any, folder: Path, dtype: str = "float32") -> dict[str, Any]:
    """Write a Transformer as CTranslate2 reads it, and return what `load_ctranslate2` has to know.

    Args:
        dtype: of the weights: "float32", "int8" or "bfloat16"

    Raises:
        ValueError: if CTranslate2 has no such model, with the reason
    """
    from ctranslate2.specs import common_spec
    from ctranslate2.specs.transformer_spec import TransformerSpec

    reason = unsupported_reason(model)
    if reason is not None:
        raise ValueError(f"CTranslate2 cannot run this model: {reason}; use --to onnx")
    activations = {
        torch.relu: common_spec.Activation.RELU,
        F.relu: common_spec.Activation.RELU,
        F.gelu: common_spec.Activation.GELU,
    }
    first = model.encoder.layers[0]
    spec = TransformerSpec.from_config(
        (len(model.encoder.layers), len(model.decoder.layers)),
        first.attention.heads,
        pre_norm=isinstance(first.around_attention, PreNorm),
        activation=activations[first.feed_forward.activation],
        alignment_heads=0,  # the average of all heads
    )
    for side, stack, embedding, position in (
        (spec.encoder, model.encoder, model.source, model.source_position),
        (spec.decoder, model.decoder, model.target, model.target_position),
    ):
        side.position_encodings.encodings = _numbers(_positions(position, embedding))
        embeddings = side.embeddings
        (embeddings[0] if isinstance(embeddings, list) else embeddings).weight = _numbers(
            embedding.weight
        )
        side.scale_embeddings = True
        if isinstance(stack.norm, nn.LayerNorm):
            _norm(side.layer_norm, stack.norm)
        for theirs, ours in zip(side.layer, stack.layers, strict=True):
            _attention(theirs.self_attention.linear, ours.attention, 3)
            _norm(theirs.self_attention.layer_norm, ours.around_attention.norm)
            if side is spec.decoder:
                _attention(theirs.attention.linear, ours.memory_attention, 1)
                _norm(theirs.attention.layer_norm, ours.around_memory_attention.norm)
            _linear(theirs.ffn.linear_0, ours.feed_forward.inner)
            _linear(theirs.ffn.linear_1, ours.feed_forward.outer)
            _norm(theirs.ffn.layer_norm, ours.around_feed_forward.norm)
    _linear(spec.decoder.projection, model.output)
    spec.register_source_vocabulary([token_of(n) for n in range(len(model.source.weight))])
    spec.register_target_vocabulary([token_of(n) for n in range(model.output.out_features)])
    spec.validate()
    spec.optimize(quantization=dtype)
    spec.save(str(folder))
    last = f"decoder.layers.{len(model.decoder.layers) - 1}.memory_attention"
    learned = isinstance(model.target_position, Learned)
    return {
        "vocabulary": model.output.out_features,
        "positions": len(model.target_position.weight) if learned else POSITIONS,
        "attention": last,
    }


def unsupported_reason(model: nn.Module) -> str | None:
    """Return why CTranslate2 cannot run a model, or None if it can."""
    if not isinstance(model, Transformer):
        return f"it runs Transformers, not a {type(model).__name__}"
    if not isinstance(model.source, Tokens):
        return "its sources are float frames"
    if not all(
        type(p) in (PositionalEncoding, Learned)
        for p in (model.source_position, model.target_position)
    ):
        return "its positions are not added to the embeddings"
    for module in model.modules():
        if module.__class__.__name__ == "EfficientAttention":
            return "its encoder has efficient attention"
        if isinstance(module, MultiHeadAttention):
            if module.score != "scaled_dot":
                return f"its score is {module.score}, not scaled_dot"
            if module.kv_heads != module.heads:
                return "groups of its heads share keys and values"
    activation = model.encoder.layers[0].feed_forward.activation  # type: ignore[union-attr]
    if activation not in (torch.relu, F.relu, F.gelu):
        return "its activation is neither ReLU nor GELU"
    return None


def _positions(position: Position, embedding: Tokens) -> Tensor:
    if isinstance(position, Learned):
        return position.weight
    return position(torch.zeros(1, POSITIONS, embedding.dim))[0]


def _attention(theirs: Any, ours: MultiHeadAttention, joined: int) -> None:
    """Projections of an attention, of which the first `joined` are one matrix."""
    parts = [ours.query_projection, ours.key_projection, ours.value_projection]
    _linear(theirs[0], *parts[:joined])
    if parts[joined:]:
        _linear(theirs[1], *parts[joined:])
    _linear(theirs[-1], ours.output_projection)


def _linear(theirs: Any, *ours: nn.Module) -> None:
    theirs.weight = _numbers(torch.cat([layer.weight for layer in ours]))  # type: ignore
    theirs.bias = _numbers(torch.cat([layer.bias for layer in ours]))  # type: ignore


def _norm(theirs: Any, ours: nn.Module) -> None:
    theirs.gamma, theirs.beta = _numbers(ours.weight), _numbers(ours.bias)


def _numbers(tensor: Any) -> Any:
    return tensor.detach().cpu().float().numpy()


# ------------------------------------------------------------------------------ to run


def load_ctranslate2(folder: Path, about: dict[str, Any]) -> "CTranslate2Model":
    """Return the model of a folder.

    Raises:
        ValueError: if a file is damaged
    """
    from ctranslate2 import Translator

    try:
        translator = Translator(
            str(folder),
            compute_type="default",  # that of the weights, or float32 if the processor lacks it
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{folder} cannot be loaded by CTranslate2: {error}") from error
    return CTranslate2Model(translator, about)


class CTranslate2Model(nn.Module):
    """A model that searches by itself: `regard.decoding` is not needed.

    Args:
        translator: of ctranslate2
        about: what `write_ctranslate2` returned
    """

    def __init__(self, translator: Any, about: dict[str, Any]) -> None:
        super().__init__()
        self.translator = translator
        self.attention, self.positions = str(about["attention"]), int(about["positions"])

    def search(
        self,
        sources: Sequence[Sequence[int]],
        *,
        beam: int = 1,
        n_best: int = 1,
        penalty: float = 0.6,
        limits: Limits = Limits(),  # noqa: B008
        prefix: Sequence[Sequence[int]] | None = None,
        return_map: bool = False,
        on_step: OnStep | None = None,
        sentences: int = 128,
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each source, ranked as `regard.decoding.beam` ranks them.

        CTranslate2 searches by log-probability alone; its `beam` finished hypotheses are ranked
        with the length penalty afterwards.

        Args: those of `regard.decoding.beam`, with token ids; `on_step` gets the steps of a
            greedy search only
        """
        nothing = EMPTY._replace(maps={}) if return_map else EMPTY
        found: list[list[Hypothesis]] = [[nothing] for _ in sources]
        lengths = torch.tensor([len(source) for source in sources])
        most = limits.of(lengths).clamp(max=self.positions).tolist()
        real = [number for number, source in enumerate(sources) if len(source)]
        options: dict[str, Any] = {"beam_size": beam, "num_hypotheses": beam}
        if on_step is not None and beam == 1:
            options["callback"] = lambda step: on_step(
                np.array([step.batch_id]), np.array([step.token_id])
            )

        def run(numbers: Sequence[int]) -> None:
            before = None if prefix is None else [prefix[n] for n in numbers]
            longest = max(most[n] for n in numbers)
            results = self._translate([sources[n] for n in numbers], before, longest, **options)
            for number, result in zip(numbers, results, strict=True):
                tokens = (tuple(map(number_of, each)) for each in result.hypotheses)
                own = [Hypothesis(*pair) for pair in zip(tokens, result.scores, strict=True)]
                found[number] = sorted(own, key=lambda one: -one.ranked(penalty))[:n_best]

        for index in by_length([len(sources[n]) for n in real], sentences, 1 << 30):
            run([real[i] for i in index])
        for number in real:  # the limit of a batch is that of its longest source
            if len(found[number][0].tokens) > most[number]:
                run([number])
        if return_map:
            for number in real:
                found[number] = self._with_maps(sources[number], found[number])
        return found

    def _with_maps(self, source: Sequence[int], found: list[Hypothesis]) -> list[Hypothesis]:
        """Hypotheses with their maps, by a pass over each: those of a beam get mixed up."""
        before = [one.tokens[:-1] for one in found]
        longest = max(len(one.tokens) for one in found)
        results = self._translate([source] * len(found), before, longest, return_attention=True)
        maps = (torch.tensor(result.attention[0]) for result in results)
        return [
            one._replace(maps={self.attention: map[None, : len(one.tokens), : len(source)]})
            for one, map in zip(found, maps, strict=True)
        ]

    def _translate(
        self,
        sources: Sequence[Sequence[int]],
        prefix: Sequence[Sequence[int]] | None,
        longest: int,
        **options: Any,
    ) -> Any:
        """What CTranslate2 returns, without its own length penalty and its shortest length."""
        return self.translator.translate_batch(
            [list(map(token_of, source)) for source in sources],
            None if prefix is None else [list(map(token_of, own)) for own in prefix],
            max_input_length=0,
            max_decoding_length=longest,
            min_decoding_length=0,
            length_penalty=0,
            return_scores=True,
            return_end_token=True,
            **{"beam_size": 1, **options},
        )
