"""Nodes of a graph: the class of each, from its own features and those of its neighbours."""

import os
from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.data import fingerprint
from regard.data.datasets import data_file, data_folder
from regard.data.graph import (
    Graph,
    generate_graph,
    read_edge_list,
    read_planetoid,
    rows_that_sum_to_one,
)
from regard.models.graph import GraphAttentionNetwork
from regard.tasks.node_classifier import GRAPH, NodeClassifier, read_graph_of, write_graph
from regard.tasks.run import load_weights
from regard.training import Loss, stored_file
from regard.training.config import Config
from regard.training.run_directory import read_run_config
from regard.training.settings import Settings, read_settings

Count = Annotated[int, Field(ge=1)]
PLANETOID = "planetoid/{}.npz"  # below the data folder


class Data(Settings):
    """The table `[data]`: one graph."""

    name: Literal["generated", "cora", "citeseer"] | None = Field(
        None, description="by default cora if REGARD_DATA has it, else generated"
    )
    path: str | None = Field(None, description="a planetoid npz file; or else")
    nodes: str | None = Field(None, description="a file of nodes: name, features, class")
    edges: str | None = Field(None, description="and a file of edges: two names")
    per_class: Count = Field(20, description="nodes of an edge list to train on, of each class")
    count: Count = Field(600, description="nodes to generate")
    normalize: bool = Field(True, description="whether a node's features are made to sum to one")

    @model_validator(mode="after")
    def _one_source(self) -> "Data":
        given = [self.name, self.path, self.nodes]
        if sum(one is not None for one in given) > 1:
            raise ValueError("give one of name, path, and nodes with edges")
        if (self.nodes is None) != (self.edges is None):
            raise ValueError("nodes and edges belong together: give both files")
        return self


class Model(Settings):
    """The table `[model]`: Veličković et al. 2018, section 3.3, unless told otherwise."""

    hidden: Count = Field(8, description="width of one head")
    heads: Count = 8
    output_heads: Count = Field(1, description="heads of the last layer, averaged")
    layers: Count = 2
    score: Literal["gat", "gatv2"] = "gat"
    dropout: float = Field(0.6, ge=0, lt=1, description="of what a layer reads")
    attention_dropout: float = Field(0.6, ge=0, lt=1, description="of the edges' weights")


class LossSettings(Settings):
    """The table `[loss]`."""

    l2: float = Field(
        5e-4, ge=0, description="½·l2·‖θ‖² is added to the loss; not AdamW's weight decay"
    )


class GraphTask:
    """The task of nodes: one graph, seen whole at every step.

    Args:
        graph: what to learn from
        model: sizes of the network
        loss: how it is trained
        name: what the graph is called
    """

    unit = "nodes"
    metric = "accuracy"
    larger_is_better = True

    def __init__(
        self, graph: Graph, model: Model, loss: LossSettings, name: str = "the graph"
    ) -> None:
        self.graph, self.model, self.loss_settings, self.name = graph, model, loss, name

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "GraphTask":
        """The task of a configuration, with the graph stored in the run if one is given."""
        data = read_settings(Data, config.data, "data")
        if data.path is None and data.nodes is None:
            # kept with the run, which goes on with its graph wherever REGARD_DATA points then
            config.data["name"] = data.name or _default_name()
            data = read_settings(Data, config.data, "data")
        model = read_settings(Model, config.model, "model")
        loss = read_settings(LossSettings, config.loss, "loss")
        name = str(data.name or data.path or data.nodes)
        stored = stored_file(run, GRAPH)
        graph = read_graph_of(stored.parent) if stored else read_graph(data, config.seed)
        return cls(graph, model, loss, name)

    @classmethod
    def open(cls, run: Path) -> NodeClassifier:
        """What `regard.load` gives for a run of this task."""
        graph = read_graph_of(run)
        model = read_settings(Model, read_run_config(run).model, "model")
        return NodeClassifier(load_weights(build_network(graph, model), run), graph)

    def build(self) -> nn.Module:
        """A fresh network for the graph's features and classes."""
        return build_network(self.graph, self.model)

    def steps(self, epoch: int) -> int:
        """One: the graph is one batch."""
        return 1

    def batch(self, epoch: int, step: int) -> Graph:
        """The graph."""
        return self.graph

    def loss(self, model: nn.Module, batch: Graph) -> Loss:
        """Cross entropy of the training nodes, and their share of ½·l2·‖θ‖² each."""
        logits = model(batch.nodes, batch.edges)[batch.train]
        total = F.cross_entropy(logits, batch.labels[batch.train], reduction="sum")
        norm = sum((p.square().sum() for p in model.parameters()), total.new_zeros(()))
        return Loss(total + 0.5 * self.loss_settings.l2 * norm * len(batch.train), len(batch.train))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Loss and accuracy of the validation nodes, and accuracy of the test nodes."""
        graph = self.graph
        logits = model(graph.nodes, graph.edges)
        loss = F.cross_entropy(logits[graph.valid], graph.labels[graph.valid])
        return {
            "loss": float(loss),
            "accuracy": _accuracy(logits, graph.labels, graph.valid),
            "test_accuracy": _accuracy(logits, graph.labels, graph.test),
        }

    def write(self, run: Path) -> None:
        """Store the graph: a node is classified by its neighbours, so the model is no use alone."""
        write_graph(self.graph, run)

    def fingerprint(self) -> dict[str, str]:
        """The fingerprint of the graph, which is a part of the run."""
        return {"graph": fingerprint(self.graph)}

    def describe(self) -> str:
        """Statistics of the graph, for people."""
        graph = self.graph
        nodes, features = graph.nodes.shape
        same = graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]
        return "\n".join(
            (
                f"{self.name}: {nodes:,} nodes with {features:,} features, "
                f"{graph.edges.shape[1] // 2:,} edges, "
                f"{same.float().mean():.0%} of them inside a class",
                f"{len(graph.classes)} classes: {', '.join(graph.classes)}",
                f"{len(graph.train):,} nodes for training, {len(graph.valid):,} for validation, "
                f"{len(graph.test):,} for test",
            )
        )


def read_graph(data: Data, seed: int = 1) -> Graph:
    """The graph of a table `[data]`."""
    if data.path is not None:
        graph = read_planetoid(data.path)
    elif data.nodes is not None and data.edges is not None:
        graph = read_edge_list(data.nodes, data.edges, per_class=data.per_class, seed=seed)
    else:
        name = data.name or _default_name()
        if name == "generated":
            graph = generate_graph(data.count, seed=seed)
        else:
            graph = read_planetoid(data_file(name, PLANETOID.format(name)))
    if data.normalize:
        graph = graph._replace(nodes=rows_that_sum_to_one(graph.nodes))
    return graph


def build_network(graph: Graph, model: Model) -> GraphAttentionNetwork:
    """A network for this graph."""
    return GraphAttentionNetwork(graph.nodes.shape[1], len(graph.classes), **model.model_dump())


def _default_name() -> Literal["cora", "generated"]:
    cora = data_folder() / PLANETOID.format("cora")
    return "cora" if "REGARD_DATA" in os.environ and cora.is_file() else "generated"


def _accuracy(logits: Tensor, labels: Tensor, index: Tensor) -> float:
    return float((logits[index].argmax(-1) == labels[index]).float().mean())
