"""`regard bench attention`: every case beside its peers, one table, one JSON file, one chart.

python -m benchmarks.attention --quick
"""

import argparse
import json
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.attention_cases import CASES, SCALING, Case, exponent, linear_forms
from benchmarks.contest import (
    Contest,
    Row,
    as_job,
    extra_memory,
    extra_memory_of,
    largest_error,
    race,
)
from regard.core.files import atomic_file

OURS = "regard"


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


def main(
    *, quick: bool, json_file: Path | None, chart_file: Path | None, only: str, memory: bool
) -> None:
    """Run the cases whose name contains `only`, and print each row as soon as it is measured.

    The JSON file has the rows measured so far, also after Ctrl-C.
    """
    rounds = 3 if quick else 7
    cases = select(only, quick=quick)
    print(
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, best of {rounds} rounds\n"
    )
    print(HEADER, flush=True)
    rows: list[Row] = []
    start = time.monotonic()
    for number, case in enumerate(cases, 1):
        spent = time.monotonic() - start
        each = spent / max(number - 1, 1)
        left = f", about {each * (len(cases) - number + 1):.0f} s left" if number > 2 else ""
        print(f"[{number}/{len(cases)}] {case.name}: {spent:.0f} s so far{left}", file=sys.stderr)
        for row in run_case(case, rounds=rounds, memory=memory):
            rows.append(row)
            if json_file is not None:  # before it is printed: a row that was seen is kept
                with atomic_file(json_file) as part:
                    part.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
            print(markdown(row), flush=True)
    if not only:
        lengths, slopes = scaling(rounds=rounds, longest=2**14 if quick else 2**16)
        for name, slope in slopes.items():
            print(f"\n{name}, L = {lengths[0]} to {lengths[-1]}: time grows as L^{slope:.2f}")
    if chart_file is not None:
        from benchmarks.chart import draw

        draw(chart_file, longest=2**13 if quick else 2**16)


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small cases, fewer rounds")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--chart", type=Path, help="draw time and memory against length here (PNG)")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--no-memory", action="store_true", help="do not measure memory")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--who", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(_memory_of(options.memory_of, options.who))
    else:
        main(
            quick=options.quick,
            json_file=options.json,
            chart_file=options.chart,
            only=options.only,
            memory=not options.no_memory,
        )
