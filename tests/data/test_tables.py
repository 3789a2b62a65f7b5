"""Every task with a table of its own data reads it in every format, with the same errors."""

import json

import numpy as np
import pytest
import torch

from regard.data.graph import read_edge_list
from regard.data.image import read_image_table
from regard.data.labelled import read_documents, read_labelled_pairs
from regard.data.ratings import read_ratings
from regard.data.tables import TABLES
from regard.tasks.language import Data as LanguageData
from regard.tasks.language import _read as read_language

ROWS = {
    "documents": [{"text": "좋다, 정말", "label": 1}, {"text": "bad", "label": 0}],
    "pairs": [
        {"left": "one", "right": "eins, \tzwei", "label": "yes"},
        {"left": "하나", "right": "둘", "label": "no"},
    ],
    "ratings": [
        {"user": "ann", "item": "x", "time": 2},
        {"user": "ann", "item": "y", "time": 1.5},
    ],
    "language": [{"text": "a line,\nand another"}, {"text": "그리고"}],
}


def language(path, **options):
    return read_language(LanguageData(path=str(path), **options), 1)


READ = {
    "documents": read_documents,
    "pairs": read_labelled_pairs,
    "ratings": read_ratings,
    "language": language,
}
FIRST = {"documents": "text", "pairs": "left", "ratings": "user", "language": "text"}


def write(rows, path, ending):
    """Write records in the format of an ending, and return the path."""
    import datasets
    import pyarrow as pa

    columns = {name: [row[name] for row in rows] for name in rows[0]}
    dataset = datasets.Dataset.from_dict(columns)
    kind, _, compression = ending.partition(".")
    file = path / f"table.{ending}"
    if kind == "dataset":
        dataset.save_to_disk(file)
    elif kind == "parquet":
        dataset.to_parquet(file)
    else:
        if kind == "jsonl":
            text = "".join(json.dumps(row) + "\n" for row in rows)
        elif kind == "csv":
            text = dataset.to_pandas().to_csv(index=False)
        else:
            lines = [list(rows[0]), *(list(map(str, row.values())) for row in rows)]
            clean = [[cell.replace("\t", " ").replace("\n", " ") for cell in row] for row in lines]
            text = "".join("\t".join(row) + "\n" for row in clean)
        codec = {"gz": "gzip", "zst": "zstd", "": None}[compression]
        with pa.output_stream(str(file), compression=codec) as stream:
            stream.write(text.encode())
    return file


@pytest.mark.parametrize("what", READ)
@pytest.mark.parametrize(
    "ending", ["csv", "csv.gz", "tsv", "tsv.zst", "jsonl", "jsonl.gz", "parquet", "dataset"]
)
def test_every_format_holds_the_same(what, ending, tmp_path):
    rows = ROWS[what]
    if ending.startswith("tsv"):  # without quotes there are neither tabs nor lines in a cell
        rows = [
            {n: str(v).replace("\t", " ").replace("\n", " ") for n, v in row.items()}
            for row in rows
        ]
    names = {name: name for name in rows[0]} if what == "pairs" else {}
    found = READ[what](write(rows, tmp_path, ending), **names)
    if what == "documents":
        assert (found.inputs, found.labels) == ([row["text"] for row in rows], [1, 0])
        assert found.classes == ["0", "1"]
    elif what == "pairs":
        assert found.inputs == [(row["left"], row["right"]) for row in rows]
        assert (found.labels, found.classes) == ([1, 0], ["no", "yes"])
    elif what == "ratings":
        assert found.users == ["ann"]
        assert [found.items[i] for i in found.histories[0]] == ["y", "x"]
    else:
        assert found == "".join(f"{row['text']}\n" for row in rows)


@pytest.mark.parametrize("what", READ)
def test_every_task_reads_a_table_in_its_encoding(what, tmp_path):
    file = write(ROWS[what], tmp_path, "csv")
    names = {name: name for name in ROWS[what][0]} if what == "pairs" else {}
    expected = str(READ[what](file, **names))
    file.write_bytes(file.read_text("utf-8").encode("cp949"))
    assert str(READ[what](file, encoding="cp949", **names)) == expected


@pytest.mark.parametrize("what", READ)
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "dataset"])
def test_a_missing_column_names_the_setting(what, ending, tmp_path):
    file = write(ROWS[what], tmp_path, ending)
    column = FIRST[what]
    with pytest.raises(ValueError, match=rf"'nowhere'.*data\.{column}=") as error:
        READ[what](file, **{column: "nowhere"})
    assert str(file) in str(error.value)


@pytest.mark.parametrize("what", READ)
def test_an_unknown_format_and_an_unused_delimiter_name_the_setting(what, tmp_path):
    file = write(ROWS[what], tmp_path, "jsonl")
    with pytest.raises(ValueError, match=r"takes no data\.delimiter"):
        READ[what](file, delimiter=";")
    parquet = write(ROWS[what], tmp_path, "parquet")
    with pytest.raises(ValueError, match=r"the format parquet takes no data\.encoding"):
        READ[what](parquet, encoding="cp949")
    if what != "language":  # any other file is a text
        other = file.rename(tmp_path / "table.xyz")
        with pytest.raises(
            ValueError, match=rf"unknown format 'xyz'.*{next(iter(TABLES))}.*data.format="
        ):
            READ[what](other)


def test_two_texts_without_names_are_columns_0_to_2_of_a_tsv(tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text("one\teins\tyes\ntwo\tdrei\tno\n")
    assert read_labelled_pairs(file).inputs == [("one", "eins"), ("two", "drei")]
    semicolons = tmp_path / "a.csv"
    semicolons.write_text('one;"eins; zwei";yes\ntwo;drei;no\n')
    found = read_labelled_pairs(semicolons, left=0, right=1, label=2)
    assert found.inputs == [("one", "eins; zwei"), ("two", "drei")]


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.zst", "parquet", "dataset"])
def test_nodes_and_edges_are_read_from_tables(ending, tmp_path):
    nodes = [{"id": f"n{i}", "a": i % 2, "b": 1.5, "topic": "xy"[i % 2]} for i in range(7)]
    edges = [{"from": f"n{i}", "to": f"n{(i + 1) % 7}"} for i in range(7)]
    (tmp_path / "n").mkdir()
    (tmp_path / "e").mkdir()
    files = write(nodes, tmp_path / "n", ending), write(edges, tmp_path / "e", ending)
    graph = read_edge_list(*files, per_class=1)
    assert graph.nodes.to_dense()[1].tolist() == [1.0, 1.5]
    assert (graph.names[1], graph.classes, graph.edges.shape) == ("n1", ("x", "y"), (2, 14))


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "dataset"])
def test_images_are_read_from_tables(ending, tmp_path):
    import datasets
    from PIL import Image

    rng = np.random.default_rng(3)
    pixels = [rng.integers(0, 256, (3, 5), np.uint8) for _ in range(7)]
    names = ["cat", "dog"] * 3 + ["cat"]
    if ending == "jsonl":
        rows = [{"scan": p.tolist(), "y": name} for p, name in zip(pixels, names, strict=True)]
        file = write(rows, tmp_path, ending)
    else:
        features = datasets.Features(
            {"scan": datasets.Image(), "y": datasets.ClassLabel(names=["cat", "dog"])}
        )
        columns = {"scan": [Image.fromarray(p) for p in pixels], "y": [n == "dog" for n in names]}
        dataset = datasets.Dataset.from_dict(columns, features=features)
        file = tmp_path / f"table.{ending}"
        dataset.to_parquet(file) if ending == "parquet" else dataset.save_to_disk(file)
    images = read_image_table(file, image="scan", label="y")
    assert torch.equal(images.pixels, torch.from_numpy(np.stack(pixels)))
    assert images.labels.tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert images.classes == (("0", "1") if ending == "parquet" else ("cat", "dog"))
    with pytest.raises(ValueError, match=r"no column 'image'.*data\.image= and data\.label="):
        read_image_table(file)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ([[0, 256]], "row 2: pixels should be from 0 to 255"),
        ([[0, 1], [2, 3]], "row 2: an image of 2 × 2 pixels, but the first has 1 × 2"),
        ("cat.png", "row 2: expected an image file, or rows"),
    ],
)
def test_a_bad_image_of_a_table_is_one_sentence(value, complaint, tmp_path):
    file = tmp_path / "a.jsonl"
    rows = [{"image": [[0, 9]], "label": "a"}, {"image": value, "label": "b"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=complaint):
        read_image_table(file)


def test_labels_outside_the_classes_of_a_run_are_refused_and_one_class_is_enough(tmp_path):
    file = write(ROWS["documents"][:1], tmp_path, "csv")
    assert read_documents(file, classes=["0", "1", "2"]).labels == [1]
    with pytest.raises(ValueError, match="unknown class '1'; the run knows 0, 2"):
        read_documents(file, classes=["0", "2"])
