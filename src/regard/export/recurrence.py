"""Recurrent layers as operators of ONNX, which stop at the length of each sentence."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

# gates in the order of ONNX, by their places in torch: r z n → z r n, and i f g o → i o f g
GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}
OPSET = 18  # of the graphs that torch writes


def replace_recurrences(model: nn.Module) -> None:
    """Replace every recurrent layer of a model by `OnnxRecurrence`."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.GRU | nn.LSTM):
                setattr(parent, name, OnnxRecurrence(child))


class OnnxRecurrence(nn.Module):
    """`nn.GRU` or `nn.LSTM` of one layer, in a graph that is exported to ONNX.

    Called as `regard.layers.recurrence.recur` is. In eager mode it has shapes, and no numbers.

    Args:
        layer: of one layer, in one direction or in both
    """

    def __init__(self, layer: nn.GRU | nn.LSTM) -> None:
        super().__init__()
        if layer.num_layers > 1:
            raise ValueError(f"one recurrent layer at a time is exported, got {layer.num_layers}")
        self.kind, self.hidden = type(layer).__name__, layer.hidden_size
        self.both = layer.bidirectional
        self.all_weights = layer.all_weights  # for single steps
        parts = [self._reordered(weights) for weights in layer.all_weights]
        self.weight, self.recurrent, self.bias = (
            nn.Parameter(torch.stack(part), requires_grad=False)
            for part in zip(*parts, strict=True)
        )

    def forward(
        self, x: Tensor, first: Sequence[Tensor] = (), counts: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        batch, steps, _ = x.shape
        directions = 2 if self.both else 1
        if counts is None:
            counts = torch.full((batch,), steps)
        inputs = [x.transpose(0, 1), self.weight, self.recurrent, self.bias, counts.int()]
        inputs += [part.unsqueeze(0) for part in first]
        attributes: dict[str, Any] = {
            "hidden_size": self.hidden,
            "direction": "bidirectional" if self.both else "forward",
        }
        if self.kind == "GRU":
            attributes["linear_before_reset"] = 1
        end = (directions, batch, self.hidden)
        shapes = [(steps, directions, batch, self.hidden), end, end]
        count = 2 if self.kind == "GRU" else 3
        states, *ends = torch.onnx.ops.symbolic_multi_out(
            self.kind,
            inputs,
            attributes,
            dtypes=[torch.float32] * count,
            shapes=shapes[:count],
            version=OPSET,
        )
        states = states.permute(2, 0, 1, 3).flatten(2)
        return states, [part.transpose(0, 1).flatten(1) for part in ends]

    def _reordered(self, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Weights of inputs and states, and both biases, of one direction."""
        order = list(GATES[self.kind])
        into, given, *biases = (
            weight.unflatten(0, (len(order), -1))[order].flatten(0, 1) for weight in weights
        )
        return into, given, torch.cat(biases)
