"""Normalizers: from a row of scores to an attention distribution.

A normalizer is any callable `(scores, mask) -> weights` with scores (..., M, N) and a boolean
mask that broadcasts to it (True = may attend) or None. Those here give hidden keys exactly
zero and a query that sees nothing a row of zeros, with finite gradients. `Normalizer` gives any of
them a temperature, the k largest scores or a sink.

To add one: write the function here and put it into `NORMALIZERS`. See ARCHITECTURE.md.
"""

import math
from collections.abc import Callable
from numbers import Integral
from typing import NamedTuple, Protocol, TypeGuard

import torch
from torch import Tensor, nn

from regard.core.blocks import can_inspect_values
from regard.core.names import did_you_mean, find_name
from regard.core.score import precise
from regard.core.shapes import broadcast, fits
from regard.core.ties import at_least


def softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """e^s over its sum: every visible key gets something.

    >>> softmax(torch.zeros(4), torch.tensor([True, True, False, False]))
    tensor([0.5000, 0.5000, 0.0000, 0.0000])
    """
    if mask is None:
        return torch.softmax(scores, dim=-1)
    if can_inspect_values(mask) and bool(mask.any(dim=-1).all()):  # then e^-inf is 0
        return torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
    return torch.softmax(_hide(scores, mask, -math.inf), dim=-1).masked_fill(~mask, 0.0)


def sparsemax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """The nearest point of the simplex: p = max(s − τ, 0). Martins & Astudillo 2016, eq. 2-3.

    >>> sparsemax(torch.tensor([1.0, 0.8, -1.0]))
    tensor([0.6000, 0.4000, 0.0000])
    """
    z = _shifted(scores, mask)
    with torch.no_grad():  # which keys are in the support; τ is then a function of z
        ordered = z.sort(dim=-1, descending=True).values
        rank = _ranks(z)
        size = (1 + rank * ordered > ordered.cumsum(-1)).sum(-1, keepdim=True)
        support = ~(z < _nth(ordered, size))  # NaN stays in, and shows
    size = support.sum(-1, keepdim=True)
    tau = (z.masked_fill(~support, 0.0).sum(-1, keepdim=True) - 1) / size
    return _only(z - tau, support, mask)


def entmax15(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """1.5-entmax, between softmax and sparsemax: p = max(s/2 − τ, 0)². Peters et al. 2019, eq. 10.

    >>> entmax15(torch.tensor([1.0, 0.8, -3.0]))
    tensor([0.5705, 0.4295, 0.0000])
    """
    z = _shifted(scores / 2, mask)
    with torch.no_grad():
        ordered = z.sort(dim=-1, descending=True).values
        rank = _ranks(z)
        mean = ordered.cumsum(-1) / rank
        spread = ordered.square().cumsum(-1) - rank * mean.square()
        tau = mean - ((1 - spread) / rank).clamp(min=0).sqrt()
        size = (tau <= ordered).sum(-1, keepdim=True)
        support = ~(z < _nth(ordered, size))  # NaN stays in, and shows
    size = support.sum(-1, keepdim=True)
    mean = z.masked_fill(~support, 0.0).sum(-1, keepdim=True) / size
    spread = (z - mean).masked_fill(~support, 0.0).square().sum(-1, keepdim=True)
    tau = mean - at_least((1 - spread) / size, torch.finfo(z.dtype).tiny).sqrt()
    return _only(z - tau, support, mask).square()


def hard(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """All weight on the best visible key, the first of several. The gradient is softmax's.

    The straight-through estimator of Bengio et al. 2013, section 4.

    >>> hard(torch.tensor([1.0, 3.0, 3.0]))
    tensor([0., 1., 0.])
    """
    soft = softmax(scores, mask)
    seen = scores.detach() if mask is None else scores.detach().masked_fill(~mask, -math.inf)
    chosen = torch.zeros_like(soft)
    if soft.shape[-1]:
        chosen = chosen.scatter(-1, seen.argmax(dim=-1, keepdim=True), 1.0)
    if mask is not None:
        chosen = chosen.masked_fill(~mask, 0.0)
    return chosen + (soft - soft.detach())


def sigmoid(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """1 / (1 + e^−s), every key on its own: a row has any sum. Ramapuram et al. 2025, section 2.

    They add b = −log n to the scores, for n keys, so that rows begin with a sum near one:
    `attend(..., bias=torch.full((1, 1), -math.log(n)))`.

    >>> sigmoid(torch.zeros(3), torch.tensor([True, True, False]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    return torch.sigmoid(scores if mask is None else scores.masked_fill(~mask, -math.inf))


class NoisyNormalizer(Protocol):
    """A normalizer that also takes uniform noise in (0, 1), which `attend` draws by position."""

    needs_noise: bool

    def __call__(
        self, scores: Tensor, mask: Tensor | None = None, uniform: Tensor | None = None
    ) -> Tensor: ...


def needs_noise(normalize: Callable[..., Tensor]) -> TypeGuard[NoisyNormalizer]:
    """Whether a normalizer takes noise."""
    return bool(getattr(normalize, "needs_noise", False))


class Gumbel:
    """Softmax of the scores plus Gumbel noise, over a temperature: a relaxed sample.

    softmax((s + g) / τ) with g = −log(−log u). The key of the largest weight is a sample from
    softmax(s), and as τ → 0 it takes all of the weight. Jang et al. 2017, eq. 2.

    Args:
        temperature: τ, above zero
    """

    needs_noise = True

    def __init__(self, temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        self.temperature = temperature

    def __call__(
        self, scores: Tensor, mask: Tensor | None = None, uniform: Tensor | None = None
    ) -> Tensor:
        """`uniform` is the noise u in (0, 1), drawn from torch's generator if not given."""
        if uniform is None:
            uniform = torch.rand_like(scores).clamp(min=torch.finfo(scores.dtype).tiny)
        return softmax((scores - (-uniform.log()).log()) / self.temperature, mask)


def _check_temperature(temperature: float | Tensor) -> None:
    """Raise ValueError unless all of it is above 0 and finite, if it has numbers yet."""
    if isinstance(temperature, Tensor):
        known = can_inspect_values(temperature)
        positive = not known or bool(((temperature > 0) & temperature.isfinite()).all())
    else:
        positive = 0 < temperature < math.inf
    if not positive:
        values = temperature.tolist() if isinstance(temperature, Tensor) else temperature
        raise ValueError(f"temperature must be above 0 and finite, got {values}")


class Normalizer(nn.Module):
    """A normalizer with a temperature, the k largest scores alone, or a sink.

        w = normalize(s / τ; a), without the weight of a

    - The temperature τ divides the scores, bias included: Hinton et al. 2015, eq. 1; learned for
      each head in Liu et al. 2022 (Swin V2), eq. 2.
    - top_k hides all but the k largest visible scores of each query, and keeps those equal to the
      k-th: Zhao et al. 2019, section 3.
    - A sink is one more score a in every row, without a value: softmax becomes
      e^s / (e^a + Σ e^s), and a row sums to less than one. "Off by one" is a = 0 (Miller 2023);
      GPT-OSS learns one for each head (OpenAI 2025, gpt-oss model card).

    Softmax of a dot product stays fused with a temperature and a sink. To learn one of them,
    pass an `nn.Parameter`: the module holds it.

    >>> Normalizer(sink=0.0)(torch.zeros(1, 3))
    tensor([[0.2500, 0.2500, 0.2500]])
    >>> Normalizer(temperature=0.5, top_k=2)(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[0.0000, 0.1192, 0.8808]])
    >>> learned = Normalizer(sink=nn.Parameter(torch.zeros(8)))  # one for each of 8 heads

    Args:
        normalize: a name or a callable, as for `attend`
        temperature: τ, above zero; a number, or a tensor of one for each head, (heads,), or in
            general of a shape that broadcasts to the leading dimensions of the scores
        top_k: how many keys a query may attend to; it may see fewer, but more than there are
            is an error
        sink: a, in the same forms; of any normalizer whose weights depend on each other
    """

    temperature: float | Tensor
    sink: float | Tensor | None

    def __init__(
        self,
        normalize: str | Callable[..., Tensor] = "softmax",
        *,
        temperature: float | Tensor = 1.0,
        top_k: int | None = None,
        sink: float | Tensor | None = None,
    ) -> None:
        super().__init__()
        self.normalize = find_normalizer(normalize)
        _check_temperature(temperature)
        if top_k is not None and not (isinstance(top_k, Integral) and top_k >= 1):
            raise ValueError(
                f"top_k must be a whole number, at least 1, got {top_k}; None keeps all keys"
            )
        if isinstance(sink, float) and not math.isfinite(sink):
            raise ValueError(f"sink must be finite, got {sink}; use None for no sink")
        if sink is not None and (self.normalize is sigmoid or self.needs_noise):
            name = getattr(self.normalize, "__name__", type(self.normalize).__name__)
            raise ValueError(
                f"a sink takes weight from other keys, which {name} does not let it do; use "
                "softmax, or no sink"
            )
        self._hold(temperature, top_k, sink)

    def _hold(
        self, temperature: float | Tensor, top_k: int | None, sink: float | Tensor | None
    ) -> None:
        self.top_k = top_k
        for name, value in (("temperature", temperature), ("sink", sink)):
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                vars(self).pop(name, None)  # a number
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    @property
    def needs_noise(self) -> bool:
        """Whether the normalizer inside takes noise."""
        return needs_noise(self.normalize)

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, uniform: Tensor | None = None
    ) -> Tensor:
        """Weights (..., M, N) of scores (..., M, N); `uniform` is the noise of "gumbel"."""
        if isinstance(self.temperature, Tensor) or self.temperature != 1.0:
            scores = scores / over_heads(self.temperature, scores)
        if self.top_k is not None:
            mask = self._largest(scores, mask)
        if uniform is not None:
            return self.normalize(scores, mask, uniform)
        if self.sink is None:
            return self.normalize(scores, mask)
        sink = over_heads(self.sink, scores)
        shape = broadcast(scores.shape[:-1], sink.shape[:-1])
        columns = scores.expand(*shape, scores.shape[-1]), sink.expand(*shape, 1)
        if mask is not None:
            mask = mask.expand(*mask.shape[:-1], scores.shape[-1])
            # Inductor cannot pad a bool tensor
            mask = torch.cat((mask, mask.new_ones(*mask.shape[:-1], 1)), dim=-1)
        return self.normalize(torch.cat(columns, dim=-1), mask)[..., :-1]

    def _largest(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """The mask of the k largest visible scores of each row."""
        assert self.top_k is not None
        self.check(None, scores.shape[-1])
        seen = scores.detach()
        seen = seen if mask is None else seen.masked_fill(~mask, -math.inf)
        largest = ~(seen < seen.topk(self.top_k, dim=-1).values[..., -1:])  # NaN stays in
        return largest if mask is None else largest & mask

    def check(self, leading: torch.Size | None, keys: int) -> None:
        """Raise ValueError unless this can normalize scores (*leading, M, keys)."""
        if self.top_k is not None and self.top_k > keys:
            raise ValueError(
                f"top_k={self.top_k} is more than there are keys, {keys}; use at most {keys}"
            )
        if leading is None:
            return
        for name, given in (("temperature", self.temperature), ("sink", self.sink)):
            if isinstance(given, Tensor) and not fits(given.shape, leading):
                raise ValueError(
                    f"{name} of shape {tuple(given.shape)} does not fit scores with leading "
                    f"dimensions {tuple(leading)}; give a number, or one for each head"
                )

    def for_heads(self, heads: tuple[int, ...], keys: int | None = None) -> "Normalizer":
        """The same where heads are (key heads, group), or where there are only so many keys."""

        def split(given: float | Tensor) -> float | Tensor:
            if isinstance(given, Tensor) and given.shape == (math.prod(heads),):
                return given.unflatten(0, heads)
            return given

        top_k = self.top_k if self.top_k is None or keys is None else min(self.top_k, keys)
        sink = None if self.sink is None else split(self.sink)
        other = Normalizer(self.normalize)
        other._hold(split(self.temperature), top_k, sink)  # checked already
        return other

    def extra_repr(self) -> str:
        name = getattr(self.normalize, "__name__", "")  # a module is shown by itself
        options = {"temperature": self.temperature, "top_k": self.top_k, "sink": self.sink}
        plain = {"temperature": 1.0, "top_k": None, "sink": None}
        shown = [
            f"{key}={tuple(value.shape) if isinstance(value, Tensor) else value}"
            for key, value in options.items()
            if isinstance(value, Tensor) or value != plain[key]
        ]
        return ", ".join([name] * bool(name) + shown)


class SoftmaxForm(NamedTuple):
    """A normalizer that is softmax with a temperature and a sink."""

    temperature: float | Tensor = 1.0
    sink: float | Tensor | None = None


def as_softmax(normalize: Callable[..., Tensor]) -> SoftmaxForm | None:
    """The form of a normalizer that is softmax, with a temperature and a sink or not, else None."""
    if isinstance(normalize, Normalizer) and normalize.top_k is None:
        form = SoftmaxForm(normalize.temperature, normalize.sink)
        return form if normalize.normalize is softmax else None
    return SoftmaxForm() if normalize is softmax else None


def over_heads(number: float | Tensor, scores: Tensor) -> Tensor:
    """A number, or one for each head (..., heads), that broadcasts to scores (..., heads, M, N)."""
    dtype = precise(scores.dtype)
    if isinstance(number, Tensor):
        return number.to(dtype)[..., None, None]
    return scores.new_full((1, 1), number, dtype=dtype)


def find_normalizer(normalize: str | Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A normalizer by name, or the callable itself."""
    if callable(normalize):
        return normalize
    if not isinstance(normalize, str):
        raise TypeError(
            "normalize must be a name or a callable (scores, mask) -> weights, got "
            f"{type(normalize).__name__}"
        )
    name = find_name(normalize, NORMALIZERS)
    if name is not None:
        return NORMALIZERS[name]
    raise ValueError(f"unknown normalizer {normalize!r}{did_you_mean(normalize, NORMALIZERS)}")


NORMALIZERS: dict[str, Callable[..., Tensor]] = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "hard": hard,
    "gumbel": Gumbel(),
    "sigmoid": sigmoid,
    "sink": Normalizer(softmax, sink=0.0),
}


def _hide(scores: Tensor, mask: Tensor, value: float) -> Tensor:
    """Scores with `value` for hidden keys, and 0 in rows that see nothing."""
    hidden = ~mask
    empty = hidden.all(dim=-1, keepdim=True)
    return scores.masked_fill(hidden, value).masked_fill(empty, 0.0)


def _shifted(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores whose largest visible entry is 0 and whose others are at least −4.

    A sparse normalizer gives nothing to a key that is more than 1 below the largest, so
    neither step changes its result.
    """
    if mask is not None:
        scores = _hide(scores, mask, -math.inf)
    if scores.shape[-1] == 0:
        return scores
    return at_least(scores - scores.detach().amax(dim=-1, keepdim=True), -4.0)


def _ranks(z: Tensor) -> Tensor:
    return torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)


def _nth(ordered: Tensor, size: Tensor) -> Tensor:
    """The smallest of the `size` largest entries."""
    return (
        ordered.gather(-1, (size - 1).clamp(min=0)) if ordered.shape[-1] else size.to(ordered.dtype)
    )


def _only(values: Tensor, support: Tensor, mask: Tensor | None) -> Tensor:
    visible = support if mask is None else support & mask
    return at_least(values.masked_fill(~visible, 0.0), 0.0)
