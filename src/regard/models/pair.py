"""The pair classifier: co-attention between two inputs, and a class of both."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.mask import lengths as real
from regard.core.names import check_name
from regard.core.ties import absolute, largest
from regard.layers.checks import check_dropout, check_sizes
from regard.layers.co import (
    Aligned,
    AlignedCoAttention,
    AlternatingCoAttention,
    CoAttended,
    CoAttention,
)
from regard.layers.masking import zero_padding
from regard.layers.transformer import EncoderLayer
from regard.models.embedding import Tokens, source_embedding
from regard.models.options import find_positions
from regard.models.stack import Stack

ATTENTIONS = {"parallel": CoAttention, "alternating": AlternatingCoAttention}
START = 0.1  # of the entries of embeddings whose words are compared one by one


class Phrases(nn.Module):
    """The maximum over phrases of each length that start at a word.

        p(s, t) = tanh(W_s [x_t ; … ; x_{t+s−1}] + b_s),  y_t = max_s p(s, t)

    Lu et al. 2016, eq. 1-2. It distinguishes "red square" from "red circle", wherever they occur.
    What follows the last word is zero.

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
        phrases = [each(F.pad(x, (0, size))) for size, each in enumerate(self.lengths)]
        return torch.tanh(largest(torch.stack(phrases), 0)).mT


class Side(nn.Module):
    """One input as vectors: tokens with positions, or float cells, and layers of self-attention.

    >>> Side(13, None, 12, layers=1, heads=3)(torch.randint(13, (2, 5)), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 12])

    Args:
        vocabulary: number of tokens; None for cells
        width: of a cell; None for tokens
        dim: width of the vectors
        layers: of self-attention; 0 for none
        heads: of self-attention
        phrase: words of the longest phrase, see `Phrases`; 1 for none, as with cells
        position: of tokens, "sinusoidal" or "none"
        start: size of the entries of token embeddings before training
        dropout: in train mode
    """

    def __init__(
        self,
        vocabulary: int | None,
        width: int | None,
        dim: int,
        *,
        layers: int,
        heads: int,
        phrase: int = 1,
        position: str = "sinusoidal",
        start: float = 1.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = source_embedding(
            vocabulary, width, dim, scale=1.0 if vocabulary is None else dim**0.5
        )
        if not isinstance(self.embedding, Tokens):
            position = "none"  # cells contain their own
        elif start != 1.0:
            nn.init.normal_(self.embedding.weight, std=start / dim**0.5)
        self.position, _ = find_positions(position, dim, heads, 0)
        self.phrases = None if phrase == 1 or vocabulary is None else Phrases(dim, phrase)
        self.encoder = None
        if layers:
            options: dict[str, Any] = {"heads": heads, "hidden": 2 * dim, "dropout": dropout}
            self.encoder = Stack(EncoderLayer, layers, dim, norm="pre", **options)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Token ids (B, L) or cells (B, L, width) to (B, L, dim)."""
        x = self.drop(self.position(self.embedding(x)))
        if self.phrases is not None:
            x = self.phrases(zero_padding(x, real(lengths)))
        return x if self.encoder is None else self.encoder(x, mask=real(lengths))


class PairClassifier(nn.Module):
    """Classify two inputs by co-attention.

        (l, r) = CoAttention(left, right),  p = softmax(W₂ gelu(W₁ [l ; r ; l ∘ r ; |l − r|]))

    Lu et al. 2016 for the attention; the four-fold join is that of Mou et al. 2016, eq. 4. For
    tasks that find and compare things use layers=0: self-attention mixes all positions, and
    co-attention then stays almost uniform.

    >>> model = PairClassifier(2, left_vocabulary=13, right_cells=7, dim=12, heads=3)
    >>> logits, found = model(torch.randint(13, (2, 5)), torch.tensor([5, 3]),
    ...                       torch.randn(2, 11, 7), torch.tensor([11, 11]))
    >>> logits.shape, found.affinity.shape
    (torch.Size([2, 2]), torch.Size([2, 5, 11]))

    Args:
        classes: number of classes
        left_vocabulary: tokens of the left input, a text
        right_vocabulary: tokens of the right input, if it is a text
        right_cells: width of the cells of the right input, if it is an image
        dim: width of all vectors
        heads: of self-attention
        layers: of self-attention on each side, before co-attention
        attention: "parallel" or "alternating"
        phrase: words of the longest phrase of a text, see `Phrases`; 1 for none
        glimpses: of parallel co-attention: number of distributions over each side
        dropout: in train mode
    """

    def __init__(
        self,
        classes: int,
        *,
        left_vocabulary: int,
        right_vocabulary: int | None = None,
        right_cells: int | None = None,
        dim: int = 64,
        heads: int = 4,
        layers: int = 1,
        attention: str = "parallel",
        phrase: int = 1,
        glimpses: int = 1,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_sizes(classes=classes, dim=dim, heads=heads, phrase=phrase, glimpses=glimpses)
        check_dropout(dropout)
        check_name("attention", attention, ATTENTIONS)
        if attention == "alternating" and glimpses > 1:
            raise ValueError(f"alternating attention has one glimpse, got glimpses={glimpses}")
        options = {"layers": layers, "heads": heads, "phrase": phrase, "dropout": dropout}
        self.left = Side(left_vocabulary, None, dim, **options)  # type: ignore[arg-type]
        self.right = Side(right_vocabulary, right_cells, dim, **options)  # type: ignore[arg-type]
        more = {"glimpses": glimpses} if attention == "parallel" else {}
        self.attention = ATTENTIONS[attention](dim, dim, dim, **more)
        width = glimpses * dim
        self.hidden = nn.Linear(4 * width, width)
        self.output = nn.Linear(width, classes)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, left: Tensor, left_lengths: Tensor, right: Tensor, right_lengths: Tensor
    ) -> tuple[Tensor, CoAttended]:
        """Logits (B, classes), and both contexts with both maps.

        Args:
            left: token ids (B, L)
            left_lengths: how many are real, (B,)
            right: token ids (B, R), or cells (B, R, width)
            right_lengths: how many are real, (B,)
        """
        attended = self.attention(
            self.left(left, left_lengths),
            self.right(right, right_lengths),
            left_mask=left_lengths,
            right_mask=right_lengths,
        )
        joined = join(attended.left, attended.right)
        hidden = F.gelu(self.hidden(self.drop(joined)))
        return self.output(self.drop(hidden)), attended


class AlignedPairClassifier(nn.Module):
    """Classify two inputs by comparing every position with what it found on the other side.

        (β, α) = AlignedCoAttention(q, v)
        l = mean_i gelu(W_l [q_i ; β_i ; q_i ∘ β_i ; |q_i − β_i|]),  r likewise from v and α
        p = softmax(W₂ gelu(W₁ [l ; r]))

    Parikh et al. 2016, eq. 1-5, with means for its sums, so that length does not matter, and the
    join of Mou et al. 2016, eq. 4. `PairClassifier` compares two pooled vectors, in which single
    words are hard to recognize; this model decides by the words that have no counterpart.

    Embeddings start small: a word seen once or twice keeps much of its initial vector, and a large
    one has random affinities. Without self-attention there are no positions.

    >>> model = AlignedPairClassifier(2, left_vocabulary=13, right_vocabulary=17, dim=12)
    >>> logits, found = model(torch.randint(13, (2, 5)), torch.tensor([5, 3]),
    ...                       torch.randint(17, (2, 7)), torch.tensor([4, 7]))
    >>> logits.shape, found.left_map.shape
    (torch.Size([2, 2]), torch.Size([2, 5, 7]))

    Args: as of `PairClassifier`
    """

    def __init__(
        self,
        classes: int,
        *,
        left_vocabulary: int,
        right_vocabulary: int | None = None,
        right_cells: int | None = None,
        dim: int = 64,
        heads: int = 4,
        layers: int = 0,
        phrase: int = 1,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_sizes(classes=classes, dim=dim, heads=heads, phrase=phrase)
        check_dropout(dropout)
        options: dict[str, Any] = {
            "layers": layers,
            "heads": heads,
            "phrase": phrase,
            "position": "sinusoidal" if layers else "none",
            "start": START,
            "dropout": dropout,
        }
        self.left = Side(left_vocabulary, None, dim, **options)
        self.right = Side(right_vocabulary, right_cells, dim, **options)
        self.attention = AlignedCoAttention(dim, dim)
        self.left_comparison, self.right_comparison = (nn.Linear(4 * dim, dim) for _ in range(2))
        self.hidden = nn.Linear(2 * dim, dim)
        self.output = nn.Linear(dim, classes)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, left: Tensor, left_lengths: Tensor, right: Tensor, right_lengths: Tensor
    ) -> tuple[Tensor, Aligned]:
        """Logits (B, classes), and the contexts and maps of all positions. Arguments as above."""
        one, two = self.left(left, left_lengths), self.right(right, right_lengths)
        found = self.attention(one, two, left_mask=left_lengths, right_mask=right_lengths)
        compared = (
            self._compare(self.left_comparison, one, found.left, left_lengths),
            self._compare(self.right_comparison, two, found.right, right_lengths),
        )
        hidden = F.gelu(self.hidden(self.drop(torch.cat(compared, dim=-1))))
        return self.output(self.drop(hidden)), found

    def _compare(self, layer: nn.Linear, x: Tensor, context: Tensor, lengths: Tensor) -> Tensor:
        """The mean over the real positions of x (B, L, dim) compared with their context."""
        compared = F.gelu(layer(self.drop(join(x, context))))
        return zero_padding(compared, real(lengths)).sum(1) / lengths.clamp(min=1).unsqueeze(1)


def join(one: Tensor, two: Tensor) -> Tensor:
    """[a ; b ; a ∘ b ; |a − b|], Mou et al. 2016, eq. 4."""
    return torch.cat((one, two, one * two, absolute(one - two)), dim=-1)
