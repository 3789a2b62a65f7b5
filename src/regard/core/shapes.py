"""Shapes that broadcast. Torch's own function for this takes as long as a small attention."""

from collections.abc import Sequence

import torch


def broadcast(*shapes: Sequence[int]) -> torch.Size:
    """The shape that all of these broadcast to, as torch's `broadcast_shapes`.

    >>> broadcast((3, 1), (5,), (1, 1, 5))
    torch.Size([1, 3, 5])

    Raises:
        RuntimeError: if two sizes differ and neither is 1
    """
    if all(len(shape) == len(shapes[0]) and shape == shapes[0] for shape in shapes):
        return torch.Size(shapes[0])
    whole = [1] * max(map(len, shapes))
    for shape in shapes:
        for place, size in enumerate(shape, len(whole) - len(shape)):
            if size != 1 and size != whole[place]:
                if whole[place] != 1:
                    raise RuntimeError(f"shapes {shapes} do not broadcast")
                whole[place] = size
    return torch.Size(whole)


def fits(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a shape broadcasts to another, which it does not widen.

    >>> fits((3, 1), (2, 3, 5)), fits((2,), (1,))
    (True, False)
    """
    if len(shape) > len(whole):
        return False
    pairs = zip(shape, whole[len(whole) - len(shape) :], strict=True)
    # not `in (1, size)`, which a compiler denies for a size that may vary
    return all(own == 1 or own == size for own, size in pairs)
