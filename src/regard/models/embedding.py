"""Embeddings of token ids and of float frames, such as those of speech."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.checks import check_sizes
from regard.layers.dropout import Dropout


class Tokens(nn.Module):
    """One learned vector for each token, E[y], scaled.

    >>> Tokens(7, 5)(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 5])

    Args:
        vocabulary: number of tokens
        dim: width of the vectors
        scale: a factor, √dim in Vaswani et al. 2017, section 3.4
        dropout: of the vectors, in train mode
    """

    def __init__(
        self, vocabulary: int, dim: int, *, scale: float = 1.0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_sizes(vocabulary=vocabulary, dim=dim)
        self.weight = nn.Parameter(torch.randn(vocabulary, dim) / math.sqrt(dim))
        self.dim, self.scale, self.drop = dim, scale, Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Integers (batch, length) to (batch, length, dim)."""
        if ids.dim() != 2 or ids.is_floating_point():
            raise ValueError(
                f"token ids should be integers (batch, length), got {ids.dtype} "
                f"{tuple(ids.shape)}; for float frames build the model with frames=their width"
            )
        x = F.embedding(ids, self.weight)
        x = x if self.scale == 1.0 else x * self.scale
        return self.drop(x)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.dim}"


class Frames(nn.Module):
    """A linear projection of float frames.

    >>> Frames(3, 5)(torch.zeros(2, 7, 3)).shape
    torch.Size([2, 7, 5])

    Args:
        width: of a frame
        dim: of the result
        dropout: of the result, in train mode
    """

    def __init__(self, width: int, dim: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(frames=width, dim=dim)
        self.projection = nn.Linear(width, dim)
        self.dim, self.drop = dim, Dropout(dropout)

    def forward(self, frames: Tensor) -> Tensor:
        """(batch, length, width) to (batch, length, dim)."""
        width = self.projection.in_features
        if frames.dim() != 3 or frames.shape[-1] != width or not frames.is_floating_point():
            raise ValueError(
                f"frames should be float (batch, length, {width}), got {frames.dtype} "
                f"{tuple(frames.shape)}"
            )
        return self.drop(self.projection(frames))


def source_embedding(
    vocabulary: int | None,
    frames: int | None,
    dim: int,
    *,
    scale: float = 1.0,
    dropout: float = 0.0,
) -> Tokens | Frames:
    """The embedding of a source: `Tokens` given a vocabulary, `Frames` given their width."""
    if vocabulary is not None and frames is None:
        return Tokens(vocabulary, dim, scale=scale, dropout=dropout)
    if frames is not None and vocabulary is None:
        return Frames(frames, dim, dropout=dropout)
    raise ValueError(
        "a source is either tokens or float frames: give either source_vocabulary or frames, got "
        f"source_vocabulary={vocabulary} and frames={frames}"
    )


def tie_weights(output: nn.Linear, tokens: Tokens) -> nn.Linear:
    """The output, sharing the matrix of the embedding. Press & Wolf 2017."""
    if output.weight.shape != tokens.weight.shape:
        raise ValueError(
            f"an output of {output.in_features} features for {output.out_features} tokens cannot "
            f"share the matrix of an embedding {tuple(tokens.weight.shape)}; make the widths equal "
            "or leave the embeddings untied"
        )
    output.weight = tokens.weight
    return output
