"""RecBole 1.2.1 (Zhao et al. 2021) on MovieLens-100k, in a virtual environment of its own.

Its wheel carries MovieLens-100k (Harper & Konstan 2015), which is read there and never copied into
this project. It needs NumPy below 2; `ray`, which only its quick start imports, is left out.
"""

import csv
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

from regard.tasks.recommend import RecommendTask

RECBOLE = "recbole==1.2.1"
PACKAGES = (
    *("numpy<2", "pandas<2.2", "scipy", "scikit-learn", "tqdm", "pyyaml", "tensorboard", "thop"),
    *("tabulate", "plotly", "texttable", "psutil", "colorlog==4.7.2", "colorama==0.4.4"),
)
MODELS = ("BPR", "SASRec")
# glibc keeps freed memory for the next batch, instead of returning it to the system
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**33)}
SAMPLE = "recbole/dataset_example/ml-100k/ml-100k"  # in its package


def python_of(environment: Path) -> Path:
    """The Python of a virtual environment with RecBole, made if it is not there."""
    python = environment / "bin" / "python"
    if not (environment / "installed").is_file():
        print(f"installing {RECBOLE} into {environment}", file=sys.stderr)
        venv.create(environment, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        _, _, build = torch.__version__.partition("+")  # "cpu": without gigabytes of CUDA
        index = ["--extra-index-url", f"https://download.pytorch.org/whl/{build}"] if build else []
        subprocess.run([*install, f"torch=={torch.__version__}", *index], check=True)
        subprocess.run([*install, *PACKAGES], check=True)
        subprocess.run([*install, "--no-deps", RECBOLE], check=True)
        (environment / "installed").touch()
    return python


def convert(environment: Path) -> Path:
    """Write MovieLens-100k as tables into the environment, and return the folder.

    ratings.csv, users.csv and items.csv are ours, ml-100k/ is RecBole's. In both, times become
    ranks, ties in the order of the file: RecBole keeps times in float32 and sorts ties in any
    order, which would be another split.
    """
    (wheel,) = environment.glob(f"lib/python3*/site-packages/{SAMPLE}.inter")
    folder = environment / "movielens"
    (folder / "ml-100k").mkdir(parents=True, exist_ok=True)
    choices = sorted(_rows(wheel), key=lambda row: float(row[3]))
    ranked = [(user, item, rank) for rank, (user, item, *_) in enumerate(choices)]
    _write(folder / "ratings.csv", ("user", "item", "time"), ranked)
    users = [row[:4] for row in _rows(wheel.with_suffix(".user"))]
    _write(folder / "users.csv", ("user", "age", "gender", "occupation"), users)
    items = [
        (item, title, genres.replace(" ", "|"), f"{year[:3]}0s" if year.isdigit() else "")
        for item, title, year, genres in _rows(wheel.with_suffix(".item"))
    ]
    _write(folder / "items.csv", ("item", "title", "genre", "decade"), items)
    with (folder / "ml-100k" / "ml-100k.inter").open("w", encoding="utf-8") as file:
        file.write("user_id:token\titem_id:token\ttimestamp:float\n")
        file.writelines(f"{user}\t{item}\t{rank}\n" for user, item, rank in ranked)
    return folder


class Scored(nn.Module):
    """Given scores of all items for each user, as a model that the task evaluates."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, users: Tensor, *_: Tensor) -> SimpleNamespace:
        """Scores (B, items); users are counted from 1."""
        return SimpleNamespace(scores=self.scores[users - 1])


def measure_peer(
    environment: Path, folder: Path, task: RecommendTask, name: str, minutes: float
) -> tuple[str, dict[str, float]]:
    """Train a model of RecBole with its own settings, and rank its scores as we rank ours.

    Its scores stay in the folder as MODEL.npz. A model that was out of time goes on from its best
    epoch; to train one anew, remove the file and those of saved/.

    Returns: how long it was trained, and the metrics of the task
    """
    ratings = task.ratings
    for kind, names in (("users", ratings.users), ("items", ratings.items)):
        (folder / f"{kind}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    scores = folder / f"{name}.npz"
    if not (scores.is_file() and _finished(scores)):
        _train(environment, folder, name, minutes)
    with np.load(scores) as file:
        epochs = f"{file['epochs']} epochs" + ("" if file["finished"] else ", out of time")
        valid, test = (Scored(torch.from_numpy(file[split])) for split in ("valid", "test"))
    found, held_out = task.evaluate(valid), task.evaluate(test)
    return epochs, {key: (held_out if key.startswith("test") else found)[key] for key in found}


def _finished(scores: Path) -> bool:
    """Whether the model of these scores was trained to its end."""
    with np.load(scores) as file:
        return bool(file["finished"])


def _train(environment: Path, folder: Path, name: str, minutes: float) -> None:
    """Run `recbole_scores.py`, which writes the scores of a model into the folder."""
    script = Path(__file__).with_name("recbole_scores.py")
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [str(python_of(environment)), str(script), str(folder), name, str(minutes)],
        capture_output=True, text=True, check=False, cwd=folder,
        env={"PATH": "/usr/bin:/bin", **threads, **KEEP_MEMORY},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"RecBole did not train {name}: {(done.stdout + done.stderr)[-2000:]}")


def _rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]]


def _write(path: Path, names: tuple[str, ...], rows: list) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, *rows])
