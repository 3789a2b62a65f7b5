"""Nodes of a graph: the class of each, from its own features and those of its neighbours."""

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.attention.observer import record
from regard.core.map import AttentionMap
from regard.data import fingerprint
from regard.data.datasets import data_file, data_folder
from regard.data.graph import (
    UNKNOWN,
    Graph,
    generate_graph,
    normalize_rows,
    read_edge_list,
    read_planetoid,
)
from regard.evaluation import ClassificationReport, evaluate_classes
from regard.layers.edges import with_self_loops
from regard.models.graph import GraphAttentionNetwork
from regard.tasks.classification import classification_metrics, split_sizes
from regard.tasks.predictor import Predictor, check_inputs, field
from regard.tasks.run import load_json, load_model
from regard.tasks.settings import Count
from regard.trace import Call, Trace
from regard.training import Config, Loss, Settings, read_settings, stored_file
from regard.training.device import device_of, to_device
from regard.training.run_directory import read_run_config
from regard.training.weights import read_tensors, write_tensors

PLANETOID = "planetoid/{}.npz"  # below the data folder
GRAPH, NAMES = "graph.safetensors", "graph.json"  # in a run directory


class Data(Settings):
    """The table `[data]`: one graph."""

    name: Literal["generated", "cora", "citeseer"] | None = Field(
        None, description="by default cora if REGARD_DATA has it, else generated"
    )
    path: str | None = Field(None, description="a planetoid npz file; or else")
    nodes: str | None = Field(None, description="a table of nodes: name, features, class")
    edges: str | None = Field(None, description="and a table of edges: two names")
    per_class: Count = Field(20, description="nodes of each class of an edge list to train on")
    count: Count = Field(600, description="nodes to generate")
    normalize: bool = Field(
        True, description="whether the features of a node are scaled to sum to one"
    )

    @model_validator(mode="after")
    def _one_source(self) -> "Data":
        given = [self.name, self.path, self.nodes]
        if sum(one is not None for one in given) > 1:
            raise ValueError("give one of name, path, and nodes with edges")
        if (self.nodes is None) != (self.edges is None):
            raise ValueError("nodes and edges belong together: give both files")
        return self


class Model(Settings):
    """The table `[model]`: Veličković et al. 2018, section 3.3, by default."""

    hidden: Count = Field(8, description="width of one head")
    heads: Count = Field(8, description="attention heads of each layer")
    output_heads: Count = Field(1, description="heads of the last layer, averaged")
    layers: Count = Field(2, description="number of layers")
    score: Literal["gat", "gatv2"] = Field(
        "gat", description="Veličković et al. 2018, or Brody et al. 2022"
    )
    dropout: float = Field(0.6, ge=0, lt=1, description="of the input of a layer")
    attention_dropout: float = Field(0.6, ge=0, lt=1, description="of the weights of the edges")


class LossSettings(Settings):
    """The table `[loss]`."""

    l2: float = Field(
        5e-4, ge=0, description="½·l2·‖θ‖² is added to the loss; not AdamW's weight decay"
    )


class NodeClassification(NamedTuple):
    """The class of a node, and the neighbours it comes from."""

    name: str
    label: str
    probability: float
    neighbours: list[tuple[str, float]]  # with their weights, itself included, heaviest first


class NodeClassifier(Predictor):
    """A network and the graph it was trained on: a run of the task graph.

    An input is the name of a node.

    >>> graph = generate_graph(50)
    >>> classifier = NodeClassifier(GraphAttentionNetwork(160, 4), graph)
    >>> (first,) = classifier.classify(["document 1"])
    >>> first.name, round(sum(weight for _, weight in first.neighbours), 5)
    ('document 1', 1.0)

    Args:
        model: classifies nodes
        graph: their features, edges and names
        config: of the run
    """

    task: ClassVar[str] = "graph"

    def __init__(self, model: nn.Module, graph: Graph, config: Config | None = None) -> None:
        self.model, self.graph, self.config = model.eval(), graph, config
        self.numbers = {name: number for number, name in enumerate(graph.names)}
        device = next(model.parameters()).device
        with torch.no_grad(), record() as calls:
            logits = model(graph.nodes.to(device), graph.edges.to(device))
        self.probabilities = logits.softmax(-1).cpu()  # (N, classes)
        self.weights = [
            call.weights.cpu() for call in calls if call.weights is not None
        ]  # (E', heads)
        self.edges = with_self_loops(graph.edges, len(graph.nodes))

    @classmethod
    def from_run(cls, directory: str | Path, device: str = "cpu") -> "NodeClassifier":
        """Load a run directory of the task graph."""
        config = read_run_config(directory)
        graph = load_graph(Path(directory))
        options = read_settings(Model, config.model, "model")
        return cls(
            load_model(partial(build_network, graph, options), directory, device), graph, config
        )

    def classify(self, names: Sequence[str] | None = None) -> list[NodeClassification]:
        """Classify some nodes, or all."""
        return self.predict(self.graph.names if names is None else names)

    def predict(self, inputs: Sequence[str]) -> list[NodeClassification]:
        """Classify nodes by their names, or by their numbers in a graph without names."""
        check_inputs(inputs, "names of nodes")
        found = []
        for name in inputs:
            probability, label = self.probabilities[self._number(name)].max(-1)
            found.append(
                NodeClassification(
                    str(name),
                    self.graph.classes[int(label)],
                    float(probability),
                    self.neighbours(name),
                )
            )
        return found

    def neighbours(self, name: str, layer: int = 0) -> list[tuple[str, float]]:
        """Return the nodes that a node attends to in a layer, with their mean weights."""
        if not 0 <= layer < len(self.weights):
            raise ValueError(f"layer should be from 0 to {len(self.weights) - 1}, got {layer}")
        edges = self._incoming(name)
        weights = self.weights[layer][edges].mean(-1).tolist()
        names = [self.graph.names[i] for i in self.edges[0, edges].tolist()]
        return sorted(zip(names, weights, strict=True), key=lambda pair: -pair[1])

    def trace(self, input: str) -> Trace:
        """Return what a node attends to in each layer: itself and its neighbours."""
        (found,) = self.predict([input])
        edges = self._incoming(input)
        sources = self.edges[0, edges].tolist()
        calls = [
            Call(
                f"layers.{layer}",
                AttentionMap.of(weights[edges].T.unsqueeze(1)),
                "node",
                "neighbour",
            )
            for layer, weights in enumerate(self.weights)
        ]
        tokens = {
            "node": [found.name],
            "neighbour": [self.graph.names[number] for number in sources],
        }
        about = {
            "task": self.task,
            "title": f"{found.name}: {found.label} ({found.probability:.0%})",
            "node": found.name,
            "label": found.label,
            "node_class": self._class(self._number(input)),
            "neighbour_classes": [self._class(number) for number in sources],
            "classes": list(self.graph.classes),
        }
        return Trace(calls, tokens, about)

    def parse(self, record: str | Mapping[str, Any]) -> str:
        """Return a line as the name of a node, or `node` (or `name`) of a JSON object."""
        name = record.strip() if isinstance(record, str) else field(record, "node", "name")
        self._number(name)
        return name

    def to_text(self, prediction: NodeClassification) -> str:
        """Return the name, the class and its probability."""
        return f"{prediction.name}: {prediction.label} ({prediction.probability:.0%})"

    def to_json(self, prediction: NodeClassification) -> Any:
        """Return everything, with neighbours as lists of name and weight."""
        return {
            **prediction._asdict(),
            "neighbours": [list(pair) for pair in prediction.neighbours],
        }

    def examples(self, count: int, split: str = "test") -> list[str]:
        """Return names of nodes of a split of the graph."""
        return [self.graph.names[i] for i in getattr(self.graph, split)[:count].tolist()]

    def report(
        self,
        path: str | Path | None = None,
        *,
        split: str = "test",
        shown: int = 5,
        **settings: Any,
    ) -> ClassificationReport:
        """Return how well the nodes of a split of the graph are classified."""
        if path is not None or settings:
            raise ValueError("a run of the task graph is evaluated on its own data alone")
        nodes = getattr(self.graph, split)
        labels, classes = self.graph.labels[nodes].tolist(), self.graph.classes
        texts = [self.graph.names[i] for i in nodes.tolist()]
        probabilities = self.probabilities[nodes].numpy()
        return evaluate_classes(probabilities, labels, classes, texts=texts, shown=shown)

    def _incoming(self, name: str) -> Tensor:
        return (self.edges[1] == self._number(name)).nonzero().flatten()

    def _class(self, number: int) -> str | None:
        label = int(self.graph.labels[number])
        return None if label == UNKNOWN else self.graph.classes[label]

    def _number(self, name: str) -> int:
        if str(name) not in self.numbers:
            raise ValueError(
                f"unknown node {name!r}: it is not among the {len(self.numbers)} of the graph"
            )
        return self.numbers[str(name)]


class GraphTask:
    """Classes of nodes: one graph, read as a whole at every step.

    Args:
        graph: what to learn from
        model: sizes of the network
        loss: how it is trained
        name: of the graph
    """

    predictor = NodeClassifier
    tables = (("data", Data), ("model", Model), ("loss", LossSettings))
    unit = "nodes"
    divisible = False  # one graph
    metric = "accuracy"
    larger_is_better = True

    def __init__(
        self, graph: Graph, model: Model, loss: LossSettings, name: str = "the graph"
    ) -> None:
        self.graph, self.model, self.loss_settings, self.name = graph, model, loss, name

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "GraphTask":
        """Make the task of a configuration; with `run`, with the graph of that run."""
        data = read_settings(Data, config.data, "data")
        if data.path is None and data.nodes is None:
            # stored with the run, so that it keeps its graph wherever REGARD_DATA points later
            config.data["name"] = data.name or _default_name()
            data = read_settings(Data, config.data, "data")
        model = read_settings(Model, config.model, "model")
        loss = read_settings(LossSettings, config.loss, "loss")
        name = str(data.name or data.path or data.nodes)
        stored = stored_file(run, GRAPH)
        graph = load_graph(stored.parent) if stored else read_graph(data, config.seed)
        return cls(graph, model, loss, name)

    def build(self) -> nn.Module:
        """Build a fresh network for the features and classes of the graph."""
        return build_network(self.graph, self.model)

    def steps(self, epoch: int) -> int:
        """Return 1: the graph is one batch."""
        return 1

    def batch(self, epoch: int, step: int) -> Graph:
        """Return the graph."""
        return self.graph

    def loss(self, model: nn.Module, batch: Graph) -> Loss:
        """Return the cross entropy of the training nodes, and for each of them ½·l2·‖θ‖²."""
        logits = model(batch.nodes, batch.edges)[batch.train]
        total = F.cross_entropy(logits, batch.labels[batch.train], reduction="sum")
        norm = sum((p.square().sum() for p in model.parameters()), total.new_zeros(()))
        return Loss(total + 0.5 * self.loss_settings.l2 * norm * len(batch.train), len(batch.train))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return loss and accuracy of the validation nodes, and accuracy of the test nodes."""
        graph = to_device(self.graph, device_of(model))
        logits = model(graph.nodes, graph.edges)
        valid, test = (
            classification_metrics([(logits[some], graph.labels[some])])
            for some in (graph.valid, graph.test)
        )
        return {**valid, "test_accuracy": test["accuracy"]}

    def write(self, run: Path) -> None:
        """Store the graph: a node is classified by its neighbours."""
        save_graph(self.graph, run)

    def fingerprint(self) -> dict[str, str]:
        """Return the fingerprint of the graph, which is a part of the run."""
        return {"graph": fingerprint(self.graph)}

    def describe(self) -> str:
        """Return statistics of the graph, for people."""
        graph = self.graph
        nodes, features = graph.nodes.shape
        same = graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]
        return (
            f"{self.name}: {nodes:,} nodes with {features:,} features, "
            f"{graph.edges.shape[1] // 2:,} edges, "
            f"{same.float().mean():.0%} of them inside a class\n"
            f"{len(graph.classes)} classes: {', '.join(graph.classes)}\n"
            f"nodes: {split_sizes(graph.train, graph.valid, graph.test)}"
        )


def read_graph(data: Data, seed: int = 1) -> Graph:
    """Return the graph of a table `[data]`."""
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
        graph = graph._replace(nodes=normalize_rows(graph.nodes))
    return graph


def build_network(graph: Graph, model: Model) -> GraphAttentionNetwork:
    """Build a network for this graph."""
    return GraphAttentionNetwork(graph.nodes.shape[1], len(graph.classes), **model.model_dump())


def _default_name() -> Literal["cora", "generated"]:
    cora = data_folder() / PLANETOID.format("cora")
    return "cora" if "REGARD_DATA" in os.environ and cora.is_file() else "generated"


def save_graph(graph: Graph, run: Path) -> None:
    """Store a graph in a run directory."""
    nodes = graph.nodes.coalesce()
    tensors = {
        "feature_index": nodes.indices(),
        "feature_value": nodes.values(),
        **{name: getattr(graph, name) for name in ("edges", "labels", "train", "valid", "test")},
    }
    write_tensors(run / GRAPH, tensors)
    names = {
        "features": graph.nodes.shape[1],
        "classes": list(graph.classes),
        "nodes": list(graph.names),
    }
    (run / NAMES).write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8", newline="\n")


def load_graph(run: Path) -> Graph:
    """Return the graph that `save_graph` stored; every number in it is checked.

    Raises:
        FileNotFoundError: if the run has none
        ValueError: if it is damaged
    """
    tensors = read_tensors(run / GRAPH)
    names = load_json(run / NAMES)
    try:
        nodes, classes, width = names["nodes"], names["classes"], names["features"]
        if not all(isinstance(name, str) for name in (*nodes, *classes)):
            raise ValueError("names should be texts")
        features = torch.sparse_coo_tensor(
            tensors.pop("feature_index"),
            tensors.pop("feature_value"),
            (len(nodes), width),
            check_invariants=True,
        ).coalesce()
        graph = Graph(nodes=features, classes=tuple(classes), names=tuple(nodes), **tensors)
        count = len(nodes)
        _check_range("labels", graph.labels, UNKNOWN, len(classes), (count,))
        _check_range("edges", graph.edges, 0, count, (2, graph.edges.shape[-1]))
        for name in ("train", "valid", "test"):
            some: Tensor = getattr(graph, name)
            _check_range(name, some, 0, count, (some.numel(),))
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"the graph of {run} is damaged: {error}") from error
    return graph


def _check_range(name: str, numbers: Tensor, low: int, high: int, shape: tuple[int, ...]) -> None:
    if numbers.dtype != torch.int64 or tuple(numbers.shape) != shape:
        raise ValueError(f"{name} should be whole numbers of shape {shape}")
    if numbers.numel() and not low <= int(numbers.min()) <= int(numbers.max()) < high:
        raise ValueError(f"{name} should be from {low} to {high - 1}")
