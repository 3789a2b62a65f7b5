"""Graphs whose nodes have features and classes: planetoid files, edge lists, and generated ones."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.files import format_of, read_npz, readable, text_lines
from regard.data.tables import TABLES, is_saved_dataset

UNKNOWN = -1
"""The label of a node of unknown class."""

MOST_FEATURES = 10_000_000
PLANETOID = ("feat_row", "feat_col", "feat_val", "num_nodes", "num_features", "labels", "edges")
SPLIT = {"train": "train_idx", "valid": "val_idx", "test": "test_idx"}
NUMBERS = {*PLANETOID, *SPLIT.values(), "num_classes"} - {"feat_val"}  # arrays of whole numbers


class Graph(NamedTuple):
    """Nodes with features, edges between them, and splits of the nodes."""

    nodes: Tensor  # (N, features), sparse COO
    edges: Tensor  # (2, E), both directions of an undirected edge
    labels: Tensor  # (N,), or UNKNOWN
    train: Tensor  # indices of nodes
    valid: Tensor
    test: Tensor
    classes: tuple[str, ...]
    names: tuple[str, ...]  # of the nodes


def read_planetoid(path: str | Path) -> Graph:
    """Read a graph with the splits of Yang et al. 2016 from an npz file, without pickle.

    Args:
        path: an npz file of feat_row, feat_col, feat_val (sparse features), num_nodes,
            num_features, labels (−1: unknown), edges (E, 2), each undirected one once, and
            train_idx, val_idx, test_idx
    """
    path = readable(path)
    arrays = read_npz(path, (*PLANETOID, *SPLIT.values()))
    whole = {name: _whole(path, name, array) for name, array in arrays.items() if name in NUMBERS}
    for name in ("num_nodes", "num_features", "num_classes"):
        if name in whole and whole[name].dim():
            raise ValueError(f"{path}: {name} should be one number, got {len(whole[name])}")
    count, width = int(whole["num_nodes"]), int(whole["num_features"])
    if width > MOST_FEATURES:
        raise ValueError(f"{path}: num_features should be at most {MOST_FEATURES:,}, got {width:,}")
    _check_range(path, "feat_row", whole["feat_row"], count)
    _check_range(path, "feat_col", whole["feat_col"], width)
    value = arrays["feat_val"]
    if value.dtype.kind not in "fiub" or not np.isfinite(value).all():
        raise ValueError(f"{path}: feat_val should be finite numbers")
    if not whole["feat_row"].shape == whole["feat_col"].shape == value.shape:
        raise ValueError(
            f"{path}: feat_row, feat_col and feat_val should be of one length, got "
            f"{len(whole['feat_row'])}, {len(whole['feat_col'])} and {len(value)}"
        )
    labels = whole["labels"]
    if labels.shape != (count,):
        raise ValueError(f"{path}: {count} nodes need as many labels, got {tuple(labels.shape)}")
    classes = int(whole.get("num_classes", labels.max() + 1))
    if classes > count:
        raise ValueError(f"{path}: expected at most as many classes as nodes, got {classes:,}")
    if int(labels.min()) < UNKNOWN or int(labels.max()) >= classes:
        raise ValueError(
            f"{path}: labels should be from 0 to {classes - 1}, or {UNKNOWN} for unknown, got "
            f"{int(labels.min())} to {int(labels.max())}"
        )
    pairs = whole["edges"]
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        raise ValueError(f"{path}: edges should be (E, 2), got {tuple(pairs.shape)}")
    _check_range(path, "edges", pairs, count)
    parts = {part: whole[name] for part, name in SPLIT.items()}
    _check_splits(path, parts, labels)
    return Graph(
        _sparse(
            torch.stack((whole["feat_row"], whole["feat_col"])),
            torch.from_numpy(value).float(),
            (count, width),
        ),
        both_ways(pairs.T),
        labels,
        parts["train"],
        parts["valid"],
        parts["test"],
        tuple(str(label) for label in range(classes)),
        tuple(str(node) for node in range(count)),
    )


def read_edge_list(
    nodes: str | Path, edges: str | Path, *, per_class: int = 20, seed: int = 0
) -> Graph:
    """Read a graph from two tables and split it randomly.

    A table is a text file whose fields are separated by tabs, else commas, else spaces (the format
    of `cora.content`), plain or compressed; or `.jsonl`, `.parquet` or a directory of
    `save_to_disk`, where the order of the columns counts and not their names.

    Args:
        nodes: one node per row: name, features and class, or `?` if unknown
        edges: one edge per row, the names of two nodes; read in both directions
        per_class: number of training nodes of each class; of the others with a class one third is
            for validation, two thirds for test
        seed: of the split
    """
    names: dict[str, int] = {}
    rows: list[Tensor] = []
    found: list[str] = []
    pairs: list[list[int]] = []

    def add_node(fields: list[str]) -> None:
        if len(fields) < 3:
            raise ValueError(f"expected name, features and class, got {fields}")
        name, *features, label = fields
        if name in names:
            raise ValueError(
                f"duplicate node {name!r}, which is also node number {names[name] + 1}"
            )
        if rows and len(features) != len(rows[0]):
            raise ValueError(f"{len(features)} features, but the first node has {len(rows[0])}")
        try:
            row = [float(feature) for feature in features]
        except ValueError as error:
            raise ValueError(f"not a number: {error}") from error
        if not all(map(math.isfinite, row)):
            raise ValueError("features must be finite numbers")
        names[name] = len(names)
        rows.append(torch.tensor(row))
        found.append(label)

    def add_edge(fields: list[str]) -> None:
        if len(fields) != 2:
            raise ValueError(f"expected the names of two nodes, got {fields}")
        for name in fields:
            if name not in names:
                raise ValueError(f"node {name!r} is not among the {len(names)} nodes of {nodes}")
        pairs.append([names[name] for name in fields])

    _each_row(nodes, add_node)
    if not rows:
        raise ValueError(f"{nodes} has no nodes")
    classes = sorted(set(found) - {"?"})
    number_of = {name: index for index, name in enumerate(classes)}
    labels = torch.tensor([number_of.get(label, UNKNOWN) for label in found])
    _each_row(edges, add_edge)
    if not pairs:
        raise ValueError(f"{edges} has no edges")
    return Graph(
        torch.stack(rows).to_sparse_coo(),
        both_ways(torch.tensor(pairs).T),
        labels,
        *split_nodes(labels, per_class=per_class, seed=seed),
        tuple(classes),
        tuple(names),
    )


def generate_graph(
    nodes: int = 600,
    *,
    classes: int = 4,
    words: int = 40,
    degree: float = 6.0,
    stray: float = 0.25,
    seed: int = 0,
) -> Graph:
    """Generate a graph of communities: documents with a few words each, which cite each other.

    A node has ten words, some of its class and some of any, so that its words alone are ambiguous;
    most neighbours are of its class, so that they help.

    >>> graph = generate_graph(50, seed=1)
    >>> graph.nodes.shape, len(graph.classes)
    (torch.Size([50, 160]), 4)

    Args:
        nodes: number of nodes
        classes: number of communities
        words: number of words of each class
        degree: mean number of neighbours
        stray: share of edges between random nodes
        seed: of the graph
    """
    if nodes < 10 * classes or classes < 2:
        raise ValueError(
            f"expected at least 2 classes with 10 nodes each, got {classes} and {nodes} nodes"
        )
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(nodes) % classes
    labels = labels[torch.randperm(nodes, generator=rng)]
    own = torch.rand(nodes, 10, generator=rng) < 0.4
    word = torch.randint(words * classes, (nodes, 10), generator=rng)
    word = torch.where(own, word % words + words * labels.unsqueeze(1), word)
    features = torch.zeros(nodes, words * classes).scatter_(1, word, 1.0)
    source = torch.randint(nodes, (int(nodes * degree / 2),), generator=rng)
    # a node of the same class: nodes of one class are adjacent in the sorted order
    order, rank = labels.argsort(stable=True), torch.randint(nodes, source.shape, generator=rng)
    count = torch.bincount(labels, minlength=classes)
    first = count.cumsum(0) - count
    same = order[first[labels[source]] + rank % count[labels[source]]]
    astray = torch.rand(source.shape, generator=rng) < stray
    target = torch.where(astray, rank, same)
    pairs = torch.stack((source, target))[:, source != target]
    return Graph(
        features.to_sparse_coo(),
        both_ways(pairs),
        labels,
        *split_nodes(labels, per_class=min(20, nodes // (4 * classes)), seed=seed),
        tuple(f"topic {number + 1}" for number in range(classes)),
        tuple(f"document {number + 1}" for number in range(nodes)),
    )


def both_ways(edges: Tensor) -> Tensor:
    """Each edge once in both directions.

    >>> both_ways(torch.tensor([[0, 1, 1], [1, 0, 2]]))
    tensor([[0, 1, 1, 2],
            [1, 0, 2, 1]])
    """
    return torch.cat((edges, edges.flip(0)), dim=1).unique(dim=1)


def split_nodes(labels: Tensor, *, per_class: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split nodes into training, validation (a third of the rest) and test."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order[labels[order] != UNKNOWN]
    taken = [order[labels[order] == label][:per_class] for label in labels[order].unique()]
    train = torch.cat(taken) if taken else order
    rest = order[~torch.isin(order, train)]
    if not len(train) or len(rest) < 2:
        raise ValueError(
            f"{len(order)} nodes with a class are too few for {per_class} training nodes of each "
            "class and others for validation and test"
        )
    third = max(1, len(rest) // 3)
    return train, rest[:third], rest[third:]


def normalize_rows(nodes: Tensor) -> Tensor:
    """Divide the features of each node by their sum.

    >>> normalize_rows(torch.tensor([[1.0, 3.0], [0.0, 0.0]]).to_sparse_coo()).to_dense()
    tensor([[0.2500, 0.7500],
            [0.0000, 0.0000]])
    """
    nodes = nodes.coalesce()
    row, value = nodes.indices()[0], nodes.values()
    total = value.new_zeros(len(nodes)).index_add(0, row, value)[row]
    return _sparse(nodes.indices(), value / torch.where(total == 0, 1.0, total), nodes.shape)


def _each_row(path: str | Path, add: Callable[[list[str]], None]) -> None:
    """Add the fields of every line that is not empty; errors get the number of the line."""
    for number, row in _rows(path):
        try:
            if isinstance(row, ValueError):
                raise row
            add(row)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error


def _rows(path: str | Path) -> Iterator[tuple[int, list[str] | ValueError]]:
    kind = "dataset" if is_saved_dataset(path) else format_of(path)
    if kind in ("jsonl", "parquet", "dataset"):
        for number, row in TABLES[kind](path, None):
            yield number, [str(value) for value in row.values()] if isinstance(row, dict) else row
        return
    for number, line in text_lines(path):
        text = line.strip()
        separator = next((mark for mark in "\t," if mark in text), None)
        if text:
            yield number, [field.strip() for field in text.split(separator)]


def _sparse(indices: Tensor, value: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.sparse_coo_tensor(indices, value, tuple(shape), check_invariants=True).coalesce()


def _whole(path: Path, name: str, array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "iu":
        raise ValueError(f"{path}: {name} should be whole numbers, got {array.dtype}")
    return torch.from_numpy(array.astype(np.int64))


def _check_splits(path: Path, parts: dict[str, Tensor], labels: Tensor) -> None:
    """Raise `ValueError` for nodes out of range, in two splits, or of unknown class."""
    taken: dict[int, str] = {}
    for part, index in parts.items():
        name = SPLIT[part]
        _check_range(path, name, index, len(labels))
        for node in index.tolist():
            if node in taken:
                raise ValueError(f"{path}: node {node} is in {taken[node]} and in {name}")
            if labels[node] == UNKNOWN:
                raise ValueError(f"{path}: node {node} is in {name}, but its class is unknown")
        taken |= dict.fromkeys(index.tolist(), name)


def _check_range(path: Path, name: str, index: Tensor, count: int) -> None:
    if not index.numel():
        raise ValueError(f"{path}: {name} is empty")
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= count:
        raise ValueError(
            f"{path}: {name} has numbers from {low} to {high}, but they should be from 0 to "
            f"{count - 1}"
        )
