"""Add & Norm: how a sublayer of a Transformer joins the stream that runs past it.

Around a sublayer f there are two orders, and a layer is given one of them:

    post-norm, Vaswani et al. 2017, section 3.1:   norm(x + dropout(f(x)))
    pre-norm, Xiong et al. 2020, section 3:        x + dropout(f(norm(x)))

Post-norm needs the warm-up of the learning rate; pre-norm trains without it and wants one more
norm after the last layer.
"""

from collections.abc import Callable

from torch import Tensor, nn

from regard.layers.dropout import check_dropout, drop


class PostNorm(nn.Module):
    """norm(x + dropout(f(x)))

    >>> import torch
    >>> around = PostNorm(5)
    >>> x = torch.randn(2, 3, 5)
    >>> torch.equal(around.leave(x, torch.tanh(around.enter(x))), around.norm(x + torch.tanh(x)))
    True

    Args:
        dim: width of the stream
        dropout: of what the sublayer adds, in train mode
        norm: makes a module from `dim`, such as `nn.LayerNorm` or `nn.RMSNorm`
    """

    def __init__(
        self,
        dim: int,
        dropout: float = 0.0,
        *,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        self.norm = norm(dim)
        self.dropout = dropout

    def enter(self, x: Tensor) -> Tensor:
        """What the sublayer gets of the stream."""
        return x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """The stream x after the sublayer gave y."""
        return self.norm(x + drop(y, self.dropout, self.training))

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"


class PreNorm(PostNorm):
    """x + dropout(f(norm(x)))"""

    def enter(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        return x + drop(y, self.dropout, self.training)
