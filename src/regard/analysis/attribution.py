"""Attribution: how much an output depends on each source word, by several methods.

| method | a word's number | reference |
|---|---|---|
| `attention` | the weight in the rows of the target, averaged over heads and layers | |
| `gradient_attention` | Σ of weight times ∂L/∂weight over rows, heads and layers, its positive part | Chefer et al. 2021, eq. 5 |
| `relevance` | the same from layer to layer, averaged over heads | Chefer et al. 2021, eq. 6 |
| `value_norms` | ‖Σ_heads α v W_O‖ in the rows of the target, averaged over layers | Kobayashi et al. 2020 |
| `rollout` | the share of the word in the target's row after all layers | Abnar & Zuidema 2020 |
| `value_zeroing` | 1 − cos of a layer's output with and without the word's values | Mohebbi et al. 2023 |
| `input_gradient` | embedding · ∂L/∂embedding | Shrikumar et al. 2017 |
| `occlusion` | the loss of L if the word's embedding is zero | Zeiler & Fergus 2014 |

The gradient of the weights is ∂L/∂W = G·Vᵀ, where G = ∂L/∂O is that of the output of an attention call: it is
computed row by row, on any path, and never as a whole.
"""  # fmt: skip  # noqa: E501

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.blocks import BLOCK_ELEMENTS, block_rows
from regard.core.names import check_name
from regard.trace import Call, Trace, edit
from regard.trace.capture import Captured

Target = Tensor | int | tuple[int, int] | Callable[[Any], Tensor]
"""A scalar of the model's output, what makes it of the output, a token or class, or two to subtract."""  # noqa: E501

RESIDUAL = 0.5  # share of the residual connection in rollout


def attribute(
    trace: Trace,
    target: Target | None = None,
    method: str = "gradient_attention",
    *,
    layers: str | Sequence[str] = "*",
    rows: Sequence[int] | None = None,
    signed: bool = False,
    per_head: bool = False,
    control: int | None = None,
) -> Any:
    """How much a target depends on each source word.

    >>> import regard
    >>> from regard.models import LanguageModel
    >>> model = LanguageModel(13, dim=12, heads=3, hidden=24, layers=2).eval()
    >>> with regard.capture(model, gradients=True) as trace:
    ...     logits = model.output(model(torch.tensor([[5, 7, 2, 11]])))
    >>> attribute(trace, logits[0, -1, 3] - logits[0, -1, 4]).shape
    torch.Size([4])
    >>> attribute(trace, logits[0, -1, 3], per_head=True)[trace.names[0]].shape
    torch.Size([3, 4])

    Args:
        trace: of one forward pass, recorded by `capture(model, gradients=True)` in eval mode
        target: a scalar of the model's output; a function of the output that returns one; the id
            of a token or class, whose last logit is meant; or two ids, whose logits are subtracted.
            None for the backward that ran, or for a method that needs no gradient
        method: a name in `METHODS`
        layers: patterns of names of calls. By default those from target to source, or, where a
            model has none, all
        rows: queries that made the target, for methods without gradients. By default those on
            which it depends in the last layer
        signed: with `gradient_attention` and `relevance`, also the negative part
        per_head: with `attention`, `gradient_attention` and `value_norms`: a dict with a tensor
            (heads, N) for each call
        control: a seed, for the random control: weights are shuffled within each row, and what
            needs no weights is shuffled as a whole

    Returns: (N,); (batch, N) for a trace of several examples
    """
    check_name("method", method, METHODS)
    if not trace.calls:
        raise ValueError(f"there is nothing to attribute: {trace!r}")
    if signed and method not in SIGNED:
        raise ValueError(f"signed is an option of {' and '.join(SIGNED)}, got method={method!r}")
    if per_head and method not in PER_HEAD:
        raise ValueError(f"per_head is an option of {', '.join(PER_HEAD)}, got method={method!r}")
    if any("dropout" in call.provenance for call in trace):
        raise ValueError("attribution needs a model without dropout: call model.eval() before")
    question = Question(trace, target, layers, rows, signed, control)
    with torch.no_grad():  # maps of other libraries' calls have a graph, too
        if per_head:
            return {call.name: _squeezed(each) for call, each in PER_HEAD[method](question)}
        return _squeezed(METHODS[method](question)).detach()


def scalar_of(trace: Trace, target: Target) -> Tensor:
    """The scalar that a target means."""
    if isinstance(target, Tensor):
        return target
    forward = trace.forward if isinstance(trace, Captured) else None
    if forward is None or forward.output is None:
        raise ValueError(
            "a target that is no tensor needs the model's output: call the model itself in the "
            "block of capture(model, gradients=True)"
        )
    return of_output(forward.model, forward.output, target)


def of_output(model: nn.Module, output: Any, target: Target) -> Tensor:
    """The scalar that a target, which is not one itself, means in an output of the model."""
    assert not isinstance(target, Tensor)
    if callable(target):
        return target(output)
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise TypeError(f"a token needs logits, got {type(output).__name__}; give a function of it")
    head = getattr(model, "output", None)
    if isinstance(head, nn.Linear) and logits is output:  # features, as of `regard.models`
        logits = head(logits)
    last = logits[:, -1] if logits.dim() == 3 else logits  # (B, vocabulary or classes)
    if isinstance(target, int):
        return last[..., target].sum()
    first, second = target
    return (last[..., first] - last[..., second]).sum()


@dataclass(eq=False)
class Question:
    """A trace with what is asked of it, see `attribute`."""

    trace: Trace
    target: Target | None
    layers: str | Sequence[str]
    rows: Sequence[int] | None
    signed: bool
    control: int | None

    def __post_init__(self) -> None:
        self.steps = self.trace.stitched()
        self.embedded_gradient: Tensor | None = None
        if self.target is not None:
            if not isinstance(self.trace, Captured):
                raise ValueError(
                    "a target needs the trace of capture(model, gradients=True) itself, got "
                    f"{type(self.trace).__name__}; without one, call backward() and give no target"
                )
            scalar = scalar_of(self.trace, self.target)
            self.embedded_gradient = self.trace.differentiate(scalar)

    @property
    def calls(self) -> list[Call]:
        """The selected calls, with keys of one length."""
        patterns = [self.layers] if isinstance(self.layers, str) else list(self.layers)
        calls = [c for c in self.steps if any(fnmatchcase(c.name, each) for each in patterns)]
        if patterns == ["*"]:
            calls = [c for c in calls if c.queries != c.keys == "source"] or [
                c for c in calls if c.keys == "source"
            ]
        if len({call.shape[-1] for call in calls}) != 1:
            sizes = ", ".join(f"{c.name} {c.shape[-1]}" for c in calls) or "none"
            raise ValueError(
                f"calls should have the same keys, got {sizes}; select some by layers=, of "
                f"{', '.join(self.steps.names)}"
            )
        return calls

    def weights(self, call: Call, rows: slice) -> Tensor:
        """Rows of the map; of the control, shuffled among the keys that are attended to."""
        weights = call.map[..., rows, :]
        weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
        if self.control is None:
            return weights
        seed = self.control * 1_000_003 + rows.start * 101 + self.steps.names.index(call.name)
        draw = torch.Generator().manual_seed(seed)
        noise = torch.rand(weights.shape, generator=draw).to(weights.device)
        last = noise.new_tensor(2.0)
        place = torch.linspace(0, 1, weights.shape[-1], device=weights.device).expand_as(noise)
        old = torch.where(weights > 0, place, last).argsort(dim=-1, stable=True)
        new = torch.where(weights > 0, noise, last).argsort(dim=-1, stable=True)
        return torch.zeros_like(weights).scatter(-1, new, weights.gather(-1, old))

    def products(self, call: Call, rows: slice) -> Tensor:
        """Rows of W ⊙ ∂L/∂W, or of its positive part."""
        gradient = call.gradient
        if gradient is None:
            raise ValueError(
                f"{call.name!r} has no gradient: record it with capture(model, gradients=True) and "
                "give a target"
            )
        product = self.weights(call, rows) * gradient[..., rows, :]
        return product if self.signed else product.clamp(min=0)

    def row_shares(self) -> Tensor:
        """How much each query of the last call belongs to the target, (..., M)."""
        last = self.steps.calls[-1]
        shares = torch.zeros(*last.shape[:-3], last.shape[-2])
        if self.rows is not None:
            shares[..., list(self.rows)] = 1.0
        elif (gradient := last.gradient) is None:
            shares += 1.0
        else:
            for some in blocks(last):
                shares[..., some] = (gradient[..., some, :] != 0).any(-1).any(-2).float().cpu()
        shares = shares / shares.sum(-1, keepdim=True).clamp(min=1.0)
        return shares.to(last.map[..., :0, :].device)

    def shares_of(self, call: Call) -> Tensor:
        """`row_shares` for the rows of a call, (..., M); all rows alike if it has others."""
        shares, M = self.row_shares(), call.shape[-2]
        return shares if shares.shape[-1] == M else shares.new_full((*shares.shape[:-1], M), 1 / M)

    def captured(self, method: str) -> Captured:
        """The trace, if it can run the model again."""
        if isinstance(self.trace, Captured) and self.trace.forward is not None:
            return self.trace
        raise ValueError(
            f"{method} runs the model: it needs the trace of capture(model, gradients=True) itself"
        )


def blocks(call: Call) -> Iterator[slice]:
    """Slices of rows of a map, of which one is in memory at a time."""
    step = block_rows(call.shape[:-2].numel() * call.shape[-1], BLOCK_ELEMENTS // 4)
    for start in range(0, call.shape[-2], step):
        yield slice(start, min(start + step, call.shape[-2]))


def _squeezed(scores: Tensor) -> Tensor:
    """Without the batch of a single example."""
    return scores.squeeze(0) if scores.dim() > 1 and len(scores) == 1 else scores


# ---------------------------------------------------------------------- by heads, (..., heads, N)


def _attention_heads(question: Question) -> Iterator[tuple[Call, Tensor]]:
    for call in question.calls:
        shares = question.shares_of(call).unsqueeze(-2)  # (..., 1, M)
        parts = [
            (question.weights(call, rows) * shares[..., rows, None]).sum(-2)
            for rows in blocks(call)
        ]
        yield call, torch.stack(parts).sum(0)


def _gradient_heads(question: Question) -> Iterator[tuple[Call, Tensor]]:
    for call in question.calls:
        parts = [question.products(call, rows).sum(-2) for rows in blocks(call)]
        yield call, torch.stack(parts).sum(0)  # over the queries


def _value_heads(question: Question) -> Iterator[tuple[Call, Tensor]]:
    for call, weights in _attention_heads(question):
        yield call, weights * transformed_values(call).norm(dim=-1)


def transformed_values(call: Call) -> Tensor:
    """v W_O of each head, (..., heads, N, D): what a weight of 1 adds to the output of the layer.

    Kobayashi et al. 2020, eq. 4. Without W_O, the values themselves.
    """
    inputs = call.inputs
    if inputs is None:
        raise ValueError(
            f'the values of {call.name!r} were not recorded; load with attn_implementation="sdpa"'
        )
    leading = torch.broadcast_shapes(inputs.query.shape[:-2], inputs.key.shape[:-2])
    value = inputs.value.expand(*leading, *inputs.value.shape[-2:])
    value = value.reshape(*call.shape[:-2], *value.shape[-2:]).float()  # (..., heads, N, Dv)
    project, (heads, width) = inputs.output, (call.heads, value.shape[-1])
    if project is None or call.provenance.get("heads") is not None:
        return value
    with torch.no_grad():
        zero = project(value.new_zeros(heads * width).to(next(project.parameters()).dtype))
        parts = []
        for head in range(heads):
            one = F.pad(value[..., head, :, :], (head * width, (heads - 1 - head) * width))
            parts.append((project(one.to(zero.dtype)) - zero).float())
    return torch.stack(parts, dim=-3)


# ---------------------------------------------------------------------- by words, (..., N)


def _attention(question: Question) -> Tensor:
    return torch.stack([each.mean(-2) for _, each in _attention_heads(question)]).mean(0)


def _gradient_attention(question: Question) -> Tensor:
    return torch.stack([each.sum(-2) for _, each in _gradient_heads(question)]).sum(0)


def _value_norms(question: Question) -> Tensor:
    layers = []
    for call in question.calls:
        shares, values = question.shares_of(call), transformed_values(call)
        total = shares.new_zeros(*shares.shape[:-1], call.shape[-1])
        for row in shares.flatten(0, -2).any(0).nonzero()[:, 0].tolist():
            weights = question.weights(call, slice(row, row + 1))[..., 0, :]  # (..., heads, N)
            norms = (weights.unsqueeze(-1) * values).sum(-3).norm(dim=-1)
            total += shares[..., row, None] * norms
        layers.append(total)
    return torch.stack(layers).mean(0)


def _relevance(question: Question) -> Tensor:
    return _propagated(question, question.products, keep=1.0, add=1.0)


def _rollout(question: Question) -> Tensor:
    return _propagated(question, question.weights, keep=RESIDUAL, add=1 - RESIDUAL)


def _propagated(
    question: Question, matrix: Callable[[Call, slice], Tensor], *, keep: float, add: float
) -> Tensor:
    """The target's row of the product of all layers, from the last to the first.

    Only that row is multiplied, so that no map is needed as a whole. From target to source a
    cross-attention adds to the shares of the source what the target's have.
    """
    calls = question.steps.calls
    shares = {calls[-1].queries: question.row_shares()}
    for call in reversed(calls):
        upper = shares.get(call.queries)
        if upper is None or upper.shape[-1] != call.shape[-2]:
            continue
        read = upper.new_zeros(*upper.shape[:-1], call.shape[-1])
        for rows in blocks(call):
            read += (upper[..., rows].unsqueeze(-2) @ matrix(call, rows).mean(-3)).squeeze(-2)
        shares[call.queries] = keep * upper
        shares[call.keys] = shares.get(call.keys, torch.zeros_like(read)) + add * read
    if "source" not in shares:
        raise ValueError("no attention leads from the last layer to the source")
    return shares["source"]


def _value_zeroing(question: Question) -> Tensor:
    trace, found = question.captured("value_zeroing"), []
    forward = trace.forward
    assert forward is not None
    for call in question.calls:
        layer = dict(forward.model.named_modules())[layer_name(call.name)]
        shares, N = question.shares_of(call), call.shape[-1]
        with torch.no_grad():
            before = _layer_output(forward.again, layer)  # (B, M, D)
            changes = []
            for word in range(N):
                with edit(forward.model) as edits:
                    edits.zero_value(call.name, key=word)
                    after = _layer_output(forward.again, layer)
                changes.append(1 - F.cosine_similarity(before, after, dim=-1))  # (B, M)
        found.append((torch.stack(changes, -1) * shares.unsqueeze(-1)).sum(-2))  # (B, N)
    return _shuffled(torch.stack(found).mean(0), question.control)


def layer_name(name: str) -> str:
    """The name of the layer that an attention module is in: up to the last number in its name.

    >>> layer_name("encoder.layers.0.self_attention"), layer_name("decoder.attention")
    ('encoder.layers.0', 'decoder')
    """
    parts = name.split(".")
    numbers = [index for index, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[: numbers[-1] + 1] if numbers else parts[:-1])


def _layer_output(run: Callable[[], Any], layer: nn.Module) -> Tensor:
    outputs: list[Tensor] = []

    def keep(_: nn.Module, args: Any, output: Any) -> None:
        outputs.append(output if isinstance(output, Tensor) else output[0])

    handle = layer.register_forward_hook(keep)
    try:
        run()
    finally:
        handle.remove()
    return outputs[-1].float()


def _input_gradient(question: Question) -> Tensor:
    forward = question.captured("input_gradient").forward
    assert forward is not None
    if forward.embedded is None or question.target is None:
        raise ValueError(
            "input_gradient needs a target, and a model whose input goes through an nn.Embedding"
        )
    if question.embedded_gradient is None:
        return forward.embedded.new_zeros(forward.embedded.shape[:-1])
    scores = (forward.embedded.detach() * question.embedded_gradient).sum(-1)  # (B, N)
    return _shuffled(scores.float(), question.control)


def _occlusion(question: Question) -> Tensor:
    forward, target = question.captured("occlusion").forward, question.target
    assert forward is not None
    if target is None or isinstance(target, Tensor):
        raise ValueError(
            "occlusion runs the model again, so the target should be a token, two, or a function "
            "of the model's output, such as lambda output: output.logits[0, -1, 5]"
        )
    if forward.embedded is None or len(forward.embedded) != 1:
        raise ValueError("occlusion needs one example, whose input goes through an nn.Embedding")

    def without(word: int) -> Callable[[Tensor], Tensor]:
        hidden = torch.zeros(forward.embedded.shape[1], 1, dtype=torch.bool)  # type: ignore
        hidden[word] = True
        return lambda embedded: embedded.masked_fill(hidden.to(embedded.device), 0.0)

    with torch.no_grad():
        before = of_output(forward.model, forward.again(), target)
        losses = [
            before - of_output(forward.model, forward.again(without(word)), target)
            for word in range(forward.embedded.shape[1])
        ]
    return _shuffled(torch.stack(losses)[None].float(), question.control)


def _shuffled(scores: Tensor, control: int | None) -> Tensor:
    if control is None:
        return scores
    order = torch.randperm(scores.shape[-1], generator=torch.Generator().manual_seed(control))
    return scores[..., order.to(scores.device)]


METHODS: dict[str, Callable[[Question], Tensor]] = {
    "attention": _attention,
    "gradient_attention": _gradient_attention,
    "relevance": _relevance,
    "value_norms": _value_norms,
    "rollout": _rollout,
    "value_zeroing": _value_zeroing,
    "input_gradient": _input_gradient,
    "occlusion": _occlusion,
}
"""Methods of attribution, by name."""

PER_HEAD: dict[str, Callable[[Question], Iterator[tuple[Call, Tensor]]]] = {
    "attention": _attention_heads,
    "gradient_attention": _gradient_heads,
    "value_norms": _value_heads,
}
"""Those that have a number for each head."""

SIGNED = ("gradient_attention", "relevance")
"""Those whose negative part means something."""
