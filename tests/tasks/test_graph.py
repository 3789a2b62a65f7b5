from pathlib import Path

import pytest
import torch

from regard.data.graph import generate_graph
from regard.recipes import load_recipe
from regard.tasks import load
from regard.tasks.graph import Data, GraphTask, LossSettings, Model, read_graph
from regard.training import read_config, read_settings, train


def trained(run: Path, *overrides: str) -> dict[str, float]:
    config = read_config(load_recipe("graph"), ["data.name=generated", *overrides])
    return train(GraphTask.from_config(config), config, run).metrics


def test_it_learns_communities_and_the_run_opens_again(tmp_path: Path) -> None:
    metrics = trained(tmp_path / "run", "data.count=200", "training.epochs=60")
    assert metrics["test_accuracy"] > 0.8  # a quarter by chance
    classifier = load(tmp_path / "run")
    graph = classifier.graph
    found = classifier.classify([graph.names[i] for i in graph.test.tolist()])
    right = [
        graph.classes[int(label)] == one.label
        for one, label in zip(found, graph.labels[graph.test], strict=True)
    ]
    assert sum(right) / len(right) == pytest.approx(metrics["test_accuracy"])
    assert all(sum(w for _, w in one.neighbours) == pytest.approx(1, abs=1e-5) for one in found)
    trace = classifier.trace("document 7")
    trace.figure(tmp_path / "node.png")
    assert (tmp_path / "node.png").stat().st_size > 5000
    assert [call.heads for call in trace.calls] == [8, 1]
    (one,) = classifier.predict(["document 7"])
    mean = trace["layers.0"].map.dense().mean((0, 1)).tolist()
    assert dict(one.neighbours) == pytest.approx(
        dict(zip(trace.tokens["neighbour"], mean, strict=True))
    )
    with pytest.raises(ValueError, match="unknown node 'nobody': it is not among the 200"):
        classifier.classify(["nobody"])


def test_features_alone_do_worse_than_with_neighbours() -> None:
    graph = generate_graph(300, seed=3)
    alone = graph._replace(edges=graph.edges[:, :0])

    def accuracy(given) -> float:
        torch.manual_seed(0)
        task = GraphTask(given, Model(), LossSettings())
        model = task.build()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(60):
            loss = task.loss(model, task.batch(epoch, 0))
            optimizer.zero_grad()
            (loss.total / loss.count).backward()
            optimizer.step()
        return task.evaluate(model.eval())["test_accuracy"]

    assert accuracy(graph) > accuracy(alone) + 0.05


def test_the_penalty_is_half_l2_times_the_squared_norm() -> None:
    graph = generate_graph(50)
    free, bound = (GraphTask(graph, Model(), LossSettings(l2=l2)) for l2 in (0.0, 3.0))
    model = free.build().eval()
    plain, penal = free.loss(model, graph), bound.loss(model, graph)
    norm = sum(p.detach().square().sum().item() for p in model.parameters())
    assert plain.count == len(graph.train)
    assert (penal.total - plain.total).item() == pytest.approx(1.5 * norm * plain.count, rel=1e-4)


def test_the_data_folder_gives_cora_and_without_one_the_graph_is_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REGARD_DATA", raising=False)
    assert read_graph(Data()).names[0] == "document 1"
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    assert read_graph(Data()).names[0] == "document 1"
    with pytest.raises(FileNotFoundError, match=r"citeseer needs .*planetoid/citeseer\.npz"):
        read_graph(Data(name="citeseer"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"nmae": "cora"}, "unknown key data.nmae; did you mean 'name'"),
        ({"nodes": "a"}, "nodes and edges belong together"),
        ({"name": "cora", "path": "x.npz"}, "give one of name, path"),
        ({"count": 0}, "data.count should be greater than or equal to 1, got 0"),
    ],
)
def test_a_bad_table_is_a_clear_error(table: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_settings(Data, table, "data")


def test_a_damaged_run_is_a_clear_error(tmp_path: Path) -> None:
    trained(tmp_path / "run", "data.count=50", "training.epochs=1")
    whole = (tmp_path / "run" / "graph.safetensors").read_bytes()
    (tmp_path / "run" / "graph.safetensors").write_bytes(whole[:50])
    with pytest.raises(ValueError, match=r"graph\.safetensors is damaged"):
        load(tmp_path / "run")


def test_a_run_keeps_which_graph_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run of Cora would go on, or be evaluated, with a generated graph elsewhere."""
    monkeypatch.delenv("REGARD_DATA", raising=False)
    config = read_config(load_recipe("graph"), ["data.count=50"])
    assert GraphTask.from_config(config).describe().startswith("generated: 50 nodes")
    assert config.data == {"count": 50, "name": "generated"}
