"""Images by attention over their pixels or patches."""

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.observer import record
from regard.layers.checks import check_dropout, check_sizes
from regard.layers.hierarchical import HierarchicalAttention
from regard.layers.transformer import EncoderLayer, PreNorm
from regard.models.options import find_self_attention


class ImageOutput(NamedTuple):
    """The logits of an image, and the weights of its patches."""

    logits: Tensor  # (B, classes)
    weights: Tensor | None  # (B, rows, columns) of patches, summing to one; None without return_map


class ImageClassifier(nn.Module):
    """Classify images by attention among patches of them, or pixels.

    As in Dosovitskiy et al. 2021, section 3.1, patches are projected, get a position, and are
    preceded by a class token, from which the class is predicted. Attention is the efficient one of
    Shen et al. 2018, or dot-product. With `region`, there is no class token: patches are pooled to
    regions and those to the image, by hierarchical attention.

    >>> model = ImageClassifier((8, 12), 3, patch=2, dim=10, heads=2)
    >>> seen = model(torch.rand(5, 8, 12), return_map=True)
    >>> seen.logits.shape, seen.weights.shape
    (torch.Size([5, 3]), torch.Size([5, 4, 6]))

    Args:
        size: height and width of the images
        classes: number of classes
        patch: side of a patch; 1 takes every pixel
        dim: width of the layers
        heads: number of heads, a divisor of `dim`
        hidden: width of the feed-forward networks, 2 · dim if None
        layers: number of layers
        attention: "efficient" or "dot"
        region: side of a region, in patches; None for a class token
        dropout: of hidden units, and of the output of each sublayer
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
        # content and position start with about the same scale, above that of the layers' outputs
        nn.init.normal_(self.patches.weight, std=3 / patch)
        self.row_position = nn.Parameter(0.5 * torch.randn(rows, 1, dim))
        self.column_position = nn.Parameter(0.5 * torch.randn(columns, dim))
        hidden = 2 * dim if hidden is None else hidden
        options: dict[str, Any] = {"attention": find_self_attention(attention), "dropout": dropout}
        self.layers = nn.ModuleList(
            EncoderLayer(dim, heads, hidden, activation=F.gelu, add_norm=PreNorm, **options)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.class_token = nn.Parameter(0.5 * torch.randn(dim)) if region is None else None
        self.pooling = None if region is None else HierarchicalAttention(dim)
        self.output = nn.Linear(dim, classes)

    def forward(self, images: Tensor, *, return_map: bool = False) -> ImageOutput:
        """Classify images (B, height, width), of values around 0 to 1.

        With `return_map` also the weights of the patches: those of the class token in the last
        layer, averaged over the heads, or the product of both levels of the pooling.
        """
        x = self._patches(images)  # (B, rows · columns, dim)
        if self.class_token is not None:
            x = torch.cat((self.class_token.expand(x.shape[0], 1, -1), x), dim=1)
        for layer in self.layers[:-1]:
            x = layer(x)
        looks = return_map and self.class_token is not None
        recording: Any = record() if looks else nullcontext([])
        with recording as calls:
            x = self.layers[-1](x)
        x = self.norm(x)
        if self.pooling is not None:
            return self._pooled(x, return_map)
        weights = None
        if return_map:
            map = calls[0].map  # (B, heads, 1 + N, 1 + N)
            row = map[..., :1, 1:].mean(1).squeeze(-2)  # of the class token, (B, N)
            weights = (row / row.sum(-1, keepdim=True)).unflatten(-1, self.grid)
        return ImageOutput(self.output(x[:, 0]), weights)

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

    def _pooled(self, x: Tensor, return_map: bool) -> ImageOutput:
        """Patches to regions to the image."""
        assert self.pooling is not None
        assert self.region is not None
        (rows, columns), side = self.grid, self.region
        high, wide = rows // side, columns // side
        regions = x.view(x.shape[0], high, side, wide, side, -1).transpose(2, 3)
        found = self.pooling(regions.flatten(3, 4).flatten(1, 2))  # (B, regions, side², dim)
        weights = None
        if return_map:
            inside = found.word_map.dense().squeeze(-2)  # (B, regions, side²)
            of_region = found.sentence_map.dense().squeeze(-2).unsqueeze(-1)  # (B, regions, 1)
            weights = (inside * of_region).view(-1, high, wide, side, side)
            weights = weights.transpose(2, 3).reshape(-1, rows, columns)
        return ImageOutput(self.output(found.document), weights)


def _divided(size: tuple[int, int], side: int, name: str, what: str) -> tuple[int, int]:
    if min(size) < 1 or size[0] % side or size[1] % side:
        raise ValueError(
            f"{name}={side} should divide the {size[0]} × {size[1]} {what} of an image"
        )
    return size[0] // side, size[1] // side
