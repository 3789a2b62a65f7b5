"""The gallery: every mechanism, drawn once, and timed on request."""

import threading

from regard.studio.messages import CostCurve, ExhibitEntry, ExhibitText
from regard.visual.gallery import ROOMS, Exhibit, exhibits
from regard.visual.html import LANGUAGES

LENGTHS = (128, 256, 512, 1024)
# chapters of docs/guide by the room of a mechanism, or by its name where it differs
GUIDES = {
    "score": "scores",
    "normalizers": "soft_hard_local",
    "masks": "masks",
    "local": "soft_hard_local",
    "several": "multi_head",
    "positions": "transformer",
    "efficient": "cost",
    "two": "self_co_graph",
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
                code=shown.code,
                guide=GUIDES.get(name, GUIDES[shown.room]),
                weights=[[round(weight, 4) for weight in row] for row in shown.weights.tolist()],
                texts={language: _text(shown, language) for language in LANGUAGES},
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
                self._drawn = {shown.key: shown for shown in exhibits()}
        return self._drawn


def _text(shown: Exhibit, language: str) -> ExhibitText:
    name, formula, paper, caption = shown.text(language)
    rows, columns = shown.labels(language)
    return ExhibitText(
        room=ROOMS[shown.room][language],
        title=name,
        formula=formula,
        paper=paper,
        caption=caption,
        rows=rows,
        columns=columns,
    )
