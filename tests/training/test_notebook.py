"""A training and a figure in a real notebook."""

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of pyzmq and jupyter_client
]

TRAIN = """
import regard
model = regard.train("dates", "run", settings=[
    "data.count=40", "data.valid_count=3", "model.hidden=5", "training.epochs=",
    "training.warmup=0", "training.steps=6", "training.evaluate_every=2", "training.threads=1",
    "training.schedule=constant",
])
"""


def test_a_notebook_shows_a_training_while_it_runs_and_a_figure_once(tmp_path):
    figure = 'model.trace("may 5, 1999").figure()'
    # pyplot has a display of its own
    cells = [TRAIN, figure, "import matplotlib.pyplot", figure]
    book = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)])
    client = NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    (shown,) = [each for each in book.cells[0].outputs if each.output_type == "display_data"]
    html = shown.data["text/html"]
    assert "step 6 of 6" in html
    assert '<progress style="width:100%" max="1" value="1' in html
    points = [len(part.split('"')[0].split()) for part in html.split('points="')[1:]]
    assert points[1] == 3  # evaluations after steps 2, 4 and 6
    for cell in (book.cells[1], book.cells[3]):
        pictures = [each for each in cell.outputs if "image/png" in each.get("data", {})]
        assert len(pictures) == 1
