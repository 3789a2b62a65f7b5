"""The four textbook layers: attention weight, weighted sum, attention and time attention.

They carry the names and shapes of the book that builds them one after the other in NumPy (hs are
all hidden states of the encoder, h one hidden state of the decoder), and compute by `attend`. The
score is the plain dot product, without 1/√d. `regard.models.AttentionSeq2Seq` is the model that
the book builds from them.
"""

from torch import Tensor, nn

from regard.attention import attend, attention_weight
from regard.attention.observer import observed
from regard.core.score import dot
from regard.core.weighted_sum import weighted_sum


class AttentionWeight(nn.Module):
    """Attention weights of the encoder's states: a = softmax(hs · h).

    >>> import torch
    >>> AttentionWeight()(torch.ones(1, 4, 3), torch.ones(1, 3))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    def forward(self, hs: Tensor, h: Tensor) -> Tensor:
        """Return the weights (N, T).

        Args:
            hs: hidden states of the encoder, (N, T, H)
            h: one hidden state of the decoder, (N, H)
        """
        _check(hs, h, "h", "(N, H)", 2)
        return attention_weight(dot(h.unsqueeze(1), hs)).squeeze(1)


class WeightSum(nn.Module):
    """Weighted sum of the encoder's states, the context vector: c = Σ_t a_t hs_t.

    >>> import torch
    >>> WeightSum()(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[0.5, 0.5]]))
    tensor([[2., 3.]])
    """

    def forward(self, hs: Tensor, a: Tensor) -> Tensor:
        """Return the context vector (N, H).

        Args:
            hs: hidden states of the encoder, (N, T, H)
            a: attention weights, (N, T)
        """
        if hs.dim() != 3 or a.shape != hs.shape[:2]:
            raise ValueError(
                f"expected hs (N, T, H) and a (N, T), got {tuple(hs.shape)} and {tuple(a.shape)}"
            )
        return weighted_sum(a.unsqueeze(1), hs).squeeze(1)


class Attention(nn.Module):
    """Both steps: the weights of the encoder's states, then their weighted sum.

    >>> import torch
    >>> Attention()(torch.ones(2, 5, 3), torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """

    @observed
    def forward(self, hs: Tensor, h: Tensor) -> Tensor:
        """Return the context vector (N, H).

        Args:
            hs: hidden states of the encoder, (N, T, H)
            h: one hidden state of the decoder, (N, H)
        """
        _check(hs, h, "h", "(N, H)", 2)
        return attend(h.unsqueeze(1), hs, hs, score="dot").squeeze(1)


class TimeAttention(nn.Module):
    """`Attention` for all time steps of the decoder at once.

    >>> import torch
    >>> TimeAttention()(torch.ones(2, 5, 3), torch.ones(2, 7, 3)).shape
    torch.Size([2, 7, 3])
    """

    @observed
    def forward(self, hs_enc: Tensor, hs_dec: Tensor) -> Tensor:
        """Return a context vector for every time step of the decoder, (N, T', H).

        Args:
            hs_enc: hidden states of the encoder, (N, T, H)
            hs_dec: hidden states of the decoder, (N, T', H)
        """
        _check(hs_enc, hs_dec, "hs_dec", "(N, T', H)", 3)
        return attend(hs_dec, hs_enc, hs_enc, score="dot")


def _check(hs: Tensor, query: Tensor, name: str, shape: str, dims: int) -> None:
    sizes = (query.shape[0], query.shape[-1]) if query.dim() == dims else None
    if hs.dim() != 3 or sizes != (hs.shape[0], hs.shape[-1]):
        raise ValueError(
            f"expected hidden states (N, T, H) and {name} {shape}, got {tuple(hs.shape)} and "
            f"{tuple(query.shape)}"
        )
