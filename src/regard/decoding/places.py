"""Which place in the batch a beam takes, so that as little as possible moves."""

import numpy as np


def keeping_places(parents: np.ndarray, places: int) -> np.ndarray:
    """The order of children in which the first child of a beam takes its parent's place.

    The others fill the places of beams without children.

    >>> keeping_places(np.array([[2, 2, 0]]), places=3)  # children 0 and 1 of beam 2, 2 of beam 0
    array([[2, 1, 0]])

    Args:
        parents: the beam that each child continues, (sentences, children)
        places: beams there were; other than children at the first step only

    Returns: which child stands at each place, (sentences, children)
    """
    sentences, children = parents.shape
    if places != children:
        return np.broadcast_to(np.arange(children), parents.shape)
    row = np.arange(sentences)[:, None]
    same = parents[:, :, None] == parents[:, None, :]
    later = np.tril(same, -1).any(2)  # a child that is not its parent's first
    taken = np.zeros_like(later)
    np.put_along_axis(taken, parents, True, 1)
    free = np.argsort(taken, axis=1, kind="stable")  # free places first
    rank = np.clip(later.cumsum(1) - 1, 0, None)
    place = np.where(later, free[row, rank], parents)
    standing = np.empty_like(place)
    standing[row, place] = np.arange(children)
    return standing


def without(done: np.ndarray) -> np.ndarray:
    """The places of what goes on, where the last ones fill the places of those that are done.

    >>> without(np.array([False, True, False, False, True]))
    array([0, 3, 2])
    """
    count = int((~done).sum())
    order = np.arange(count)
    order[done[:count]] = count + (~done[count:]).nonzero()[0]
    return order
