"""Words with those that follow them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.embedding import check_sizes


class Phrases(nn.Module):
    """The strongest of the phrases of each length that begin at a word.

        p(s, t) = tanh(W_s [x_t ; … ; x_{t+s−1}] + b_s),  y_t = max_s p(s, t)

    Lu et al. 2016, eq. 1-2. "red square" and "red one" are two things after it, whatever their
    places in the sentence. What follows the last word is zero.

    >>> Phrases(5, 3)(torch.randn(2, 7, 5)).shape
    torch.Size([2, 7, 5])

    Args:
        dim: width of a word, and of a phrase
        longest: words of the longest phrase; 3 in the paper
    """

    def __init__(self, dim: int, longest: int) -> None:
        super().__init__()
        check_sizes(dim=dim, longest=longest)
        self.lengths = nn.ModuleList(nn.Conv1d(dim, dim, size) for size in range(1, longest + 1))

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, dim) to the same."""
        x = x.mT  # (B, dim, L)
        found = [each(F.pad(x, (0, size))) for size, each in enumerate(self.lengths)]
        return torch.tanh(torch.stack(found).amax(0)).mT
