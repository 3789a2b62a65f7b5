"""The document classifier: a hierarchical attention network, words → sentences → document."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.core.blocks import can_inspect_values
from regard.core.map import AttentionMap
from regard.core.names import check_name
from regard.layers.checks import check_dropout, check_sizes
from regard.layers.dropout import Dropout
from regard.layers.hierarchical import HierarchicalAttention
from regard.layers.recurrence import recur
from regard.models.embedding import Tokens

ENCODERS = ("gru", "window", "none")


class Classified(NamedTuple):
    """Logits (B, classes), and the maps that led to them.

    `word_map` (B, S, 1, W) has the weight of each word in its sentence, `sentence_map` (B, 1, S)
    that of each sentence in the document.
    """

    logits: Tensor
    word_map: AttentionMap
    sentence_map: AttentionMap


class DocumentClassifier(nn.Module):
    """Pool words to sentences and sentences to a document by attention, and classify it.

        h_it = [→GRU(E w_it) ; ←GRU(E w_it)],  s_i = Σ_t α_it h_it
        h_i  = [→GRU(s_i) ; ←GRU(s_i)],        v = Σ_i α_i h_i,  p = softmax(W v + b)

    Yang et al. 2016, eq. 1-11. With `encoder="none"` h_it are the embeddings and h_i = s_i, so
    that a document is an average of its words, weighted twice. All weights are equal at first.

    >>> model = DocumentClassifier(13, 2, dim=5, hidden=3)
    >>> found = model(torch.randint(13, (2, 3, 7)), torch.tensor([[7, 2, 4], [5, 0, 0]]),
    ...               torch.tensor([3, 1]))
    >>> found.logits.shape, found.word_map.shape, found.sentence_map.shape
    (torch.Size([2, 2]), torch.Size([2, 3, 1, 7]), torch.Size([2, 1, 3]))

    Args:
        vocabulary: number of tokens
        classes: number of classes
        dim: width of the embeddings
        hidden: width of each direction of the encoders, and of the attention's hidden layer
        encoder: "gru", bidirectional on both levels; "window", of three words; or "none"
        dropout: of encoded sentences and of the document, in train mode
        word_dropout: of words, in train mode: a dropped word is removed wherever it occurs in the
            document. After Gal & Ghahramani 2016, section 4.2
        presence: whether a word counts once in a document, however often it occurs: the weight of
            each occurrence is divided by their number. After Pang et al. 2002
        scale: factor of the embeddings. A mean of n words is smaller than a word by about √n;
            without an encoder a factor of this size makes up for it
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        dim: int = 100,
        hidden: int = 50,
        encoder: str = "gru",
        dropout: float = 0.5,
        word_dropout: float = 0.0,
        presence: bool = False,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        check_sizes(vocabulary=vocabulary, classes=classes, dim=dim, hidden=hidden)
        check_dropout(word_dropout)
        check_name("encoder", encoder, ENCODERS)
        self.embedding = Tokens(vocabulary, dim, scale=scale)
        if encoder == "gru":
            width = 2 * hidden
            self.attention = HierarchicalAttention(
                dim,
                hidden,
                word_encoder=BidirectionalGRU(dim, hidden),
                word_dim=width,
                sentence_encoder=BidirectionalGRU(width, hidden, dropout=dropout),
                sentence_dim=width,
            )
        else:
            width = dim
            word_encoder = NeighboringWords(dim) if encoder == "window" else None
            self.attention = HierarchicalAttention(dim, hidden, word_encoder=word_encoder)
        for pooling in (self.attention.words, self.attention.sentences):
            nn.init.zeros_(pooling.query)  # a plain mean: random ones prefer words by chance
        self.output = nn.Linear(width, classes)
        self.drop, self.word_dropout, self.presence = Dropout(dropout), word_dropout, presence

    def forward(self, words: Tensor, word_lengths: Tensor, sentence_lengths: Tensor) -> Classified:
        """Classify documents.

        Args:
            words: token ids (B, S, W)
            word_lengths: words of each sentence, (B, S)
            sentence_lengths: sentences of each document, (B,)
        """
        if words.dim() != 3 or words.is_floating_point():
            raise ValueError(
                "words should be token ids (documents, sentences, words), got "
                f"{words.dtype} {tuple(words.shape)}"
            )
        if self.training and self.word_dropout:
            words, word_lengths = self._drop_words(words, word_lengths)
        x = self.embedding(words.flatten(0, 1)).unflatten(0, words.shape[:2])  # (B, S, W, dim)
        found = self.attention(
            x,
            word_lengths=word_lengths,
            sentence_lengths=sentence_lengths,
            prior=self._once(words, word_lengths, sentence_lengths) if self.presence else None,
        )
        logits = self.output(self.drop(found.document))
        return Classified(logits, found.word_map, found.sentence_map)

    def _once(self, words: Tensor, word_lengths: Tensor, sentence_lengths: Tensor) -> Tensor:
        """One over how often each word occurs in its document, (B, S, W)."""
        _, sentences, longest = words.shape
        real = torch.arange(longest, device=words.device) < word_lengths.unsqueeze(2)
        place = torch.arange(sentences, device=words.device)
        real &= (place < sentence_lengths.unsqueeze(1)).unsqueeze(2)
        counts = torch.zeros(len(words), len(self.embedding.weight), device=words.device)
        counts.scatter_add_(1, words.flatten(1), real.flatten(1).float())
        return 1 / counts.gather(1, words.flatten(1)).clamp(min=1).view(words.shape)

    def _drop_words(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Words (B, S, W') and lengths (B, S) without the occurrences of dropped words."""
        chance = torch.rand(len(words), len(self.embedding.weight), device=words.device)
        kept = (chance >= self.word_dropout).gather(1, words.flatten(1)).view_as(words)
        kept &= torch.arange(words.shape[2], device=words.device) < lengths.unsqueeze(2)
        lengths = kept.sum(2)
        order = kept.to(torch.uint8).argsort(dim=2, descending=True, stable=True)  # kept ones first
        longest = max(1, int(lengths.max())) if can_inspect_values(lengths) else order.shape[2]
        return words.gather(2, order[..., :longest]), lengths

    def extra_repr(self) -> str:
        return f"word_dropout={self.word_dropout}, presence={self.presence}"


class NeighboringWords(nn.Module):
    """Each word with its two neighbours: h_t = x_t + tanh(W [x_{t-1} ; x_t ; x_{t+1}] + b).

    >>> NeighboringWords(5)(torch.randn(2, 7, 5), torch.tensor([7, 4])).shape
    torch.Size([2, 7, 5])

    Args:
        dim: width of the input and of the output
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.projection = nn.Linear(3 * dim, dim)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (N, L, dim), zero after each sequence's end, to (N, L, dim)."""
        edged = F.pad(x, (0, 0, 1, 1))  # (N, L + 2, dim)
        near = torch.cat((edged[:, :-2], x, edged[:, 2:]), dim=-1)
        return x + torch.tanh(self.projection(near))


class BidirectionalGRU(nn.Module):
    """A GRU in both directions over sequences of their own lengths; empty ones stay zero.

    >>> BidirectionalGRU(5, 3)(torch.randn(2, 7, 5), torch.tensor([4, 0])).shape
    torch.Size([2, 7, 6])

    Args:
        dim: width of the input
        hidden: width of each direction
        dropout: of the input, in train mode
    """

    def __init__(self, dim: int, hidden: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.gru = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.drop = Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (N, L, dim) to (N, L, 2 · hidden)."""
        x = self.drop(x)
        if not can_inspect_values(lengths):  # torch packs by their values
            return recur(self.gru, x, counts=lengths)[0]
        there = lengths.nonzero().squeeze(1)  # torch packs no empty sequences
        if not len(there):
            return x.new_zeros(*x.shape[:2], 2 * self.gru.hidden_size)
        packed = pack_padded_sequence(
            x[there], lengths[there].cpu(), batch_first=True, enforce_sorted=False
        )
        y, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=x.shape[1])
        return y.new_zeros(len(x), *y.shape[1:]).index_copy(0, there, y)
