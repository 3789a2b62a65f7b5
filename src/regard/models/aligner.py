"""The alignment model: how a recurrent decoder's state asks the encoder's states.

An aligner answers all steps at once (`forward`) or one step (`start`, `step`), alike.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from regard.attention import Prepared, attend, observer, prepare
from regard.attention.attend import Attended, Normalize
from regard.attention.observer import observed
from regard.core.map import AttentionMap
from regard.core.mask import lengths
from regard.core.names import did_you_mean, find_normalizer
from regard.core.normalize import softmax
from regard.core.score import Additive, Score
from regard.layers.cache import Past, SharedMemory
from regard.layers.hard import HardGumbel
from regard.layers.local import LocalAttention, PredictedCenter
from regard.layers.recurrence import can_unroll, recur_asking
from regard.layers.role import ENCODER_DECODER
from regard.models.memory import Memory
from regard.models.score import find_score

Answer = tuple[Tensor, AttentionMap | None]
StepAnswer = tuple[Tensor, Tensor | None, Past | SharedMemory]


class GlobalAligner(nn.Module):
    """Ask all of the encoder's states. Bahdanau et al. 2015, eq. 5 and 6; Luong 2015, section 3.1.

        c = Σⱼ αⱼ hⱼ,  α = normalize(score(s, hⱼ))

    >>> import torch
    >>> memory = Memory(torch.randn(2, 7, 5), torch.tensor([7, 4]), None)
    >>> aligner = GlobalAligner(3, 5, score="additive")
    >>> query = torch.randn(2, 11, 3)
    >>> contexts, _ = aligner(query, memory)
    >>> context, _, _ = aligner.step(query[:, 0], aligner.start(memory))
    >>> contexts.shape, torch.allclose(context, contexts[:, 0], atol=1e-6)
    (torch.Size([2, 11, 5]), True)

    Args:
        query_dim: width of the decoder's states
        key_dim: width of the encoder's states
        score: a name, a module, or what makes a score from query_dim and key_dim
        normalize: in train mode, a name or a callable as for `attend`
        evaluate: the same in eval mode, `normalize` if None
        dropout: of the weights, in train mode
    """

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
        self.role = ENCODER_DECODER
        self.score: Score = find_score(score, query_dim, key_dim)
        self.normalize = find_normalizer(normalize)
        self.evaluate = find_normalizer(normalize if evaluate is None else evaluate)
        self.dropout = dropout

    @observed
    def forward(self, query: Tensor, memory: Memory, *, return_map: bool = False) -> Answer:
        """Contexts (batch, M, key_dim) of queries (batch, M, query_dim), and their map."""
        states = memory.states.unsqueeze(1)  # (batch, 1, S, key_dim): one head
        attended = attend(
            query.unsqueeze(1),
            states,
            states,
            score=self.score,
            mask=memory.mask(),
            normalize=self.normalize if self.training else self.evaluate,
            dropout=self.dropout if self.training else 0.0,
            return_map=return_map,
        )
        if isinstance(attended, Attended):
            return attended.output.squeeze(1), attended.map
        return attended.squeeze(1), None

    @observed
    def together(
        self, layer: nn.RNNBase, x: Tensor, first: Sequence[Tensor], memory: Memory
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """All steps of a layer whose states ask, in one go; None where each has to be a step.

        Args: those of `recur_asking`

        Returns: states (batch, T, hidden), contexts (batch, T, key_dim), weights (batch, T, S)
        """
        normalize = self.normalize if self.training else self.evaluate
        told = observer.observers() if observer.observing else ()
        if (
            not isinstance(self.score, Additive)
            or normalize is not softmax
            or (self.training and self.dropout)
            or observer.any_edits(told)
            or not can_unroll(layer, x, memory.states, *first, *self.score.parameters())
        ):
            return None
        counts = None if memory.mask() is None else memory.lengths
        states, weights = recur_asking(layer, x, first, self.score, memory.states, counts)
        contexts = torch.bmm(weights, memory.states)
        if told:
            asking = torch.cat((first[0].unsqueeze(1), states[:, :-1]), dim=1)
            prepare(self.score, memory.states, memory.states, lengths=counts).tell(asking, contexts)
        return states, contexts, weights

    def start(self, memory: Memory) -> SharedMemory:
        """What the steps ask; the keys of an additive score are prepared here, once."""
        states, counts = memory.states, None if memory.mask() is None else memory.lengths
        keys, prepared = states, None
        if isinstance(self.score, Additive):
            prepared = prepare(self.score, states, states, lengths=counts)
            keys = prepared.key
        tensors = (keys.unsqueeze(1), states.unsqueeze(1), *(() if counts is None else (counts,)))
        return SharedMemory(tensors, None, beams=1, prepared=prepared)

    @observed
    def step(
        self, query: Tensor, state: Past | SharedMemory, *, return_map: bool = False
    ) -> StepAnswer:
        """The context (batch, key_dim) of one query (batch, query_dim), and (batch, 1, S)."""
        assert isinstance(state, SharedMemory)
        normalize = self.normalize if self.training else self.evaluate
        dropout = self.dropout if self.training else 0.0
        if state.prepared is not None and normalize is softmax and not dropout:
            return *_ask(query, state, state.prepared, return_map), state.stepped(1)
        keys, values, *counts = state.tensors
        score = self.score.projected() if isinstance(self.score, Additive) else self.score
        attended = attend(
            state.grouped(query[:, None, None]),  # (sentences, 1, beams, query_dim)
            keys,
            values,
            score=score,
            mask=lengths(counts[0]) if counts else None,
            normalize=normalize,
            dropout=dropout,
            return_map=return_map,
        )
        weights = None
        if isinstance(attended, Attended):
            weights = state.ungrouped(attended.map.dense())[:, :, 0]
            attended = attended.output
        return state.ungrouped(attended)[:, 0, 0], weights, state.stepped(1)

    def extra_repr(self) -> str:
        score = "" if isinstance(self.score, nn.Module) else f"score={self.score}, "
        return f"{score}dropout={self.dropout}"


def _ask(
    query: Tensor, state: SharedMemory, prepared: Prepared, return_map: bool
) -> tuple[Tensor, Tensor | None]:
    """The contexts (batch, key_dim) of queries (batch, query_dim), and weights (batch, 1, S)."""
    by_sentence = query if state.beams == 1 else query.unflatten(0, (-1, state.beams))
    attended = prepared.attend(by_sentence, return_map=return_map)
    output = attended.output if isinstance(attended, Attended) else attended
    weights = attended.map.dense() if isinstance(attended, Attended) else None
    if weights is not None:  # (sentences, beams, S)
        weights = weights.flatten(0, 1).unsqueeze(1)
    return output if state.beams == 1 else output.flatten(0, 1), weights


class LocalAligner(nn.Module):
    """Ask the states around a position: that of the step, or a predicted one. Luong 2015, 3.2.

    Args:
        query_dim, key_dim, score, dropout: as for `GlobalAligner`
        window: D, how many states on either side of the centre
        center: makes, from query_dim, what predicts the centre; None asks around the step's own
    """

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
        super().__init__()
        self.attention = LocalAttention(
            query_dim,
            window,
            key_dim=key_dim,
            score=find_score(score, query_dim, key_dim),
            center=None if center is None else center(query_dim),
            dropout=dropout,
        )
        self.attention.role = ENCODER_DECODER

    def forward(self, query: Tensor, memory: Memory, *, return_map: bool = False) -> Answer:
        """Contexts (batch, M, key_dim) of queries (batch, M, query_dim), and their map."""
        attended = self.attention(query, memory.states, mask=memory.mask(), return_map=return_map)
        if not isinstance(attended, Attended):
            return attended, None
        map = attended.map
        shape = (map.shape[0], 1, *map.shape[1:])
        return attended.output, AttentionMap(
            lambda rows: map[..., rows, :].unsqueeze(1),
            lambda rows: map.scores[..., rows, :].unsqueeze(1),
            shape,
        )

    def start(self, memory: Memory) -> Past | SharedMemory:
        """What the steps ask, before the first."""
        return self.attention.start(len(memory.states), memory.states, memory.mask())

    def step(
        self, query: Tensor, state: Past | SharedMemory, *, return_map: bool = False
    ) -> StepAnswer:
        """The context (batch, key_dim) of one query (batch, query_dim), and (batch, 1, S)."""
        attended, state = self.attention.step(query.unsqueeze(1), state, return_map=return_map)
        if isinstance(attended, Attended):
            return attended.output.squeeze(1), attended.map.dense(), state
        return attended.squeeze(1), None, state


Aligner = GlobalAligner | LocalAligner

ALIGNERS: dict[str, Callable[..., Aligner]] = {
    "global": GlobalAligner,
    "local": LocalAligner,
    "predictive": partial(LocalAligner, center=PredictedCenter),
    "sparsemax": partial(GlobalAligner, normalize="sparsemax"),
    "entmax15": partial(GlobalAligner, normalize="entmax15"),
    "hard": partial(GlobalAligner, normalize="hard"),
    "gumbel": partial(GlobalAligner, normalize=HardGumbel(1.0), evaluate="hard"),
}
"""Local is Luong's local-m, predictive his local-p; sparsemax and entmax15 leave states out, hard
and gumbel choose one."""


def find_aligner(
    attention: str, *, score: str | Callable, window: int | None = None, dropout: float = 0.0
) -> Callable[[int, int], Aligner]:
    """What makes an aligner from query_dim and key_dim.

    >>> find_aligner("predictive", score="general", window=2)(3, 5).attention.window
    2
    """
    if attention not in ALIGNERS:
        raise ValueError(f"unknown attention {attention!r}{did_you_mean(attention, ALIGNERS)}")
    options: dict[str, int] = {}
    if attention in ("local", "predictive"):
        if window is None:
            raise ValueError(f"attention={attention!r} needs window=, the keys on either side")
        options["window"] = window
    elif window is not None:
        raise ValueError(f"window={window} is for attention='local' or 'predictive'")
    return partial(ALIGNERS[attention], score=score, dropout=dropout, **options)
