"""Attention beside textbook PyTorch, SDPA, torch.compile and x-transformers, in one run.

python -m benchmarks.attention --quick --only causal

Each peer is first checked to give the same answer. A ratio above 1 means that regard is faster.
Rows are printed as they are measured; Ctrl-C keeps those printed so far.
"""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.attention_cases import CASES, SCALING, Case, curves, exponent, linear_forms
from benchmarks.contest import (
    Contest,
    Row,
    as_job,
    extra_memory,
    extra_memory_of,
    largest_error,
    output_file,
    race,
    write_rows,
)

OURS = "regard"
LIMIT = 4.0  # seconds of one pass beyond which a curve of the chart is not followed further


def run_case(case: Case, *, rounds: int, memory: bool) -> list[Row]:
    """Check that everybody gives the same answer, then measure all in turns."""
    contest = case.make()
    size = extra_memory_of(case.name, OURS) if memory else None
    if case.only_memory:
        return [Row(case.name, OURS, "(alone)", None, None, None, size, None, None)]
    names, jobs, errors = _runnable(contest, case)
    seconds, *others = race(jobs, rounds=rounds)
    rows = []
    for name, other in zip(names, others, strict=True):
        theirs = extra_memory_of(case.name, name) if memory else None
        ratio = other / seconds
        error = errors[name]
        rows.append(Row(case.name, OURS, name, seconds, other, ratio, size, theirs, error))
    return rows


def _runnable(contest: Contest, case: Case) -> tuple[list[str], list, dict[str, float | None]]:
    """The peers that run here and agree with us; a peer that cannot run is named on stderr."""
    ours = as_job(contest.ours, contest.leaves, backward=case.backward)
    answer = ours()
    names: list[str] = []
    jobs = [ours]
    errors: dict[str, float | None] = {}
    for name, peer in (contest.peers | contest.others).items():
        job = as_job(peer, contest.leaves, backward=case.backward)
        try:
            found = job()
        except Exception as problem:  # a peer may not support this machine: say so, go on
            print(f"{case.name}: {name} cannot run here: {_first_line(problem)}", file=sys.stderr)
            continue
        errors[name] = largest_error(answer, found) if name in contest.peers else None
        if errors[name] is not None and not errors[name] <= contest.tolerance:  # type: ignore
            raise SystemExit(f"{case.name}: {name} differs from regard by {errors[name]:.2g}")
        names.append(name)
        jobs.append(job)
    return names, jobs, errors


def scaling(*, rounds: int, longest: int) -> tuple[list[int], dict[str, float]]:
    """The lengths, and the exponent of the time of each form of linear attention over them."""
    lengths = [length for length in SCALING if length <= longest]
    seconds: dict[str, list[float]] = {}
    for length in lengths:
        forms = linear_forms(length)
        jobs = [as_job(job, (), backward=False) for job in forms.values()]
        for name, best in zip(forms, race(jobs, rounds=rounds), strict=True):
            seconds.setdefault(name, []).append(best)
    return lengths, {name: exponent(lengths, times) for name, times in seconds.items()}


HEADER = """| case | against | ours | peer | ratio | extra memory | peer's | error |
|---|---|---:|---:|---:|---:|---:|---:|"""


def markdown(row: Row) -> str:
    """One line of the table."""
    cells = [
        row.case,
        row.peer,
        _milliseconds(row.seconds),
        _milliseconds(row.peer_seconds),
        "" if row.ratio is None else f"**{row.ratio:.3g}×**",
        _megabytes(row.bytes),
        _megabytes(row.peer_bytes),
        "" if row.max_error is None else f"{row.max_error:.0e}",
    ]
    return "| " + " | ".join(cells) + " |"


def select(only: str, *, quick: bool) -> list[Case]:
    """The cases whose name contains `only`; `ValueError` if there are none."""
    named = [case for case in CASES if only in case.name]
    if not named:
        kinds = dict.fromkeys(re.split(r" \(|, ", case.name)[0] for case in CASES)
        raise ValueError(f"--only {only!r} is part of no case's name; known: {', '.join(kinds)}")
    cases = [case for case in named if case.quick or not quick]
    if not cases:
        raise ValueError(f"{named[0].name} is not a case of --quick: leave that out")
    return cases


def draw(file: Path, *, longest: int) -> None:
    """Measure time and memory of forward passes against length, and draw both, log-log."""
    from matplotlib.figure import Figure

    found: dict[str, list[tuple[int, float, int]]] = {name: [] for name in curves(256)}
    for length in (2**power for power in range(8, 17) if 2**power <= longest):
        for name, job in curves(length).items():
            points = found[name]
            reached = not points or (points[-1][0] * 2 == length and points[-1][1] * 4 <= LIMIT)
            if reached and not (name == "textbook softmax" and length > 16384):
                forward = as_job(job, (), backward=False)
                size = extra_memory(forward)
                points.append((length, race([forward], rounds=2)[0], size))
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, points), marker in zip(found.items(), "osD^vP", strict=True):
        lengths = [point[0] for point in points]
        left.plot(lengths, [1000 * point[1] for point in points], marker=marker, label=name)
        right.plot(lengths, [max(point[2], 2**16) / 1e6 for point in points], marker=marker)
    for panel, label in ((left, "milliseconds, forward"), (right, "extra memory, MB")):
        panel.set(yscale="log", xlabel="length (queries = keys)", ylabel=label)
        panel.set_xscale("log", base=2)
        panel.grid(alpha=0.3)
    left.legend(frameon=False, fontsize=9)
    figure.suptitle(f"8 heads × 64, float32, {torch.get_num_threads()} threads")
    figure.savefig(file, dpi=130)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases, and print each row as soon as it is measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small cases, fewer rounds")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains it")
    parser.add_argument("--no-memory", action="store_true", help="do not measure memory")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="also write the rows here")
    parser.add_argument(
        "--chart", type=output_file, metavar="FILE.png", help="draw time and memory against length"
    )
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--who", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.memory_of:
        print(_memory_of(options.memory_of, options.who))
        return
    try:
        cases = select(options.only, quick=options.quick)
    except ValueError as error:
        parser.error(str(error))
    if options.chart is not None:
        import matplotlib  # noqa: F401  # now, not after the measurements
    rounds = 3 if options.quick else 7
    threads = torch.get_num_threads()
    print(f"{threads} threads, torch {torch.__version__}, best of {rounds} rounds\n")
    print(HEADER, flush=True)
    rows: list[Row] = []
    start = time.monotonic()
    for number, case in enumerate(cases, 1):
        spent = time.monotonic() - start
        each = spent / max(number - 1, 1)
        left = f", about {each * (len(cases) - number + 1):.0f} s left" if number > 2 else ""
        print(f"[{number}/{len(cases)}] {case.name}: {spent:.0f} s so far{left}", file=sys.stderr)
        for row in run_case(case, rounds=rounds, memory=not options.no_memory):
            rows.append(row)
            write_rows(options.json, [asdict(row) for row in rows])
            print(markdown(row), flush=True)  # after it is written: a row that was seen is kept
    if not options.only:
        lengths, slopes = scaling(rounds=rounds, longest=2**14 if options.quick else 2**16)
        for name, slope in slopes.items():
            print(f"\n{name}, L = {lengths[0]} to {lengths[-1]}: time grows as L^{slope:.2f}")
    if options.chart is not None:
        draw(options.chart, longest=2**13 if options.quick else 2**16)


def _memory_of(name: str, who: str) -> int:
    (case,) = [case for case in CASES if case.name == name]
    contest = case.make()
    job = contest.ours if who == OURS else (contest.peers | contest.others)[who]
    return extra_memory(as_job(job, contest.leaves, backward=case.backward))


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.3g} ms"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.3g} MB"


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0][:200]


if __name__ == "__main__":
    main()
