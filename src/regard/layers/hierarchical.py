"""Hierarchical attention: words are pooled to sentences, and sentences to a document."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Attended, attend
from regard.attention.observer import observed
from regard.core.blocks import can_inspect_values
from regard.core.map import AttentionMap
from regard.core.mask import Mask, lengths
from regard.layers.checks import check_sizes
from regard.layers.masking import padding_mask, zero_padding

Encoder = Callable[[Tensor, Tensor], Tensor]
"""(x (N, L, dim), lengths (N,)) -> (N, L, dim'), each sequence independently."""


class AttentionPooling(nn.Module):
    """Pool a sequence to one vector: its average, weighted by a learned query.

        u_t = tanh(W h_t + b),  α = softmax(uᵀ u_w),  s = Σ_t α_t h_t

    Yang et al. 2016, eq. 5-7. A sequence without a real position gives zeros.

    >>> pool = AttentionPooling(5)
    >>> pool(torch.randn(2, 3, 5), mask=torch.tensor([3, 0])).shape
    torch.Size([2, 5])

    Args:
        dim: width of the positions
        hidden: width of u, `dim` if not given
        bias: whether there is a b
    """

    def __init__(self, dim: int, hidden: int | None = None, *, bias: bool = True) -> None:
        super().__init__()
        hidden = dim if hidden is None else hidden
        check_sizes(dim=dim, hidden=hidden)
        self.dim = dim
        self.projection = nn.Linear(dim, hidden, bias=bias)
        self.query = nn.Parameter(torch.empty(1, hidden))  # u_w
        nn.init.xavier_uniform_(self.query)

    @observed
    def forward(
        self,
        x: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        prior: Tensor | None = None,
        return_map: bool = False,
    ) -> Tensor | Attended:
        """Pool over the last dimension but one.

        Args:
            x: (..., L, dim)
            mask: which is real: lengths (...,), bool (..., L) with True = real, or a Mask
            prior: numbers π ≥ 0 (..., L) that the weights are multiplied by before they are
                normalized, α ∝ π exp(uᵀ u_w)
            return_map: also return the lazy map, (..., 1, L)

        Returns: (..., dim), or `Attended(output, map)`
        """
        if x.dim() < 2 or x.shape[-1] != self.dim:
            raise ValueError(f"x should be (..., length, {self.dim}), got {tuple(x.shape)}")
        if prior is not None and can_inspect_values(prior) and not bool((prior >= 0).all()):
            raise ValueError("prior should be at least 0; it has negative numbers or NaN")
        mask = padding_mask(mask, x)
        x = zero_padding(x, mask)
        key = torch.tanh(self.projection(x)).to(x.dtype)  # (..., L, hidden)
        query = self.query.to(x.dtype)[(None,) * (x.dim() - 2)]  # (1, ..., 1, hidden)
        bias = None if prior is None else prior.log().to(x.dtype).unsqueeze(-2)  # (..., 1, L)
        attended = attend(query, key, x, score="dot", mask=mask, bias=bias, return_map=return_map)
        if isinstance(attended, Attended):
            return Attended(attended.output.squeeze(-2), attended.map)
        return attended.squeeze(-2)


class HierarchicallyAttended(NamedTuple):
    """The document (B, dim), and the maps that led to it.

    `word_map` (B, S, 1, W) has the weight of each word in its sentence, `sentence_map` (B, 1, S)
    that of each sentence in the document.
    """

    document: Tensor
    word_map: AttentionMap
    sentence_map: AttentionMap


class HierarchicalAttention(nn.Module):
    """Pool words to sentences, and sentences to a document, by attention.

        s_i = Σ_t α_it h_it,  d = Σ_i α_i h_i

    Yang et al. 2016, eq. 5-7 and 8-10; `AttentionPooling` has the formula of α. In the paper
    h_it are words encoded by a GRU and h_i sentences encoded by another; these encoders are
    arguments, and without them h are the words and the s_i themselves. Any two levels will do,
    such as patches and regions of an image.

    A sentence without words gets weight zero, and a document without sentences gives zeros.

    >>> layer = HierarchicalAttention(5)
    >>> words = torch.randn(2, 3, 7, 5)  # two documents of up to three sentences of seven words
    >>> found = layer(words, word_lengths=torch.tensor([[7, 2, 4], [5, 0, 0]]),
    ...               sentence_lengths=torch.tensor([3, 1]))
    >>> found.document.shape, found.word_map.shape, found.sentence_map.shape
    (torch.Size([2, 5]), torch.Size([2, 3, 1, 7]), torch.Size([2, 1, 3]))

    Args:
        dim: width of the words
        hidden: width of u on both levels; the width of the pooled vectors if not given
        word_encoder: (words (N, W, dim), lengths (N,)) -> (N, W, word_dim), for N sentences at
            once, some of which may have length 0
        word_dim: width of the word encoder's output, `dim` if not given
        sentence_encoder: (sentences (B, S, word_dim), lengths (B,)) -> (B, S, sentence_dim)
        sentence_dim: width of the sentence encoder's output, `word_dim` if not given
    """

    def __init__(
        self,
        dim: int,
        hidden: int | None = None,
        *,
        word_encoder: Encoder | None = None,
        word_dim: int | None = None,
        sentence_encoder: Encoder | None = None,
        sentence_dim: int | None = None,
    ) -> None:
        super().__init__()
        word_dim = _encoded("word", word_encoder, word_dim, dim)
        sentence_dim = _encoded("sentence", sentence_encoder, sentence_dim, word_dim)
        self.dim = dim
        self.word_encoder, self.sentence_encoder = word_encoder, sentence_encoder
        self.words = AttentionPooling(word_dim, hidden)
        self.sentences = AttentionPooling(sentence_dim, hidden)

    def forward(
        self,
        words: Tensor,
        *,
        word_lengths: Tensor | None = None,
        sentence_lengths: Tensor | None = None,
        prior: Tensor | None = None,
    ) -> HierarchicallyAttended:
        """Pool documents of sentences of words.

        Args:
            words: (B, S, W, dim)
            word_lengths: words of each sentence, (B, S); all W if not given
            sentence_lengths: sentences of each document, (B,); all S if not given
            prior: numbers π ≥ 0 (B, S, W) that the weights of words are multiplied by before they
                are normalized; those of a sentence are multiplied by the sum of its words'

        Returns: the documents (B, sentence_dim) and both maps
        """
        if words.dim() != 4 or words.shape[-1] != self.dim:
            raise ValueError(
                "words should be (documents, sentences, words, dim), here (B, S, W, "
                f"{self.dim}), got {tuple(words.shape)}"
            )
        batch, sentences, longest, _ = words.shape
        of_documents = _counts("sentence_lengths", sentence_lengths, words, 1)  # (B,)
        of_sentences = _counts("word_lengths", word_lengths, words, 2)  # (B, S)
        place = torch.arange(sentences, device=words.device)
        of_sentences = of_sentences.masked_fill(place >= of_documents.unsqueeze(-1), 0)

        of_words, of_parts = None, None  # the priors of both levels
        if prior is not None:
            of_words, of_parts = _priors(prior, words, of_sentences)
        word_mask = lengths(of_sentences)
        words = zero_padding(words, word_mask)
        if self.word_encoder is not None:
            encoded = self.word_encoder(words.flatten(0, 1), of_sentences.flatten())
            words = _checked("word", encoded, (batch * sentences, longest, self.words.dim))
            words = words.unflatten(0, (batch, sentences))
        pooled, word_map = self.words(words, mask=word_mask, prior=of_words, return_map=True)
        if self.sentence_encoder is not None:
            encoded = self.sentence_encoder(pooled, of_documents)
            pooled = _checked("sentence", encoded, (batch, sentences, self.sentences.dim))
        document, sentence_map = self.sentences(
            pooled, mask=of_sentences > 0, prior=of_parts, return_map=True
        )
        return HierarchicallyAttended(document, word_map, sentence_map)


def _priors(prior: Tensor, words: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The priors of words (B, S, W) and of sentences (B, S), 1 where there is nothing real."""
    if prior.shape != words.shape[:3]:
        raise ValueError(
            f"prior should be {tuple(words.shape[:3])} for words {tuple(words.shape)}, got "
            f"{tuple(prior.shape)}"
        )
    real = torch.arange(prior.shape[2], device=prior.device) < counts.unsqueeze(-1)
    of_words = prior.masked_fill(~real, 1.0)
    of_sentences = prior.masked_fill(~real, 0.0).sum(-1).masked_fill(counts == 0, 1.0)
    return of_words, of_sentences


def _encoded(level: str, encoder: Encoder | None, width: int | None, given: int) -> int:
    """The width of an encoder's output."""
    if encoder is None and width not in (None, given):
        raise ValueError(
            f"{level}_dim={width} needs a {level}_encoder that turns width {given} into {width}; "
            f"without one leave {level}_dim out"
        )
    return given if width is None else width


def _checked(level: str, encoded: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """The output of an encoder, checked."""
    if not isinstance(encoded, Tensor) or encoded.shape != shape:
        got = tuple(encoded.shape) if isinstance(encoded, Tensor) else type(encoded).__name__
        raise ValueError(
            f"{level}_encoder should return a tensor {shape}, got {got}; {level}_dim is its width"
        )
    return encoded


def _counts(name: str, counts: Tensor | None, words: Tensor, dims: int) -> Tensor:
    """Lengths (B,) or (B, S), checked; full ones if not given."""
    shape, most = words.shape[:dims], words.shape[dims]
    if counts is None:
        return torch.full(shape, most, device=words.device)
    if counts.dtype == torch.bool or counts.is_floating_point():
        raise TypeError(f"{name} should be integers {tuple(shape)}, got {counts.dtype}")
    if counts.shape != shape:
        raise ValueError(
            f"{name} should be {tuple(shape)} for words {tuple(words.shape)}, got "
            f"{tuple(counts.shape)}"
        )
    if counts.numel() and can_inspect_values(counts):
        low, high = (int(end) for end in counts.aminmax())
        if low < 0 or high > most:
            raise ValueError(
                f"{name} should be from 0 to {most} for words {tuple(words.shape)}, got numbers "
                f"from {low} to {high}"
            )
    return counts.to(words.device).long()
