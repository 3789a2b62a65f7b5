"""Images by attention over their pixels or patches."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import Attended
from regard.layers.add_norm import PreNorm
from regard.layers.feed_forward import FeedForward
from regard.layers.hierarchical import HierarchicalAttention
from regard.models.embedding import check_dropout, check_sizes
from regard.models.self_attention import find_self_attention
from regard.models.summary import summary


class Seen(NamedTuple):
    """What an image was taken for, and where that came from."""

    logits: Tensor  # (B, classes)
    weights: Tensor | None  # (B, rows, columns) of patches; they sum to one; None unless asked for


class ImageLayer(nn.Module):
    """Attention among patches and a feed-forward network, each inside x + f(norm(x)).

    >>> ImageLayer(12, 3, 24, attention="efficient")(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(
        self, dim: int, heads: int, hidden: int, *, attention: str, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention = find_self_attention(attention)(dim, heads)
        self.feed_forward = FeedForward(dim, hidden, activation=F.gelu, dropout=dropout)
        self.around_attention = PreNorm(dim, dropout)
        self.around_feed_forward = PreNorm(dim, dropout)

    def forward(self, x: Tensor, *, return_map: bool = False) -> Tensor | Attended:
        """x (B, N, dim) one layer further, and the map (B, heads, N, N) if asked."""
        y = self.attention(self.around_attention.enter(x), return_map=return_map)
        map = None
        if isinstance(y, Attended):
            y, map = y
        x = self.around_attention.leave(x, y)
        around = self.around_feed_forward
        x = around.leave(x, self.feed_forward(around.enter(x)))
        return x if map is None else Attended(x, map)


class ImageClassifier(nn.Module):
    """Classify images by attention among patches of them, or pixels.

    As in Dosovitskiy et al. 2021, section 3.1, patches are projected and get a position, and one
    more token, the class token, collects what is needed to classify. Attention is the efficient
    one of Shen et al. 2018, or dot-product. With `region`, there is no class token: patches are
    pooled to regions and those to the image, by hierarchical attention.

    >>> model = ImageClassifier((8, 12), 3, patch=2, dim=10, heads=2)
    >>> seen = model(torch.rand(5, 8, 12), return_map=True)
    >>> seen.logits.shape, seen.weights.shape
    (torch.Size([5, 3]), torch.Size([5, 4, 6]))

    Args:
        size: height and width of the images
        classes: number of classes
        patch: side of a patch; 1 takes every pixel
        dim: width of the stream
        heads: number of heads, a divisor of `dim`
        hidden: width of the feed-forward networks, 2 · dim if None
        layers: number of layers
        attention: "efficient" or "dot"
        region: side of a region, in patches; None for a class token
        dropout: of hidden units, and of what each sublayer adds
    """

    def __init__(
        self,
        size: tuple[int, int],
        classes: int,
        *,
        patch: int = 1,
        dim: int = 64,
        heads: int = 4,
        hidden: int | None = None,
        layers: int = 3,
        attention: str = "efficient",
        region: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(classes=classes, patch=patch, dim=dim, layers=layers)
        check_dropout(dropout)
        rows, columns = _divided(size, patch, "patch", "pixels")
        if region is not None:
            check_sizes(region=region)
            _divided((rows, columns), region, "region", "patches")
        self.size, self.patch, self.region = tuple(size), patch, region
        self.grid = rows, columns
        self.patches = nn.Linear(patch * patch, dim)
        # what is drawn and where it is weigh about the same, and both more than the layers add
        nn.init.normal_(self.patches.weight, std=3 / patch)
        self.row_position = nn.Parameter(0.5 * torch.randn(rows, 1, dim))
        self.column_position = nn.Parameter(0.5 * torch.randn(columns, dim))
        hidden = 2 * dim if hidden is None else hidden
        self.layers = nn.ModuleList(
            ImageLayer(dim, heads, hidden, attention=attention, dropout=dropout)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.class_token = nn.Parameter(0.5 * torch.randn(dim)) if region is None else None
        self.pooling = None if region is None else HierarchicalAttention(dim)
        self.output = nn.Linear(dim, classes)

    def forward(self, images: Tensor, *, return_map: bool = False) -> Seen:
        """Classify images (B, height, width), of values around 0 to 1.

        With `return_map` also the weights of the patches: where the class token looked in the
        last layer, on average over the heads, or the product of both levels of the pooling.
        """
        x = self._patches(images)  # (B, rows · columns, dim)
        if self.class_token is not None:
            x = torch.cat((self.class_token.expand(len(x), 1, -1), x), dim=1)
        last = len(self.layers) - 1
        map = None
        for index, layer in enumerate(self.layers):
            asked = return_map and index == last and self.class_token is not None
            x = layer(x, return_map=asked)
            if isinstance(x, Attended):
                x, map = x
        x = self.norm(x)
        if self.pooling is not None:
            return self._pooled(x, return_map)
        weights = None
        if map is not None:
            row = map[..., :1, 1:].mean(1).squeeze(-2)  # of the class token, (B, N)
            weights = (row / row.sum(-1, keepdim=True)).unflatten(-1, self.grid)
        return Seen(self.output(x[:, 0]), weights)

    def summary(self) -> str:
        """Its parts with their numbers of parameters, as a table."""
        return summary(self)

    def extra_repr(self) -> str:
        return f"size={self.size}, patch={self.patch}, region={self.region}"

    def _patches(self, images: Tensor) -> Tensor:
        if images.dim() != 3 or tuple(images.shape[1:]) != self.size:
            raise ValueError(
                f"images should be (B, {self.size[0]}, {self.size[1]}), got {tuple(images.shape)}"
            )
        rows, columns = self.grid
        cut = images.unflatten(2, (columns, self.patch)).unflatten(1, (rows, self.patch))
        cut = cut.transpose(2, 3).flatten(3)  # (B, rows, columns, patch · patch)
        x = self.patches(cut) + (self.row_position + self.column_position)
        return x.flatten(1, 2)

    def _pooled(self, x: Tensor, return_map: bool) -> Seen:
        """Patches to regions to the image."""
        assert self.pooling is not None
        assert self.region is not None
        (rows, columns), side = self.grid, self.region
        high, wide = rows // side, columns // side
        regions = x.view(len(x), high, side, wide, side, -1).transpose(2, 3)
        found = self.pooling(regions.flatten(3, 4).flatten(1, 2))  # (B, regions, side², dim)
        weights = None
        if return_map:
            inside = found.word_map.dense().squeeze(-2)  # (B, regions, side²)
            of_region = found.sentence_map.dense().squeeze(-2).unsqueeze(-1)  # (B, regions, 1)
            weights = (inside * of_region).view(-1, high, wide, side, side)
            weights = weights.transpose(2, 3).reshape(-1, rows, columns)
        return Seen(self.output(found.document), weights)


def _divided(size: tuple[int, int], side: int, name: str, what: str) -> tuple[int, int]:
    if min(size) < 1 or size[0] % side or size[1] % side:
        raise ValueError(
            f"{name}={side} should divide the {size[0]} × {size[1]} {what} of an image"
        )
    return size[0] // side, size[1] // side
