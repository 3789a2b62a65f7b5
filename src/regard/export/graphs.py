"""The graphs of a model: modules whose inputs and outputs are tensors alone, one kind per class.

An encoder–decoder is two graphs. `encoder` reads a batch of sources once; `step` continues every
sentence by one token, from the memory and the state that the encoder returned, or the new state
of the last step.
A language model is a `step`, every other model one graph, `model`.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Prepared
from regard.core.map import AttentionMap
from regard.core.score import Additive
from regard.decoding.search import recording
from regard.layers.cache import Past, SharedMemory
from regard.layers.transformer import DecoderState
from regard.models import GlobalAligner, LanguageModel, Seq2Seq, StackState, State, Transformer
from regard.models.classifier import DocumentClassifier
from regard.models.image import ImageClassifier
from regard.models.pair import PairClassifier

BATCH, LENGTH, STEPS = 3, 7, 5  # sizes of the inputs that a graph is traced with


class Graph(NamedTuple):
    """A module to export, and how its inputs and outputs are called.

    An input is a tensor, or a list of them, named "state.0", "state.1" and so on.
    """

    name: str
    module: nn.Module
    inputs: dict[str, Tensor | list[Tensor]]  # examples
    dynamic: dict[str, dict[int, str]]  # by input, what its dimensions of any size are called
    outputs: list[str]

    def input_names(self) -> list[str]:
        """Names of all tensors that go in."""
        return [name for key, value in self.inputs.items() for name in _names(key, value)]


def _names(key: str, value: Tensor | list[Tensor]) -> list[str]:
    return [key] if isinstance(value, Tensor) else [f"{key}.{n}" for n in range(len(value))]


def graphs_of(model: nn.Module) -> list[Graph]:
    """Return the graphs of a copy of a model in eval mode.

    Raises:
        ValueError: for a kind of model, or of its attention, that has none
    """
    model = deepcopy(model).cpu().eval().requires_grad_(False)
    for kind, make in KINDS.items():
        if isinstance(model, kind):
            return make(model)
    raise ValueError(
        f"a {type(model).__name__} cannot be exported: expected "
        + ", ".join(sorted(kind.__name__ for kind in KINDS))
    )


# ------------------------------------------------------------------------------ encoder–decoders


class GrowingPast(Past):
    """A past whose length is that of its tensors, so that a graph takes one of any length."""

    @classmethod
    def of(cls, tensors: list[Tensor]) -> "GrowingPast":
        """The past (batch, heads, length, width) each."""
        batch, length = tensors[0].shape[0], tensors[0].shape[-2]
        return cls(batch, None, tuple(tensors), 0, length, length)

    def append(self, *new: Tensor) -> "GrowingPast":
        return self.of([torch.cat(p, dim=-2) for p in zip(self.buffers, new, strict=True)])


class TransformerEncoder(nn.Module):
    """Source ids or frames to the projected memory of every layer, and empty pasts."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        memory = self.model.encode(source, lengths)
        layers = self.model.start(memory).layers
        held = [tensor for layer in layers for tensor in layer.memory.tensors]
        return held, [tensor[..., :0, :].clone() for tensor in held]


class TransformerStep(nn.Module):
    """One token of every sentence; the state is keys and values of every layer's past."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, lengths: Tensor, memory: list[Tensor], state: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        steps = state[0].shape[-2]
        positions = torch.arange(memory[0].shape[-2], device=lengths.device)
        visible = (positions < lengths.unsqueeze(1))[:, None, None]  # (batch, 1, 1, S)
        shade = torch.where(visible, 0.0, -torch.inf)
        layers = tuple(
            DecoderState(
                GrowingPast.of(state[place : place + 2]),
                SharedMemory(tuple(memory[place : place + 2]), visible, 1, steps, shade),
            )
            for place in range(0, len(state), 2)
        )
        with recording(self.model, True) as last_step:
            before = StackState(layers, steps, tokens.shape[0])
            features, after = self.model.step(tokens, before)
            weights = last_step() or {}
        pasts = [tensor for layer in after.layers for tensor in layer.past.tensors]
        return self.model.output(features), pasts, list(weights.values())


def _transformer(model: Transformer) -> list[Graph]:
    attention = model.decoder.layers[0].attention
    shape = (BATCH, attention.kv_heads, STEPS, attention.dim // attention.heads)  # type: ignore
    state = [torch.randn(*shape) for _ in range(2 * len(model.decoder.layers))]  # type: ignore
    return _encoder_decoder(TransformerEncoder(model), TransformerStep(model), state, growing=True)


class RecurrentEncoder(nn.Module):
    """Source ids or frames to the memory, projected for the score, and the first state."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        state = self.model.start(self.model.encode(source, lengths))
        held = [] if state.memory is None else [t[:, 0] for t in state.memory.tensors[:2]]
        return held, [*state.hidden, *([] if state.fed is None else [state.fed])]


class RecurrentStep(nn.Module):
    """One token of every sentence; the state is that of the recurrent layers, and what is fed."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model
        self.hidden = len(model.decoder.bridge.projections)

    def forward(
        self, tokens: Tensor, lengths: Tensor, memory: list[Tensor], state: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        held = None
        if memory:
            key, value = memory
            score: Any = self.model.decoder.attention.score
            additive = isinstance(score, Additive)
            prepared = Prepared(score, key, value, lengths) if additive else None
            tensors = (key.unsqueeze(1), value.unsqueeze(1), lengths)
            held = SharedMemory(tensors, None, 1, prepared=prepared)
        fed = state[self.hidden] if len(state) > self.hidden else None
        with recording(self.model, True) as last_step:
            before = State(tuple(state[: self.hidden]), held, fed)
            features, after = self.model.step(tokens, before)
            weights = last_step() or {}
        new = [*after.hidden, *([] if after.fed is None else [after.fed])]
        return self.model.output(features), new, list(weights.values())


def _recurrent(model: Seq2Seq) -> list[Graph]:
    attention = getattr(model.decoder, "attention", None)
    if attention is not None and not isinstance(attention, GlobalAligner):
        raise ValueError(
            "local attention cannot be exported: the window of a step depends on its number"
        )
    encoder = RecurrentEncoder(model)
    with torch.no_grad():
        _, state = encoder(*_source(model.encoder.embedding))
    return _encoder_decoder(encoder, RecurrentStep(model), state, growing=False)


def _source(embedding: nn.Module) -> tuple[Tensor, Tensor]:
    """Example ids (batch, S) or frames (batch, S, width), and lengths."""
    lengths = torch.tensor([LENGTH, LENGTH - 2, 2])
    if hasattr(embedding, "projection"):
        return torch.randn(BATCH, LENGTH, embedding.projection.in_features), lengths  # type: ignore
    return torch.ones(BATCH, LENGTH, dtype=torch.long), lengths


def _encoder_decoder(encoder: Any, step: Any, state: list[Tensor], *, growing: bool) -> list[Graph]:
    """Both graphs of a model whose state has these shapes.

    Args:
        growing: whether the state has a dimension for the steps so far, the last but one
    """
    model = encoder.model
    source, lengths = _source(model.source if growing else model.encoder.embedding)
    with torch.no_grad():
        memory, _ = encoder(source, lengths)
        _, _, weights = step(torch.ones(BATCH, dtype=torch.long), lengths, memory, state)
    names = _names("memory", memory), _names("state", state)
    inputs: dict[str, Any] = {"source": source, "lengths": lengths}
    batch = {0: "batch"}
    dynamic = {"source": {0: "batch", 1: "source"}, "lengths": batch}
    encode = Graph("encoder", encoder, inputs, dynamic, [*names[0], *names[1]])
    inputs = {"tokens": torch.ones(BATCH, dtype=torch.long), "lengths": lengths}
    inputs |= {"memory": memory, "state": state}
    length = memory[0].dim() - 2 if memory else 0
    dynamic = {"tokens": batch, "lengths": batch, "memory": {0: "batch", length: "source"}}
    dynamic["state"] = {0: "batch", state[0].dim() - 2: "steps"} if growing else batch
    outputs = ["logits", *_names("new_state", state), *_names("weights", weights)]
    return [encode, Graph("step", step, inputs, dynamic, outputs)]


class LanguageStep(nn.Module):
    """One token of every text; the state is keys and values of every layer's past."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        pasts = tuple(GrowingPast.of(state[place : place + 2]) for place in range(0, len(state), 2))
        before = StackState(pasts, state[0].shape[-2], tokens.shape[0])
        features, after = self.model.step(tokens, before)
        return self.model.output(features), [t for layer in after.layers for t in layer.tensors]


def _language(model: LanguageModel) -> list[Graph]:
    attention: Any = model.decoder.layers[0].attention
    shape = (BATCH, attention.kv_heads, STEPS, attention.dim // attention.heads)
    state = [torch.randn(*shape) for _ in range(2 * len(model.decoder.layers))]
    inputs: dict[str, Any] = {"tokens": torch.ones(BATCH, dtype=torch.long), "state": state}
    dynamic = {"tokens": {0: "batch"}, "state": {0: "batch", 2: "steps"}}
    outputs = ["logits", *_names("new_state", state)]
    return [Graph("step", LanguageStep(model), inputs, dynamic, outputs)]


# ------------------------------------------------------------------------------ other models


class Outputs(nn.Module):
    """A model whose outputs are tensors: its maps computed, and what is not a tensor left out."""

    def __init__(self, model: nn.Module, select: Callable[[Any], tuple[Any, ...]]) -> None:
        super().__init__()
        self.model, self.select = model, select

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        found = self.select(self.model(*inputs))
        return tuple(p.dense() if isinstance(p, AttentionMap) else p for p in found)


def _classifier(model: DocumentClassifier) -> list[Graph]:
    words = torch.ones(BATCH, STEPS, LENGTH, dtype=torch.long)
    counts = torch.tensor([[LENGTH, 2, 3, 1, 4], [5, LENGTH, 0, 0, 0], [3, 1, 2, 0, 0]])
    inputs: dict[str, Any] = {"words": words, "word_lengths": counts}
    inputs["sentence_lengths"] = torch.tensor([STEPS, 2, 3])
    sizes = {0: "batch", 1: "sentences"}
    dynamic = {"words": {**sizes, 2: "words"}, "word_lengths": sizes}
    dynamic["sentence_lengths"] = {0: "batch"}
    names = ["logits", "word_map", "sentence_map"]
    return [Graph("model", Outputs(model, tuple), inputs, dynamic, names)]


def _pair(model: PairClassifier) -> list[Graph]:
    (left, lengths), (right, _) = map(_source, (model.left.embedding, model.right.embedding))
    inputs: dict[str, Any] = {"left": left, "left_lengths": lengths}
    inputs |= {"right": right[:, :STEPS].contiguous(), "right_lengths": lengths.clamp(max=STEPS)}
    dynamic = {"left": {0: "batch", 1: "left"}, "left_lengths": {0: "batch"}}
    dynamic |= {"right": {0: "batch", 1: "right"}, "right_lengths": {0: "batch"}}
    names = ["logits", "left_map", "right_map", "affinity"]
    with torch.no_grad():
        found = model(*inputs.values())[1]._asdict()
    kept = [name for name in names[1:] if found[name] is not None]

    def select(output: Any) -> tuple[Any, ...]:
        return output[0], *(getattr(output[1], name) for name in kept)

    return [Graph("model", Outputs(model, select), inputs, dynamic, ["logits", *kept])]


class ImageGraph(nn.Module):
    """Images to logits and the weights of the patches."""

    def __init__(self, model: ImageClassifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        found = self.model(images, return_map=True)
        return found.logits, found.weights


def _image(model: ImageClassifier) -> list[Graph]:
    inputs: dict[str, Any] = {"images": torch.rand(BATCH, *model.size)}
    dynamic = {"images": {0: "batch"}}
    return [Graph("model", ImageGraph(model), inputs, dynamic, ["logits", "weights"])]


KINDS: dict[type[nn.Module], Callable[[Any], list[Graph]]] = {
    Transformer: _transformer,
    Seq2Seq: _recurrent,
    LanguageModel: _language,
    DocumentClassifier: _classifier,
    PairClassifier: _pair,
    ImageClassifier: _image,
}
