"""How much attention goes to where nothing is: the first token, [CLS], [SEP]."""

from collections.abc import Sequence

from torch import Tensor

from regard.analysis.rows import checked, over_rows


def sink_mass(weights: Tensor, sinks: Sequence[int] = (0,)) -> Tensor:
    """The mean weight that queries give to some keys: by default, the first one.

    Heads that have nothing to do rest on a token without meaning. Clark et al. 2019, section 3.2;
    Xiao et al. 2024 call it an attention sink.

    >>> import torch
    >>> sink_mass(torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]]))
    tensor(0.7500, dtype=torch.float64)

    Args:
        weights: (..., M, N)
        sinks: positions of keys

    Returns: (...), from 0 to 1
    """
    weights = checked(weights)
    wrong = [sink for sink in sinks if not -weights.shape[-1] <= sink < weights.shape[-1]]
    if wrong:
        raise ValueError(f"there are {weights.shape[-1]} keys, so none at {wrong}")
    distinct = sorted({sink % weights.shape[-1] for sink in sinks})
    return over_rows(weights[..., distinct].sum(-1), weights)
