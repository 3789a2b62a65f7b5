"""Linear attention of other libraries: the map that a recurrence implies, by rows on demand.

While something observes, the chunked and recurrent functions that transformers' layers call, and
those of flash-linear-attention and mamba-ssm with the same names, are replaced by functions that
call them, unchanged, and then notify. Each is a setting of the gated delta recurrence, so that the
output is W · V for a lower triangular W, whose weights may be negative. A call that goes on from
the state of an earlier one (a step of a generation) adds rows and keys to its map.
"""

import inspect
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.observer import any_edits, notify, observers, reject_edit, unobserved
from regard.attention.record import CallRecord
from regard.core.blocks import in_functorch
from regard.core.map import AttentionMap
from regard.core.request import detached
from regard.core.score import precise
from regard.paths.gated_delta import DeltaInputs, implied_rows
from regard.trace.generation import Store


class Recurrence(NamedTuple):
    """What a function computes: o = W v, with W implied by the gated delta recurrence.

    Args:
        inputs: of the recurrence, (batch, heads, length, width)
        output: (batch, heads, length, width)
        state: the last one; None if it was not asked for
        skip: added to the diagonal of W, (heads,); None for nothing
        normalized: whether rows are divided by their sum
    """

    inputs: DeltaInputs
    output: Tensor
    state: Tensor | None
    skip: Tensor | None = None
    normalized: bool = False


Arguments = dict[str, Any]


def gated_delta(result: Any, **given: Any) -> Recurrence:
    """Gated delta rule, Kimi delta attention, and the delta rule without a decay."""
    query, key, value = _three(given)
    if given.get("use_qk_l2norm_in_kernel"):
        query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    decay = given.get("g")
    beta = given.get("beta")
    return _recurrence(result, given, query, key, value, decay, beta)


def gated_linear(result: Any, **given: Any) -> Recurrence:
    """Gated linear attention, with a decay for each position or for each feature of it."""
    decay = next((given[name] for name in ("g", "gk") if given.get(name) is not None), None)
    return _recurrence(result, given, *_three(given), decay, None)


def retention(result: Any, **given: Any) -> Recurrence:
    """Retention, whose decay is that of the head: 1 − 2^(−5 − h). Sun et al. 2023, eq. 8."""
    query, key, value = _three(given)
    head = torch.arange(query.shape[1], device=query.device, dtype=query.dtype)
    decay = (1 - 2.0 ** (-5 - head)).log().expand(len(query), query.shape[2], -1)
    return _recurrence(result, given, query, key, value, decay, None)


def linear(result: Any, **given: Any) -> Recurrence:
    """Linear attention without a decay."""
    made = _recurrence(result, given, *_three(given), None, None)
    return made._replace(normalized=bool(given.get("normalize")))


def scan(result: Any, **given: Any) -> Recurrence:
    """The selective scan of Mamba-2: C are the queries, B · Δ the keys. Dao and Gu 2024, eq. 16."""
    x = _first(given, "hidden_states", "x")
    output, state = result if isinstance(result, tuple) else (result, None)
    if given.get("z") is not None or given.get("seq_idx") is not None:
        raise NotImplementedError
    step = _step_size(given["dt"], given)  # (batch, length, heads)
    return _scanned(x, step, given["A"], given["B"], given["C"], given.get("D"), output, state)


def update(result: Any, **given: Any) -> Recurrence:
    """One step of it; the state is changed in place."""
    x, step, A, D = _first(given, "hidden_states", "x"), given["dt"], given["A"], given.get("D")
    if x.dim() != 3 or given.get("z") is not None:
        raise NotImplementedError
    step = _step_size(step, given)[..., 0]  # the same for all features of a head
    A, D = A[:, 0, 0], None if D is None else D[:, 0]
    x, step, B, C, output = (
        each.unsqueeze(1) for each in (x, step, given["B"], given["C"], result)
    )
    return _scanned(x, step, A, B, C, D, output, given["state"])


def _scanned(
    x: Tensor,
    step: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    output: Tensor,
    state: Tensor | None,
) -> Recurrence:
    if A.dim() != 1 or (D is not None and D.dim() != 1):
        raise NotImplementedError
    heads = x.shape[2]
    value, key, query = (_heads_first(each, heads) for each in (x, B, C))
    step = step.to(key.dtype).transpose(1, 2).unsqueeze(-1)  # (batch, heads, length, 1)
    inputs = DeltaInputs(query, key * step, value, A.to(key.dtype)[:, None, None] * step, None)
    return Recurrence(inputs, output.transpose(1, 2), state, None if D is None else D.to(key.dtype))


def _step_size(step: Tensor, given: Arguments) -> Tensor:
    bias, limits = given.get("dt_bias"), given.get("dt_limit")
    step = step if bias is None else step + bias.to(step.dtype)
    step = F.softplus(step) if given.get("dt_softplus") else step
    return step if limits is None else step.clamp(*limits)


def _recurrence(
    result: Any,
    given: Arguments,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Tensor | None,
    beta: Tensor | None,
) -> Recurrence:
    refused = ("cu_seqlens", "head_first", "use_gate_in_kernel", "g_gamma", "gv")
    if any(given.get(name) is not None and given[name] is not False for name in refused):
        raise NotImplementedError
    output, state = result if isinstance(result, tuple) else (result, None)
    scale = given.get("scale")
    query = query * (query.shape[-1] ** -0.5 if scale is None else scale)
    dtype, heads = query.dtype, value.shape[1]
    if decay is None:
        decay = torch.zeros(heads, 1, 1, dtype=dtype, device=query.device)
        decay = decay.expand(len(query), heads, query.shape[2], 1)
    else:
        decay = decay.to(dtype).transpose(1, 2)
        decay = decay.unsqueeze(-1) if decay.dim() == 3 else decay
    beta = None if beta is None else beta.to(dtype).transpose(1, 2).unsqueeze(-1)
    inputs = DeltaInputs(query, key, value, decay, beta)
    return Recurrence(inputs, output.transpose(1, 2), state)


def _three(given: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as (batch, heads, length, width) in float32 or better."""
    value = _first(given, "v", "value")
    heads = value.shape[2]
    query, key, value = (
        _heads_first(each, heads)
        for each in (_first(given, "q", "query"), _first(given, "k", "key"), value)
    )
    return query, key, value


def _heads_first(x: Tensor, heads: int) -> Tensor:
    x = x.to(precise(x.dtype)).transpose(1, 2)
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def _first(given: Arguments, *names: str) -> Any:
    return next(given[name] for name in names if given.get(name) is not None)


FUNCTIONS: dict[str, Callable[..., Recurrence]] = {
    **dict.fromkeys(
        (
            *("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"),
            *("chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule"),
            *("chunk_kimi_delta_attention", "recurrent_kimi_delta_attention"),
            *("chunk_kda", "fused_recurrent_kda", "chunk_delta_rule", "fused_recurrent_delta_rule"),
        ),
        gated_delta,
    ),
    **dict.fromkeys(
        (
            *("chunk_gla", "fused_chunk_gla", "fused_recurrent_gla"),
            *("chunk_simple_gla", "fused_recurrent_simple_gla"),
        ),
        gated_linear,
    ),
    **dict.fromkeys(("chunk_retention", "fused_chunk_retention", "parallel_retention"), retention),
    **dict.fromkeys(("fused_recurrent_retention",), retention),
    **dict.fromkeys(
        ("chunk_linear_attn", "fused_chunk_linear_attn", "fused_recurrent_linear_attn"), linear
    ),
    **dict.fromkeys(("mamba2_chunk_scan", "mamba_chunk_scan_combined"), scan),
    **dict.fromkeys(("mamba2_selective_state_update", "selective_state_update"), update),
}
"""Names of functions, and what reads their arguments and results."""

STATES = ("initial_state", "initial_states", "state")


# ---------------------------------------------------------------------- calls that go on


class History:
    """The calls of a recurrence so far: inputs and outputs, each kept once."""

    def __init__(self, made: Recurrence) -> None:
        self.stores = [None if x is None else Store(x.expand(_size(x, made))) for x in made.inputs]
        self.output = Store(made.output)
        self.skip = None if made.skip is None else detached(made.skip)
        self.normalized = made.normalized
        self.state = None if made.state is None else made.state.detach().clone()

    def extend(self, made: Recurrence) -> None:
        for store, x in zip(self.stores, made.inputs, strict=True):
            if store is not None and x is not None:
                store.append(x.expand(_size(x, made)))
        self.output.append(made.output)
        self.state = None if made.state is None else made.state.detach().clone()

    def rows(self, rows: slice) -> Tensor:
        """Rows of W, (batch, heads, rows, N)."""
        inputs = DeltaInputs(*(None if each is None else each.rows for each in self.stores))  # type: ignore[arg-type]
        weights = implied_rows(inputs, rows)
        if self.normalized:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-10)
        if self.skip is not None:
            diagonal = torch.arange(rows.start, rows.stop, device=weights.device)
            weights[..., diagonal - rows.start, diagonal] += self.skip[:, None]
        return weights

    def combine(self, _: Any, weights: Tensor, __: slice) -> Tensor:
        store = self.stores[2]
        assert store is not None
        return weights @ store.rows.to(weights.dtype)

    def grow(self, record: CallRecord) -> None:
        """Let a record be of all calls so far."""
        output = self.output.rows
        record.output, record.value = output, output
        record.shape = (*output.shape[:2], self.output.length, self.output.length)
        record._versions, record._made = None, None
        record.__dict__.pop("error", None)


def _size(x: Tensor, made: Recurrence) -> tuple[int, ...]:
    return (*made.output.shape[:2], *x.shape[-2:])


def _continued(state: Any, known: list[History]) -> History | None:
    """The history that ended in a state."""
    if not isinstance(state, Tensor):
        return None
    for history in reversed(known):
        last = history.state
        if last is not None and last.shape == state.shape and torch.equal(last.to(state), state):
            return history
    return None


def _observed(name: str, read: Callable[..., Recurrence]) -> Callable[[Callable], Callable]:
    """Make a function notify observers of its calls."""

    def wrap(original: Callable) -> Callable:
        @wraps(original)
        def call(*args: Any, **options: Any) -> Any:
            listening = observers()
            if not listening or in_functorch():
                return original(*args, **options)
            if any_edits(listening):
                reject_edit(listening, f"{name} is a recurrence, whose map is implied")
            given = _bound(original, args, options)
            state = next((given[each] for each in STATES if given.get(each) is not None), None)
            histories = [each for one in listening for each in _of(one)]
            known = None if state is None else _continued(state, histories)
            with unobserved():
                result = original(*args, **options)
                if state is not None and known is None and bool(torch.count_nonzero(state)):
                    return result  # of what came before nothing is known
                made = _read(read, result, given)
            if made is None:
                return result
            if known is None:
                known = History(made)
                for one in listening:
                    _of(one).append(known)
            else:
                known.extend(made)
            notify(listening, _record(name, known, result))
            return result

        return call

    return wrap


def _read(read: Callable[..., Recurrence], result: Any, given: Arguments) -> Recurrence | None:
    """What a function computed; None if its options are not understood."""
    with torch.no_grad():
        try:
            return read(result, **given)
        except (NotImplementedError, StopIteration, KeyError):
            return None


def _of(observer: Any) -> list[History]:
    """The histories that an observer has seen; they end with it."""
    return observer.__dict__.setdefault("histories", [])


def _record(name: str, history: History, result: Any) -> CallRecord:
    output = history.output.rows
    whole = result[0] if isinstance(result, tuple) else result
    shape = (*output.shape[:2], history.output.length, history.output.length)
    return CallRecord(
        output,
        output,
        shape,
        name,
        None,
        lambda _: AttentionMap(history.rows, None, (*shape[:2], *[history.output.length] * 2)),
        history.combine,
        about={"normalizer": "linear", "signed": True},
        grows=history,
        result=(whole, lambda gradient: gradient.transpose(1, 2)),
    )


def _bound(function: Callable, args: tuple[Any, ...], options: Arguments) -> Arguments:
    """The arguments by name."""
    try:
        bound = inspect.signature(function).bind(*args, **options)
    except (TypeError, ValueError):
        return dict(options)
    bound.apply_defaults()
    named = dict(bound.arguments)
    kinds = {each.name: each.kind for each in bound.signature.parameters.values()}
    more = [name for name in named if kinds[name] is inspect.Parameter.VAR_KEYWORD]
    for name in more:
        named |= named.pop(name)
    return named


def patches(kinds: Iterable[type]) -> dict[tuple[Any, str], Callable[[Callable], Callable]]:
    """What to replace in the files of some classes."""
    files = {kind.__module__: sys.modules.get(kind.__module__) for kind in kinds}
    return {
        (file, name): _observed(name, FUNCTIONS[name])
        for file in files.values()
        if file is not None
        for name in FUNCTIONS.keys() & vars(file).keys()
        if callable(vars(file)[name])
    }
