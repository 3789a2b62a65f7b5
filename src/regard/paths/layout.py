"""Any leading dimensions as (batch, heads), as torch's fused attention expects them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core.key_range import KeyRange


@dataclass(frozen=True)
class Layout:
    """How leading dimensions fold into batch and heads.

    The last leading dimension is the heads. If keys and values have size 1 there, the heads form
    groups that share them (grouped-query attention), and nothing is copied for it.
    """

    leading: torch.Size
    batch_dims: int  # how many leading dimensions make the batch; the rest make the heads
    grouped: bool

    @property
    def batch(self) -> int:
        return self.leading[: self.batch_dims].numel()

    @property
    def heads(self) -> int:
        return self.leading[self.batch_dims :].numel()

    def fold_query(self, tensor: Tensor) -> Tensor:
        """(..., M, D) to (batch, heads, M, D)."""
        if len(self.leading) == 2 and self.batch_dims == 1 and tensor.shape[:-2] == self.leading:
            return tensor
        return tensor.expand(*self.leading, *tensor.shape[-2:]).reshape(
            self.batch, self.heads, *tensor.shape[-2:]
        )

    def fold_key(self, tensor: Tensor) -> Tensor:
        """(..., N, D) to (batch, key heads, N, D)."""
        if not self.grouped:
            return self.fold_query(tensor)
        shape = (*self.leading[:-1], 1)
        heads = self.leading[self.batch_dims : -1].numel()
        return tensor.expand(*shape, *tensor.shape[-2:]).reshape(
            self.batch, heads, *tensor.shape[-2:]
        )

    def fold_mask(self, block: Tensor) -> Tensor:
        """(..., rows, keys) to (batch or 1, heads or 1, rows, keys)."""
        missing = len(self.leading) + 2 - block.dim()
        block = block.reshape(*(1,) * missing, *block.shape)
        own = block.shape[:-2]
        batch, heads = own[: self.batch_dims], own[self.batch_dims :]
        if batch.numel() > 1:
            batch = self.leading[: self.batch_dims]
        if heads.numel() > 1:
            heads = self.leading[self.batch_dims :]
        block = block.expand(*batch, *heads, *block.shape[-2:])
        return block.reshape(batch.numel(), heads.numel(), *block.shape[-2:])

    def fold_key_range(self, keys: KeyRange, queries: int) -> KeyRange | None:
        """(..., M) to (batch or 1, M); None if the heads of one sequence see different keys."""
        parts = []
        for part in keys:
            part = torch.as_tensor(part, device=keys.low.device)
            part = part.expand(*part.shape[:-1], queries) if part.dim() else part.expand(queries)
            folded = self.fold_mask(part.unsqueeze(-2))  # (batch, heads, 1, M)
            if folded.shape[1] > 1:
                return None
            parts.append(folded[:, 0, 0])
        batch = max(part.shape[0] for part in parts)
        low, high, full = (part.expand(batch, queries) for part in parts)
        return KeyRange(low, high, full)

    def unfold(self, output: Tensor) -> Tensor:
        """(batch, heads, M, Dv) back to (..., M, Dv)."""
        if output.shape[:-2] == self.leading:
            return output
        return output.reshape(*self.leading, *output.shape[-2:])


def layout(leading: torch.Size, key: Tensor, value: Tensor) -> Layout:
    """The layout of a map with these leading dimensions, made from key and value."""
    count = len(leading)
    tails = [(*(1,) * count, *t.shape[:-2])[-1:] for t in (key, value)]
    grouped = count > 0 and leading[-1] > 1 and all(tail == (1,) for tail in tails)
    if grouped:
        return Layout(leading, max(count - 2, 0) if count > 2 else count - 1, True)
    return Layout(leading, 1 if count == 1 else max(count - 1, 0), False)
