"""Has anything become slower? This tree against another commit, row by row.

python -m benchmarks.gate --against main
python -m benchmarks.gate --against HEAD~3 --only beam --only padded

Both trees run in alternating turns on this machine, as machines differ too much for a stored
baseline. A row is a ratio of best times, this tree's over the commit's: above 1 this tree is
slower. The commit is measured twice, and the ratio of its two times is the spread of the row.
A row is lost if it is slower by more than max(7 %, spread), and again in new processes.
"""

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOLERANCE = 0.07  # of a row whose spread is smaller
TURNS = 5, 40  # of each side, at least and at most
PATIENCE = 8.0  # seconds after which a row has turns enough
LEAST = 0.03  # seconds of one turn; shorter jobs are repeated

Job = Callable[[], object]


# ------------------------------------------------------------------ rows of a worker process


def attention_rows() -> dict[str, Callable[[], Job]]:
    """What README and docs/benchmarks.md publish of attention, without its peers."""
    from benchmarks.attention_cases import CASES, Case
    from benchmarks.contest import as_job

    def prepare(case: Case) -> Job:
        contest = case.make()
        return as_job(contest.ours, contest.leaves, backward=case.backward)

    kinds = "additive", "Additive", "50 additive", "feature-wise", "padded", "causal", "window"
    kinds += "boolean", "plain", "dropout", "soft cap", "efficient", "hard", "sink", "blocks"
    slow = "L=2048", "8192,8192", "8192,64), forward + backward"
    return {
        case.name: lambda case=case: prepare(case)  # type: ignore[misc]
        for case in CASES
        if case.name.startswith(kinds) and not any(part in case.name for part in slow)
    } | {"efficient (1,8,8192,64), forward + backward": lambda: prepare(_named("efficient", True))}


def _named(kind: str, backward: bool):
    from benchmarks.attention_cases import CASES

    return next(c for c in CASES if c.name.startswith(kind) and c.backward is backward)


MODELS = {
    "Transformer": ("transformer", {"preset": "tiny"}),
    "Bahdanau": ("bahdanau", {"embedding": 128, "hidden": 256, "dropout": 0.3}),
    "Luong": ("luong", {"embedding": 128, "hidden": 192, "dropout": 0.3}),
    "textbook": ("attention", {"embedding": 16, "hidden": 256}),
}
VOCABULARY = 4000


def _model(name: str):
    import torch

    from regard.models import build

    torch.manual_seed(1)
    kind, options = MODELS[name]
    return build(kind, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, **options)


def _sentences(count: int, length: int):
    """Ids (count, length) and lengths from half of that on."""
    import torch

    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(4, VOCABULARY, (count, length), generator=generator)
    lengths = torch.randint(length // 2, length + 1, (count,), generator=generator)
    lengths[0] = length
    return ids, lengths


def training_step(name: str) -> Job:
    """Loss and gradients of one batch, in train mode."""
    from torch.nn.functional import cross_entropy

    model = _model(name).train()
    (source, lengths), (target, _) = _sentences(64, 16), _sentences(64, 15)

    def step() -> None:
        model.zero_grad()
        scores = model.output(model(source, lengths, target))
        cross_entropy(scores.flatten(0, 1), target.flatten()).backward()

    return step


def search(name: str, beam: int, sentences: int = 64) -> Job:
    """Greedy search or a beam over a batch; the model is untrained, so limits end the outputs."""
    from regard import decoding

    model = _model(name).eval()
    source, lengths = _sentences(sentences, 14)
    limits = decoding.Limits(ratio=0, extra=20)
    if beam == 1:
        return lambda: decoding.greedy(model, source, lengths, limits=limits)
    return lambda: decoding.beam(model, source, lengths, size=beam, limits=limits)


def worker_rows() -> dict[str, Callable[[], Job]]:
    """Every row that is measured inside of a worker: what prepares its job."""
    rows = attention_rows()
    for name in MODELS:
        rows[f"training step, {name}"] = lambda name=name: training_step(name)  # type: ignore[misc]
    for name in ("Transformer", "Luong"):
        for label, beam in (("greedy", 1), ("beam of five", 5)):
            rows[f"{label}, {name}"] = lambda n=name, b=beam: search(n, b)  # type: ignore[misc]
    return rows


def work() -> None:
    """Measure the rows that are named on standard input, one line of JSON for each."""
    rows = worker_rows()
    current, job, repeats = "", None, 1
    print(json.dumps(list(rows)), flush=True)
    for line in sys.stdin:
        name = line.rstrip("\n")
        try:
            if name != current or job is None:
                current, job = name, None  # frees the tensors of the row before
                job = rows[name]()
                job()
                repeats = max(1, math.ceil(LEAST / max(_seconds(job, 1), 1e-9)))
            print(json.dumps(_seconds(job, repeats)), flush=True)
        except Exception as error:
            job = None
            print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)


def _seconds(job: Job, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        job()
    return (time.perf_counter() - start) / repeats


# ------------------------------------------------------------------ rows that are processes

TRAIN = "the demo's training, a sixth of it"
TRANSLATE = "regard translate RUN TEXT"
COMMANDS: dict[str, list[str]] = {
    "import regard": ["-c", "import regard"],
    TRAIN: ["-m", "regard", "train", "dates", "--out", "RUN", "--set", "data.count=5000"],
    TRANSLATE: ["-m", "regard", "translate", "RUN", "14 Feb 1988"],
}
COMMAND_TURNS = {TRAIN: (3, 3)}


@dataclass
class Side:
    """A tree of the project, with a worker process that has imported it."""

    tree: Path
    folder: Path  # for its runs
    seconds: list[float] = field(default_factory=list)
    process: subprocess.Popen | None = None

    def environment(self) -> dict[str, str]:
        # the benchmark is this tree's, the library is that of the side
        paths = os.pathsep.join((str(self.tree / "src"), str(ROOT)))
        return os.environ | {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}

    def start(self) -> list[str]:
        """Start the worker; return the names of its rows."""
        command = [sys.executable, "-m", "benchmarks.gate", "--worker"]
        self.process = subprocess.Popen(
            command,
            env=self.environment(),
            cwd=self.folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self._answer()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def measure(self, row: str) -> float:
        """Seconds of one turn of a row; `RuntimeError` if it does not run."""
        if row in COMMANDS:
            return self._command(row)
        assert self.process is not None
        assert self.process.stdin is not None
        print(row, file=self.process.stdin, flush=True)
        answer = self._answer()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def _answer(self):
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.tree} ended with {self.process.wait()}")
        return json.loads(line)

    def _command(self, row: str) -> float:
        run = self.folder / "run"
        if row == TRANSLATE and not run.exists():
            self._command(TRAIN)
        if row == TRAIN and run.exists():
            run.rename(self.folder / f"run-{time.monotonic_ns()}")
        command = [str(run) if part == "RUN" else part for part in COMMANDS[row]]
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *command],
            env=self.environment(),
            cwd=self.folder,
            text=True,
            capture_output=True,
            check=False,
        )
        seconds = time.perf_counter() - start
        if done.returncode:
            raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()[-300:]}")
        return seconds


@contextlib.contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """A checkout of a commit, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        path = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(path), commit], check=True)
        try:
            yield path
        finally:
            subprocess.run([*git, "remove", "--force", str(path)], check=False)


# ------------------------------------------------------------------ the comparison


@dataclass(frozen=True)
class Row:
    """The best times of one row, in seconds, or why there are none."""

    name: str
    this: float = math.nan
    commit: float = math.nan
    again: float = math.nan  # the same commit once more
    error: str = ""

    @property
    def ratio(self) -> float:
        return self.this / self.commit

    @property
    def spread(self) -> float:
        return max(self.again / self.commit, self.commit / self.again) - 1

    @property
    def slower(self) -> bool:
        """Whether this tree is slower than the commit by more than the commit than itself."""
        return bool(self.error) or self.this > max(self.commit, self.again) * (
            1 + max(TOLERANCE, self.spread)
        )

    def line(self) -> str:
        if self.error:
            return f"| {self.name} | | | | does not run: {self.error} |"
        verdict = "slower" if self.slower else "faster" if self.ratio < 1 - TOLERANCE else ""
        times = f"{1e3 * self.commit:.3g} ms | {self.ratio:.3f} | {self.spread:.1%}"
        return f"| {self.name} | {times} | {verdict} |"


HEADER = "| row | the commit | this / commit | commit / itself | |\n|---|---:|---:|---:|---|"


def measure(name: str, sides: list[Side]) -> Row:
    """One row: its sides in turns, each turn in another order."""
    times: list[list[float]] = [[] for _ in sides]
    try:
        start, (least, most) = time.monotonic(), COMMAND_TURNS.get(name, TURNS)
        for turn in range(most):
            if turn >= least and time.monotonic() - start > PATIENCE:
                break
            for place in range(len(sides)):
                index = (turn + place) % len(sides)
                times[index].append(sides[index].measure(name))
    except RuntimeError as error:
        who = "this tree" if len(times[1]) > len(times[0]) or not times[0] else "the commit"
        return Row(name, error=f"{who}: {error}")
    return Row(name, *map(min, times))


def compare(tree: Path, only: list[str]) -> list[Row]:
    """All chosen rows; those that seem slower are measured again by new processes."""
    rows = _compare(tree, only, exact=False)
    slower = [row.name for row in rows if row.slower]
    if not slower:
        return []
    print(f"\nAgain, in new processes: {len(slower)} rows that seem slower\n")
    return [row for row in _compare(tree, slower, exact=True) if row.slower]


def _compare(tree: Path, only: list[str], *, exact: bool) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="gate-runs-") as folder:
        sides = [Side(ROOT, Path(folder) / "this")]
        sides += [Side(tree, Path(folder) / name) for name in ("commit", "again")]
        try:
            for side in sides:
                side.folder.mkdir()
                names = [*side.start(), *COMMANDS]
            chosen = [
                name
                for name in names
                if not only or (name in only if exact else any(part in name for part in only))
            ]
            if not chosen:
                raise SystemExit(f"--only is part of no row; rows: {'; '.join(names)}")
            print(HEADER, flush=True)
            rows = []
            for name in chosen:
                rows.append(measure(name, sides))
                print(rows[-1].line(), flush=True)
            return rows
        finally:
            for side in sides:
                side.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="COMMIT", default="HEAD", help="what to compare with")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART", help="rows whose name has this"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return 0
    start = time.monotonic()
    with worktree(options.against) as tree:
        lost = compare(tree, options.only)
    print(f"\n{time.monotonic() - start:.0f} s; lost: {len(lost)}")
    for row in lost:
        print(f"  {row.name}: {row.error or f'{row.ratio:.2f} times the time'}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
