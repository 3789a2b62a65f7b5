"""Models as ONNX files, and what runs them: onnxruntime behind the interface of the model."""

import logging
import warnings
from collections import namedtuple
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import observer
from regard.attention.record import CallRecord
from regard.core.map import AttentionMap
from regard.export.graphs import Graph, Outputs, graphs_of
from regard.export.recurrence import replace_recurrences
from regard.layers.efficient import EfficientAttention
from regard.layers.position import Learned
from regard.layers.reorder import BatchReorder, as_reorder
from regard.layers.role import ENCODER_DECODER

LOGGERS = ("torch.onnx", "torch.fx.experimental.symbolic_shapes", "onnxscript")


def write_onnx(model: nn.Module, folder: Path) -> dict[str, Any]:
    """Write the graphs of a model as NAME.onnx, and return what `load_onnx` has to know.

    Raises:
        ValueError: if it cannot be exported, with the reason
    """
    if any(isinstance(part, EfficientAttention) for part in model.modules()):
        raise ValueError(
            "ONNX has no operator for efficient attention; train with model.attention=dot"
        )
    output, position = getattr(model, "output", None), getattr(model, "target_position", None)
    about = {
        "vocabulary": output.out_features if isinstance(output, nn.Linear) else 0,
        "positions": len(position.weight) if isinstance(position, Learned) else None,
        "attention": [
            name
            for name, part in model.named_modules()
            if getattr(part, "role", None) == ENCODER_DECODER
        ],
    }
    for graph in graphs_of(model):
        replace_recurrences(graph.module)
        _write(graph, folder / f"{graph.name}.onnx")
    return about


def _write(graph: Graph, path: Path) -> None:
    with torch.no_grad(), _quietly():
        try:
            program = torch.onnx.export(
                graph.module,
                tuple(graph.inputs.values()),
                dynamo=True,
                input_names=graph.input_names(),
                output_names=graph.outputs,
                dynamic_shapes=_dynamic_shapes(graph),
                verbose=False,
            )
        except Exception as error:  # torch's own of several modules
            reason = str(error.__cause__ or error).strip().splitlines()[0]
            raise ValueError(f"torch cannot export this model to ONNX: {reason}") from error
        assert program is not None
        program.save(path, external_data=False)


def _dynamic_shapes(graph: Graph) -> tuple[Any, ...]:
    """Return the dimensions of any size as `torch.export` wants them."""
    shapes = []
    for key, value in graph.inputs.items():
        own = dict.fromkeys(graph.dynamic[key], torch.export.Dim.DYNAMIC)
        shapes.append([own] * len(value) if isinstance(value, list) else own)
    return (tuple(shapes),) if isinstance(graph.module, Outputs) else tuple(shapes)  # of *inputs


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings of torch's exporter about its own decisions."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# ------------------------------------------------------------------------------ to run them


def load_onnx(folder: Path, about: dict[str, Any]) -> nn.Module:
    """Return the model of a folder: an encoder–decoder, a language model or a classifier.

    Raises:
        ValueError: if a file is damaged
    """
    if (folder / "model.onnx").is_file():
        return OnnxModel(Session(folder / "model.onnx"))
    encoder = folder / "encoder.onnx"
    step = Session(folder / "step.onnx")
    return OnnxDecoder(step, Session(encoder) if encoder.is_file() else None, about)


class Session:
    """A graph that onnxruntime has loaded, from tensors to tensors."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4
        try:
            self.session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # of pybind, which derives each from Exception
            raise ValueError(f"{path} is damaged, or not an ONNX file: {error}") from error
        self.inputs = {each.name: each.shape for each in self.session.get_inputs()}
        self.outputs = [each.name for each in self.session.get_outputs()]

    def __call__(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """All outputs by name; inputs that the graph does not have are left out."""
        given = {name: t.numpy() for name, t in inputs.items() if name in self.inputs}
        found = self.session.run(None, given)
        return {name: torch.from_numpy(a) for name, a in zip(self.outputs, found, strict=True)}


class OnnxModel(nn.Module):
    """A classifier: the outputs of its graph by name, `logits` first, its maps as maps."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.result: Any = namedtuple("Output", session.outputs)  # type: ignore[misc]

    def forward(self, *inputs: Tensor, return_map: bool = False) -> Any:
        named = dict(zip(self.session.inputs, inputs, strict=True))
        found = self.session(named)
        return self.result(
            *(
                AttentionMap.of(t) if name == "affinity" or name.endswith("_map") else t
                for name, t in found.items()
            )
        )


class Logits(nn.Identity):
    """In place of the output layer: the features of an exported step are its logits."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.out_features, self.weight, self.bias = vocabulary, torch.empty(0), None


class Attention(nn.Module):
    """In place of an attention to the source: observers get its weights."""

    role = ENCODER_DECODER

    def notify(self, weights: Tensor) -> None:
        """Notify observers of the weights (batch, heads, S) of one step."""
        listening = observer.observers() if observer.observing else ()
        if not listening:
            return
        rows = weights.unsqueeze(2)
        shape = tuple(rows.shape)
        with observer.calling(self):
            call = CallRecord(
                rows, None, shape, "onnx", None, lambda _: AttentionMap.of(rows), None, weights=rows
            )
            observer.notify(listening, call)


class OnnxState(NamedTuple):
    """The state of a decoder between two steps; a step returns a new one."""

    memory: dict[str, Tensor]  # what it attends to, by the names of the graph
    state: dict[str, Tensor]
    sentences: np.ndarray  # the sentence of each entry of the batch
    length: int

    def reorder(self, index: Tensor | BatchReorder) -> "OnnxState":
        """The state of other beams: entry i becomes what entry index[i] was."""
        order = as_reorder(index, len(self.sentences)).index
        sentences, memory = self.sentences[order.numpy()], self.memory
        if not np.array_equal(sentences, self.sentences):  # beams of a sentence share its memory
            memory = {name: tensor[order] for name, tensor in memory.items()}
        state = {name: tensor[order] for name, tensor in self.state.items()}
        return OnnxState(memory, state, sentences, self.length)


class OnnxDecoder(nn.Module):
    """An encoder–decoder or a language model with the interface that searches need.

    Args:
        graph: one step
        encoder: of the source; None for a language model
        about: what `write_onnx` returned
    """

    def __init__(self, graph: Session, encoder: Session | None, about: dict[str, Any]) -> None:
        super().__init__()
        self.graph, self.encoder = graph, encoder
        self.output = Logits(int(about["vocabulary"]))
        if about["positions"] is not None:  # searches keep to them
            self.target_position = Learned(1, int(about["positions"]))
        self.attention_names = [str(name) for name in about["attention"]]
        for name in self.attention_names:
            _put(self, name.split("."), Attention())

    def encode(self, source: Tensor, source_lengths: Tensor | None = None) -> dict[str, Tensor]:
        """What the encoder returns for ids (batch, S) or frames, with the lengths (batch,)."""
        assert self.encoder is not None
        if source_lengths is None:
            source_lengths = torch.full((len(source),), source.shape[1])
        found = self.encoder({"source": source, "lengths": source_lengths})
        return {"lengths": source_lengths, **found}

    def start(self, memory: dict[str, Tensor] | int) -> OnnxState:
        """The state before the first step, of encoded sources or of so many texts."""
        if isinstance(memory, int):
            empty = {
                name: torch.empty(memory, shape[1], 0, shape[3])
                for name, shape in self.graph.inputs.items()
                if name.startswith("state.")
            }
            return OnnxState({}, empty, np.arange(memory), 0)
        state = {name: t for name, t in memory.items() if name.startswith("state.")}
        held = {name: t for name, t in memory.items() if name not in state}
        return OnnxState(held, state, np.arange(len(memory["lengths"])), 0)

    def step(self, tokens: Tensor, state: OnnxState) -> tuple[Tensor, OnnxState]:
        """Logits (batch, vocabulary) after tokens (batch,), and the new state."""
        found = self.graph({"tokens": tokens, **state.memory, **state.state})
        for number, name in enumerate(self.attention_names):
            self.get_submodule(name).notify(found[f"weights.{number}"])  # type: ignore[operator]
        after = {name: found[f"new_{name}"] for name in state.state}
        return found["logits"], state._replace(state=after, length=state.length + 1)

    def decode(self, memory: dict[str, Tensor], target: Tensor) -> Tensor:
        """Teacher forced: logits (batch, T, vocabulary) after each of the ids (batch, T)."""
        return self._steps(self.start(memory), target)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Source, lengths and target to logits; for a language model, of ids (batch, T)."""
        if self.encoder is None:
            return self._steps(self.start(len(inputs[0])), inputs[0])
        source, lengths, target = inputs
        return self.decode(self.encode(source, lengths), target)

    def _steps(self, state: OnnxState, target: Tensor) -> Tensor:
        logits = []
        for tokens in target.unbind(1):
            now, state = self.step(tokens, state)
            logits.append(now)
        return torch.stack(logits, 1)


def _put(parent: nn.Module, path: Sequence[str], module: nn.Module) -> None:
    """Put a module under a dotted name, below modules that are made for it."""
    for part in path[:-1]:
        if not hasattr(parent, part):
            parent.add_module(part, nn.Module())
        parent = getattr(parent, part)
    parent.add_module(path[-1], module)
