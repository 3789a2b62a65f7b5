"""The alignment model: how a recurrent decoder attends to the encoder's states.

An aligner takes the queries of all steps at once (`forward`) or of one step (`start`, `step`).
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from regard.attention import attend, observer, prepare
from regard.attention.attend import Normalize
from regard.attention.observer import observed
from regard.core.mask import lengths
from regard.core.names import check_name
from regard.core.normalize import find_normalizer, softmax
from regard.core.score import Additive, Score
from regard.layers.cache import Past, SharedMemory
from regard.layers.hard import HardGumbel
from regard.layers.local import LocalAttention, PredictedCenter
from regard.layers.recurrence import can_unroll, recur_attending
from regard.layers.role import ENCODER_DECODER
from regard.models.memory import Memory
from regard.models.options import score_between


class GlobalAligner(nn.Module):
    """Attend to all states of the encoder. Bahdanau et al. 2015, eq. 5 and 6; Luong 2015, 3.1.

        c = Σⱼ αⱼ hⱼ,  α = normalize(score(s, hⱼ))

    >>> import torch
    >>> memory = Memory(torch.randn(2, 7, 5), torch.tensor([7, 4]), None)
    >>> aligner = GlobalAligner(3, 5, score="additive")
    >>> query = torch.randn(2, 11, 3)
    >>> contexts = aligner(query, memory)
    >>> context, _ = aligner.step(query[:, 0], aligner.start(memory))
    >>> contexts.shape, torch.allclose(context, contexts[:, 0], atol=1e-6)
    (torch.Size([2, 11, 5]), True)

    Args:
        query_dim: width of the decoder's states
        key_dim: width of the encoder's states
        score: a name, a module, or a function (query_dim, key_dim) -> score
        normalize: in train mode, a name or a callable as for `attend`
        evaluate: the same in eval mode, `normalize` if None
        dropout: of the weights, in train mode
    """

    role = ENCODER_DECODER

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        *,
        score: str | Callable = "general",
        normalize: Normalize = "softmax",
        evaluate: Normalize | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.score: Score = score_between(score, query_dim, key_dim)
        self.normalize = find_normalizer(normalize)
        self.evaluate = find_normalizer(normalize if evaluate is None else evaluate)
        self.dropout = dropout

    @observed
    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """Contexts (batch, M, key_dim) of queries (batch, M, query_dim)."""
        states = memory.states.unsqueeze(1)  # (batch, 1, S, key_dim): one head
        normalize, dropout = self._mode()
        context = attend(
            query.unsqueeze(1).to(states.dtype),  # autocast changes the query only
            states,
            states,
            score=self.score,
            mask=memory.mask(),
            normalize=normalize,
            dropout=dropout,
        )
        return context.squeeze(1)

    @observed
    def unrolled(
        self, layer: nn.RNNBase, x: Tensor, first: Sequence[Tensor], memory: Memory
    ) -> tuple[Tensor, Tensor] | None:
        """All steps of a layer whose states are the queries; None if they have to be single steps.

        Args: those of `recur_attending`

        Returns: states (batch, T, hidden) and contexts (batch, T, key_dim)
        """
        normalize, dropout = self._mode()
        listening = observer.observers() if observer.observing else ()
        if (
            not isinstance(self.score, Additive)
            or normalize is not softmax
            or dropout
            or observer.any_edits(listening)
            or observer.any_gradients(listening)
            or not can_unroll(layer, x, memory.states, *first, *self.score.parameters())
        ):
            return None
        counts = None if memory.mask() is None else memory.lengths
        states, weights = recur_attending(layer, x, first, self.score, memory.states, counts)
        contexts = torch.bmm(weights, memory.states)
        if listening:
            query = torch.cat((first[0].unsqueeze(1), states[:, :-1]), dim=1)
            prepared = prepare(self.score, memory.states, memory.states, lengths=counts)
            prepared.notify(query, contexts)
        return states, contexts

    def start(self, memory: Memory) -> SharedMemory:
        """The memory for `step`; the keys of an additive score are projected here, once."""
        states, counts = memory.states, None if memory.mask() is None else memory.lengths
        keys, prepared = states, None
        if isinstance(self.score, Additive):
            prepared = prepare(self.score, states, states, lengths=counts)
            keys = prepared.key
        tensors = (keys.unsqueeze(1), states.unsqueeze(1), *(() if counts is None else (counts,)))
        return SharedMemory(tensors, None, beams=1, prepared=prepared)

    @observed
    def step(self, query: Tensor, state: Past | SharedMemory) -> tuple[Tensor, SharedMemory]:
        """The context (batch, key_dim) of one query (batch, query_dim), and the new state."""
        assert isinstance(state, SharedMemory)
        normalize, dropout = self._mode()
        query = query.to(state.tensors[1].dtype)
        if state.prepared is not None and normalize is softmax and not dropout:
            if state.beams == 1:
                return state.prepared.attend(query), state.stepped(1)
            by_sentence = query.unflatten(0, (-1, state.beams))
            return state.prepared.attend(by_sentence).flatten(0, 1), state.stepped(1)
        keys, values, *counts = state.tensors
        context = attend(
            state.grouped(query[:, None, None]),  # (sentences, 1, beams, query_dim)
            keys,
            values,
            score=self.score.projected() if isinstance(self.score, Additive) else self.score,
            mask=lengths(counts[0]) if counts else None,
            normalize=normalize,
            dropout=dropout,
        )
        return state.ungrouped(context)[:, 0, 0], state.stepped(1)

    def _mode(self) -> tuple[Callable[..., Tensor], float]:
        """The normalizer and the dropout of train or eval mode."""
        return (self.normalize, self.dropout) if self.training else (self.evaluate, 0.0)

    def extra_repr(self) -> str:
        score = "" if isinstance(self.score, nn.Module) else f"score={self.score}, "
        return f"{score}dropout={self.dropout}"


class LocalAligner(LocalAttention):
    """Attend to the states around a position: the step's own, or a predicted one. Luong 2015, 3.2.

    Args:
        query_dim, key_dim, score, dropout: as for `GlobalAligner`
        window: D, how many states on either side of the centre
        center: makes, from query_dim, a module that predicts the centre; None for the step's own
    """

    role = ENCODER_DECODER

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        *,
        window: int,
        score: str | Callable = "general",
        center: Callable[[int], nn.Module] | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            query_dim,
            window,
            key_dim=key_dim,
            score=score_between(score, query_dim, key_dim),
            center=None if center is None else center(query_dim),
            dropout=dropout,
        )

    def forward(self, query: Tensor, memory: Memory) -> Tensor:  # type: ignore[override]
        """Contexts (batch, M, key_dim) of queries (batch, M, query_dim)."""
        return super().forward(query, memory.states, mask=memory.mask())  # type: ignore

    def start(self, memory: Memory) -> Past | SharedMemory:  # type: ignore[override]
        """The memory for `step`."""
        return super().start(len(memory.states), memory.states, memory.mask())

    def step(self, query: Tensor, state: Past | SharedMemory) -> tuple[Tensor, Past | SharedMemory]:  # type: ignore[override]
        """The context (batch, key_dim) of one query (batch, query_dim), and the new state."""
        context, state = super().step(query.unsqueeze(1), state)
        return context.squeeze(1), state  # type: ignore[union-attr]


Aligner = GlobalAligner | LocalAligner
AdditiveAligner = partial(GlobalAligner, score="additive")

ALIGNERS: dict[str, Callable[..., Aligner]] = {
    "global": GlobalAligner,
    "local": LocalAligner,
    "predictive": partial(LocalAligner, center=PredictedCenter),
    "sparsemax": partial(GlobalAligner, normalize="sparsemax"),
    "entmax15": partial(GlobalAligner, normalize="entmax15"),
    "sigmoid": partial(GlobalAligner, normalize="sigmoid"),
    "sink": partial(GlobalAligner, normalize="sink"),
    "hard": partial(GlobalAligner, normalize="hard"),
    "gumbel": partial(GlobalAligner, normalize=HardGumbel(1.0), evaluate="hard"),
}
"""Local is Luong's local-m, predictive his local-p; sparsemax and entmax15 give weights of zero,
rows of sigmoid and sink need not sum to one, hard and gumbel choose one state."""


def find_aligner(
    attention: str, *, score: str | Callable, window: int | None = None, dropout: float = 0.0
) -> Callable[[int, int], Aligner]:
    """What makes an aligner from query_dim and key_dim.

    >>> find_aligner("predictive", score="general", window=2)(3, 5).window
    2
    """
    check_name("attention", attention, ALIGNERS)
    options: dict[str, int] = {}
    if attention in ("local", "predictive"):
        if window is None:
            raise ValueError(f"attention={attention!r} needs window=, the keys on either side")
        options["window"] = window
    elif window is not None:
        raise ValueError(f"window={window} is for attention='local' or 'predictive'")
    return partial(ALIGNERS[attention], score=score, dropout=dropout, **options)
