"""`regard claims`: what the textbooks say about attention, measured on this machine."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.output import check_output, write_json

if TYPE_CHECKING:
    from regard.claims import Finding


def claims(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Which claims; all if none is given."),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the claims and exit.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Also draw a chart NAME.png for each claim."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller cases: seconds instead of a minute or two.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure what the textbooks say about attention.

    Prints each sentence, the numbers, and whether they agree.
    """
    from regard.claims import CLAIMS
    from regard.core.names import did_you_mean

    if listed:
        width = max(map(len, CLAIMS))
        for name, claim in CLAIMS.items():
            print(f"{name:<{width}}  {claim.sentence}")
        return
    chosen = names or list(CLAIMS)
    for name in chosen:
        if name not in CLAIMS:
            raise typer.BadParameter(f"unknown claim {name!r}{did_you_mean(name, CLAIMS)}")
    if out is not None:
        check_output(out)
        out.mkdir(parents=True, exist_ok=True)
    findings: dict[str, Finding] = {}
    for name in chosen:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        findings[name] = CLAIMS[name].measure(quick)
        if not as_json:
            print(f"{CLAIMS[name].sentence}\n\n{findings[name]}\n", flush=True)
        if out is not None and findings[name].charts:
            path = out / f"{name}.png"
            _draw(findings[name], path)
            print(path, file=sys.stderr)
    if as_json:
        write_json(
            {
                name: {"claim": CLAIMS[name].sentence, **finding.as_dict()}
                for name, finding in findings.items()
            }
        )


def _draw(finding: "Finding", path: Path) -> None:
    from regard.visual.figure.lines import Panel, panels

    shown = [Panel(chart.y, chart.curves, chart.log) for chart in finding.charts]
    panels(shown, path, against=finding.x)
