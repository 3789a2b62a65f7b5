"""A trained graph attention network with its graph: what `regard.load` gives for such a run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.data.graph import UNKNOWN, Graph
from regard.layers.edges import with_self_loops
from regard.training.weights import read_tensors, write_tensors

GRAPH, NAMES = "graph.safetensors", "graph.json"


class Classified(NamedTuple):
    """What a node is held to be, and whom that came from."""

    name: str
    label: str
    probability: float
    neighbours: list[tuple[str, float]]  # those it read, itself included, heaviest first


class NodeClassifier:
    """A network and the graph it was trained on.

    >>> from regard.data.graph import generate_graph
    >>> from regard.models.graph import GraphAttentionNetwork
    >>> graph = generate_graph(50)
    >>> classifier = NodeClassifier(GraphAttentionNetwork(160, 4), graph)
    >>> (first,) = classifier.classify(["document 1"])
    >>> first.name, round(sum(weight for _, weight in first.neighbours), 5)
    ('document 1', 1.0)

    Args:
        model: classifies nodes
        graph: their features, edges and names
    """

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        self.model, self.graph = model.eval(), graph
        self.numbers = {name: number for number, name in enumerate(graph.names)}
        with torch.no_grad():
            logits, self.maps = model(graph.nodes, graph.edges, return_map=True)
        self.probabilities = logits.softmax(-1)  # (N, classes)
        self.edges = with_self_loops(graph.edges, len(graph.nodes))

    def classify(self, names: Sequence[str] | None = None) -> list[Classified]:
        """The classes of some nodes, or of all.

        Args:
            names: of nodes, as in the file, or their numbers if they had no names
        """
        chosen = self.graph.names if names is None else names
        return [self._classified(self._number(name)) for name in chosen]

    def neighbours(self, name: str, layer: int = 0) -> list[tuple[str, float]]:
        """The nodes that a node read in a layer, with their weights averaged over the heads."""
        number = self._number(name)
        weights = self._map(layer).mean(-1)  # (E',)
        read = (self.edges[1] == number).nonzero().flatten()
        pairs = [(self.graph.names[int(self.edges[0, e])], float(weights[e])) for e in read]
        return sorted(pairs, key=lambda pair: -pair[1])

    def figure(self, path: str | Path, name: str, layer: int = 0) -> Path:
        """Draw a node and those it read, as PNG or SVG, in the colours of their true classes."""
        from regard.visual.figure.neighbourhood import Neighbour, neighbourhood

        found = self._classified(self._number(name))
        read = [
            Neighbour(other, self._label(other), weight)
            for other, weight in self.neighbours(name, layer)
        ]
        title = f"{name}: held to be {found.label} ({found.probability:.0%})"
        return neighbourhood(
            name, self._label(name), read, path, classes=self.graph.classes, title=title
        )

    def _classified(self, number: int) -> Classified:
        probability, label = self.probabilities[number].max(-1)
        name = self.graph.names[number]
        return Classified(
            name, self.graph.classes[int(label)], float(probability), self.neighbours(name)
        )

    def _map(self, layer: int) -> Tensor:
        name = f"layers.{layer}"
        if name not in self.maps:
            raise ValueError(f"layer should be from 0 to {len(self.maps) - 1}, got {layer}")
        weights = self.maps[name]
        assert isinstance(weights, Tensor)
        return weights

    def _label(self, name: str) -> str | None:
        label = int(self.graph.labels[self.numbers[name]])
        return None if label == UNKNOWN else self.graph.classes[label]

    def _number(self, name: str) -> int:
        if str(name) not in self.numbers:
            raise ValueError(
                f"there is no node {name!r} among the {len(self.numbers)} of the graph"
            )
        return self.numbers[str(name)]


def write_graph(graph: Graph, run: Path) -> None:
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
    (run / NAMES).write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8")


def read_graph_of(run: Path) -> Graph:
    """The graph that `write_graph` stored."""
    tensors = read_tensors(run / GRAPH)
    try:
        names = json.loads((run / NAMES).read_text(encoding="utf-8"))
        nodes = torch.sparse_coo_tensor(
            tensors.pop("feature_index"),
            tensors.pop("feature_value"),
            (len(names["nodes"]), names["features"]),
            check_invariants=True,
        ).coalesce()
        return Graph(
            nodes=nodes, classes=tuple(names["classes"]), names=tuple(names["nodes"]), **tensors
        )
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{run} has no {NAMES} in it") from error
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"the graph of {run} is damaged: {error}") from error
