from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.graph import generate_graph, read_edge_list, read_planetoid

ARRAYS = {
    "feat_row": np.array([0, 1, 1, 4]),
    "feat_col": np.array([2, 0, 1, 2]),
    "feat_val": np.array([1.0, 2.0, 3.0, 5.0], np.float32),
    "num_nodes": np.array(5),
    "num_features": np.array(3),
    "num_classes": np.array(2),
    "labels": np.array([0, 1, 0, -1, 1]),
    "edges": np.array([[0, 1], [1, 4]]),
    "train_idx": np.array([0, 1]),
    "val_idx": np.array([2]),
    "test_idx": np.array([4]),
}


def planetoid(folder: Path, **changes: np.ndarray | None) -> Path:
    arrays = {k: v for k, v in (ARRAYS | changes).items() if v is not None}
    np.savez(folder / "g.npz", **arrays)
    return folder / "g.npz"


def test_a_planetoid_file_gives_features_and_both_directions_of_its_edges(tmp_path: Path) -> None:
    graph = read_planetoid(planetoid(tmp_path))
    expected = torch.zeros(5, 3)
    expected[[0, 1, 1, 4], [2, 0, 1, 2]] = torch.tensor([1.0, 2.0, 3.0, 5.0])
    assert torch.equal(graph.nodes.to_dense(), expected)
    assert sorted(graph.edges.T.tolist()) == [[0, 1], [1, 0], [1, 4], [4, 1]]
    assert graph.labels.tolist() == [0, 1, 0, -1, 1]
    assert (graph.train.tolist(), graph.valid.tolist(), graph.test.tolist()) == ([0, 1], [2], [4])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edges": np.array([[0, 5]])}, "edges has numbers from 0 to 5, .* from 0 to 4"),
        ({"edges": np.array([[-1, 2]])}, "edges has numbers from -1 to 2"),
        ({"edges": np.array([0, 1])}, r"edges should be \(E, 2\), got \(2,\)"),
        ({"feat_col": np.array([2, 0, 3, 2])}, "feat_col has numbers from 0 to 3"),
        ({"labels": np.array([0, 1])}, r"5 nodes need as many labels, got \(2,\)"),
        ({"test_idx": np.array([7])}, "test_idx has numbers from 7 to 7"),
        ({"train_idx": np.array([], int)}, "train_idx is empty"),
        ({"feat_val": np.array([1.0, np.nan, 3.0, 5.0])}, "feat_val should be finite numbers"),
        ({"feat_val": np.array(["a"] * 4)}, "feat_val should be finite numbers"),
        ({"feat_val": np.ones(3)}, "should be of one length, got 4, 4 and 3"),
        ({"feat_col": np.array([2, 0, 1])}, "should be of one length, got 4, 3 and 4"),
        ({"labels": np.array([0, 1, 2, -1, 1])}, "labels should be from 0 to 1, .* got -1 to 2"),
        ({"labels": np.array([0, 1, 0, -2, 1])}, "labels should be from 0 to 1, .* got -2 to 1"),
        ({"labels": np.array(list("abcde"))}, "labels should be whole numbers"),
        ({"edges": np.array([[0.5, 1.0]])}, "edges should be whole numbers, got float64"),
        ({"num_nodes": np.array([5, 5])}, "num_nodes should be one number, got 2"),
        ({"test_idx": np.array([3])}, "node 3 is in test_idx, but its class is unknown"),
        ({"test_idx": np.array([4, 1])}, "node 1 is in train_idx and in test_idx"),
        ({"val_idx": None}, "it has no array val_idx"),
        ({"num_features": np.array(10**12)}, "num_features should be at most 10,000,000"),
        ({"num_classes": np.array(10**12)}, "at most as many classes as nodes"),
    ],
)
def test_a_malformed_planetoid_file_is_one_sentence(tmp_path: Path, changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        read_planetoid(planetoid(tmp_path, **changes))


def test_pickles_and_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
        read_planetoid(planetoid(tmp_path, labels=np.array([object()] * 5)))
    (tmp_path / "cut.npz").write_bytes(planetoid(tmp_path).read_bytes()[:100])
    with pytest.raises(ValueError, match="not an npz file"):
        read_planetoid(tmp_path / "cut.npz")
    for content in (b"", b"plain text"):
        (tmp_path / "other.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"other\.npz is not an npz file, or it is truncated"):
            read_planetoid(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_planetoid(tmp_path / "none.npz")


def text_graph(folder: Path, nodes: str | None = None, edges: str | None = None) -> list[Path]:
    made = "".join(f"n{i}\t{i}\t0.5\t{'ab'[i % 2]}\n" for i in range(11)) + "x\t1\t1\t?\n"
    text = made if nodes is None else nodes
    (folder / "nodes").write_bytes(text.encode("utf-8", errors="surrogateescape"))
    (folder / "edges").write_text("n0\tn3\nx\tn5\n" if edges is None else edges)
    return [folder / "nodes", folder / "edges"]


def test_an_edge_list_is_read_by_names_and_split_by_class(tmp_path: Path) -> None:
    graph = read_edge_list(*text_graph(tmp_path), per_class=2, seed=5)
    assert graph.classes == ("a", "b")
    assert graph.names[3] == "n3"
    assert graph.nodes.to_dense()[7].tolist() == [7.0, 0.5]
    assert sorted(graph.edges.T.tolist()) == [[0, 3], [3, 0], [5, 11], [11, 5]]
    assert graph.labels[graph.train].bincount().tolist() == [2, 2]
    together = torch.cat((graph.train, graph.valid, graph.test)).tolist()
    assert sorted(together) == list(range(11))  # each once, without those of unknown class


def test_commas_and_blanks_separate_too(tmp_path: Path) -> None:
    for mark in (",", " ", " , "):
        nodes = "".join(f"n{i}{mark}{i}{mark}{'ab'[i % 2]}\n" for i in range(7))
        graph = read_edge_list(*text_graph(tmp_path, nodes, f"n1{mark}n2\n"), per_class=1)
        assert graph.nodes.shape == (7, 1)


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (None, "n0\tn99\n", "edges, line 1: node 'n99' is not among the 12 nodes"),
        (None, "n0\tn1\tn2\n", "line 1: expected the names of two nodes, got"),
        (None, "", "edges has no edges"),
        ("", None, "nodes has no nodes"),
        ("a\t1\tx\na\t2\ty\n", None, "line 2: duplicate node 'a', which is also node number 1"),
        ("a\t1\t2\tx\nb\t2\ty\n", None, "line 2: 1 features, but the first node has 2"),
        ("a\tone\tx\n", None, "line 1: not a number"),
        ("a\tnan\tx\n", None, "line 1: features must be finite"),
        ("caf\udce9\t1\tx\n", None, "nodes, line 1, is not UTF-8 at character 4"),
        ("a\tx\n", None, "line 1: expected name, features and class"),
    ],
)
def test_a_malformed_edge_list_is_one_sentence(tmp_path: Path, nodes, edges, message) -> None:
    with pytest.raises(ValueError, match=message):
        read_edge_list(*text_graph(tmp_path, nodes, edges))


def test_a_generated_graph_depends_on_its_seed_alone_and_links_classes() -> None:
    one, same, other = (generate_graph(100, seed=seed) for seed in (3, 3, 5))
    assert torch.equal(one.edges, same.edges)
    assert torch.equal(one.nodes.to_dense(), same.nodes.to_dense())
    assert not torch.equal(one.labels, other.labels)
    inside = (one.labels[one.edges[0]] == one.labels[one.edges[1]]).float().mean()
    assert 0.7 < inside < 0.95


def test_real_planetoid_graphs_are_those_of_the_literature(real_data: Path) -> None:
    sizes = {"cora": (2708, 1433, 5278, 7), "citeseer": (3327, 3703, 4552, 6)}
    for name, (nodes, features, edges, classes) in sizes.items():
        graph = read_planetoid(real_data / "planetoid" / f"{name}.npz")
        assert graph.nodes.shape == (nodes, features)
        assert graph.edges.shape == (2, 2 * edges)
        assert len(graph.classes) == classes
        assert (len(graph.train), len(graph.valid), len(graph.test)) == (20 * classes, 500, 1000)
