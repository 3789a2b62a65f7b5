"""The tables of `regard compare`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.tasks.compare import Comparison
    from regard.tasks.compare_lengths import Point

HEAD = ("", "quality", "time to it", "time", "parameters", "tokens/s", "entropy")
NONE = "–"


def table(found: "Comparison") -> str:
    """What came of each variant, and a line about the columns."""
    from regard.training.progress import duration

    rows: list[Sequence[str]] = [HEAD]
    for row in found.rows:
        reached, speed = row.seconds_to_quality, row.tokens_per_second
        rows.append(
            (
                row.name,
                _quality(row.quality),
                "never" if reached is None else duration(reached),
                NONE if row.seconds is None else duration(row.seconds),
                f"{row.parameters:,}",
                NONE if speed is None else f"{speed:,.0f}",
                NONE if row.entropy is None else f"{row.entropy:.2f}",
            )
        )
    about = f"quality: {found.metric} on validation data"
    if found.target is not None:
        about += f"; time to it: to {found.target:.4f}"
    return "\n".join([*_aligned(rows), about + "; entropy: of the alignment, in nats"])


def lengths_table(points: Sequence["Point"]) -> str:
    """Every variant at every length, and a line about the columns."""
    order = list(dict.fromkeys(point.name for point in points))
    rows: list[Sequence[str]] = [("", "length", "quality", "gradient", "tokens/s", "alone")]
    for point in sorted(points, key=lambda point: (order.index(point.name), point.length)):
        rows.append(
            (
                point.name,
                str(point.length),
                _quality(point.quality),
                f"{point.gradient:.2e}",
                f"{point.tokens_per_second:,.0f}",
                f"{point.tokens_per_second_alone:,.0f}",
            )
        )
    about = (
        "quality: accuracy of tokens; gradient: at the first source token, untrained; tokens/s: "
        "forward and backward, of a batch; alone: of one sentence"
    )
    return "\n".join([*_aligned(rows), about])


def _quality(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.4f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
