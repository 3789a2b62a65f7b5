"""A curve as text, for any terminal."""

import math
from collections.abc import Sequence

HEIGHT = 12  # lines


def curve(
    points: Sequence[tuple[float, float]], *, width: int = 60, mark: float | None = None
) -> str:
    """Draw y against x, where x has a logarithmic scale.

    >>> print(curve([(0.01, 2.0), (0.1, 1.0), (1.0, 3.0)], width=9, mark=0.1))
         3 |        •
           |
           |
           |
           |
           |
      1.91 |•
           |
           |
           |
           |
         1 |    •
           |    ^
           0.01    1

    Args:
        points: (x, y), x above 0 and growing
        width: columns
        mark: a value of x to mark below
    """
    if len(points) < 2 or points[0][0] <= 0:
        raise ValueError(f"a curve needs two points or more with x above 0, got {points}")
    first, last = math.log(points[0][0]), math.log(points[-1][0])
    low, high = min(y for _, y in points), max(y for _, y in points)

    def column(x: float) -> int:
        return round((math.log(x) - first) / (last - first) * (width - 1))

    def line(y: float) -> int:
        return round((high - y) / ((high - low) or 1.0) * (HEIGHT - 1))

    rows = [[" "] * width for _ in range(HEIGHT)]
    for x, y in points:
        rows[line(y)][column(x)] = "•"
    labels = {0: high, HEIGHT // 2: high - (high - low) * (HEIGHT // 2) / (HEIGHT - 1)}
    labels[HEIGHT - 1] = low
    names = [f"{labels[n]:.3g}" if n in labels else "" for n in range(HEIGHT)]
    drawn = [f"{name:>6} |{''.join(row)}" for name, row in zip(names, rows, strict=True)]
    if mark is not None:
        drawn.append(f"{'':>6} |{' ' * column(mark)}^")
    start, end = f"{points[0][0]:.2g}", f"{points[-1][0]:.2g}"
    drawn.append(f"{'':>7}{start}{end:>{max(len(end) + 1, width + 1 - len(start))}}")
    return "\n".join(row.rstrip() for row in drawn)
