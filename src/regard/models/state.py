"""What a recurrent decoder remembers between two steps."""

from typing import NamedTuple

from torch import Tensor

from regard.layers.cache import Past, SharedMemory
from regard.layers.moves import Moves, as_moves
from regard.models.recurrent import Hidden


class State(NamedTuple):
    """A value: a step returns a new one and leaves the old one as it was."""

    hidden: Hidden  # of the recurrent layers
    memory: Past | SharedMemory | None  # what attention asks, held once for all beams
    fed: Tensor | None  # (batch, width), what else joins the next input
    weights: dict[str, Tensor] | None  # the last step's, (batch, 1, S); None if nobody asked

    def reorder(self, index: Tensor | Moves) -> "State":
        """The state of other beams: entry i becomes what entry index[i] was."""
        moves = as_moves(index, len(self.hidden[0]))

        def picked(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, moves.index)

        return State(
            tuple(map(picked, self.hidden)),
            None if self.memory is None else self.memory.reorder(moves),
            None if self.fed is None else picked(self.fed),
            None if self.weights is None else {k: picked(w) for k, w in self.weights.items()},
        )
