"""The gallery: every mechanism, drawn once, and timed on request."""

import threading

from regard.studio.messages import CostCurve, ExhibitEntry
from regard.visual.gallery import Exhibit, exhibits

LENGTHS = (128, 256, 512, 1024)


class Gallery:
    """Every mechanism by name; the first call draws them, which takes a few seconds."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._drawn: dict[str, Exhibit] = {}

    def entries(self) -> list[ExhibitEntry]:
        """Return every mechanism."""
        return [
            ExhibitEntry(
                name=name,
                room=shown.room,
                title=shown.name,
                formula=shown.formula,
                paper=shown.paper,
                code=shown.code,
                caption=shown.caption,
                weights=[[round(weight, 4) for weight in row] for row in shown.weights.tolist()],
                rows=list(shown.rows),
                columns=list(shown.columns),
            )
            for name, shown in self._all().items()
        ]

    def cost(self, name: str) -> CostCurve:
        """Measure a mechanism at several lengths.

        Raises:
            FileNotFoundError: if no mechanism has this name
        """
        if name not in self._all():
            raise FileNotFoundError(f"no mechanism is named {name[:100]!r}")
        times = [self._all()[name].times(length) for length in LENGTHS]
        return CostCurve(
            lengths=list(LENGTHS),
            milliseconds=[1000 * ours for ours, _ in times],
            dense=[1000 * theirs for _, theirs in times],
        )

    def _all(self) -> dict[str, Exhibit]:
        with self.lock:
            if not self._drawn:
                self._drawn = {shown.file_name: shown for shown in exhibits()}
        return self._drawn
