"""How long an output may become."""

from typing import NamedTuple

from torch import Tensor

from regard.layers.position import Learned


class Limits(NamedTuple):
    """At most `ratio` · S + `extra` tokens for a source of S, the end included.

    >>> import torch
    >>> Limits(ratio=2.0, extra=5).of(torch.tensor([3, 7])).tolist()
    [11, 19]
    """

    ratio: float = 2.0
    extra: int = 50

    def of(self, source_lengths: Tensor, model: object = None) -> Tensor:
        """The most tokens for each source (batch,); a model with learned positions has its own."""
        if self.ratio < 0 or self.ratio + self.extra < 1:
            raise ValueError(
                f"limits should leave room for 1 token or more, got ratio={self.ratio} and "
                f"extra={self.extra}"
            )
        most = (source_lengths * self.ratio).long().clamp(min=0) + self.extra
        position = getattr(model, "target_position", None)
        if isinstance(position, Learned):
            most = most.clamp(max=len(position.weight))
        return most.clamp(min=1)
