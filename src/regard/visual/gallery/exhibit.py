"""What the gallery shows of one mechanism."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Exhibit:
    """One mechanism: its name, formula and paper, the map it made, and what it cost."""

    room: str
    name: str
    formula: str
    paper: str
    code: str
    caption: str
    weights: Tensor  # (M, N)
    rows: Sequence[str]
    columns: Sequence[str]
    cost: str

    @property
    def file_name(self) -> str:
        """A name for files, from letters, digits and hyphens."""
        words = "".join(letter if letter.isalnum() else " " for letter in self.name.lower()).split()
        return "-".join([self.room.split()[0].strip(",").lower(), *words])
