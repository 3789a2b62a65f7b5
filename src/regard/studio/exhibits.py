"""The gallery: every mechanism, drawn once, and timed on request."""

import threading

from regard.studio.messages import CostCurve, ExhibitEntry
from regard.visual.gallery import Exhibit, exhibits

LENGTHS = (128, 256, 512, 1024)
# chapters of docs/guide by the room of a mechanism, or by its name where it differs
GUIDES = {
    "Score functions": "scores",
    "Normalizers": "soft_hard_local",
    "Masks": "masks",
    "Local and hard": "soft_hard_local",
    "Several heads": "multi_head",
    "Positions": "transformer",
    "Efficient": "cost",
    "Two inputs, levels, graphs, memory": "self_co_graph",
    "score-soft-cap": "today",
    "normalizers-softmax": "scores",
    "normalizers-sigmoid": "today",
    "normalizers-sink": "today",
    "masks-window-with-sinks": "today",
    "several-grouped-query-head-0": "today",
    "several-differential-head-0": "today",
    "several-latent-head-0": "today",
    "efficient-gated-delta-recurrence": "today",
    "two-memory-neural-turing-machine": "memory",
}


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
                guide=GUIDES.get(name, GUIDES[shown.room]),
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
