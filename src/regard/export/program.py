"""Models as `torch.export` programs, for runtimes of PyTorch such as ExecuTorch and AOTInductor."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.export.graphs import graphs_of
from regard.export.onnx import dynamic_shapes, quietly


def write_program(model: nn.Module, folder: Path) -> dict[str, Any]:
    """Write the graphs of a model as NAME.pt2, each compared with the model it was made of.

    Raises:
        ValueError: if it cannot be exported, with the reason
    """
    if any(isinstance(part, nn.RNNBase) for part in model.modules()):
        raise ValueError(
            "torch.export unrolls recurrent layers to one length and one number of words, so "
            "that a program would be wrong for others; use --to onnx"
        )
    for graph in graphs_of(model):
        inputs = tuple(graph.inputs.values())
        with torch.no_grad(), quietly():
            try:
                program = torch.export.export(
                    graph.module, inputs, dynamic_shapes=dynamic_shapes(graph)
                )
            except Exception as error:  # torch's own of several modules
                reason = str(error).strip().splitlines()[0]
                raise ValueError(f"torch.export cannot export this model: {reason}") from error
            expected, found = graph.module(*inputs), program.module()(*inputs)
            torch.export.save(program, folder / f"{graph.name}.pt2")
        pairs = zip(*(torch.utils._pytree.tree_leaves(t) for t in (expected, found)), strict=True)
        worst = max(float((a - b).abs().max()) for a, b in pairs if a.numel())
        if not worst <= 1e-4:
            raise ValueError(f"the exported graph {graph.name} differs from the model by {worst:g}")
    return {}
