"""Silent mistakes with attention, found from outside: by changing inputs, and by maps."""

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.analysis.probe import (
    Changes,
    Probe,
    Softmaxes,
    difference,
    evaluating,
    parameters,
)
from regard.trace import Call, Trace, capture

KINDS = {
    "future": (
        "changing a token changes the outputs before it",
        "the causal mask is missing, off by one, or not aligned with the last key",
    ),
    "padding": (
        "changing what is padding changes what is not",
        "padded keys are not masked, or padded positions are pooled, averaged or normalized over",
    ),
    "inverted": (
        "what is hidden is attended to, and what is visible is not",
        "the mask has the other meaning: True = may attend here, True = hidden there; negate it",
    ),
    "empty": (
        "a query that may see nothing gives NaN, infinity or an average of everything",
        "softmax over a row of -inf is NaN, and over a row of one large negative number uniform",
    ),
    "cache": (
        "step by step with a cache the outputs are not those of the full pass",
        "positions, or the causal mask, do not count the keys that are in the cache already",
    ),
    "asking": (
        "asking for the weights, or for another implementation, changes the result",
        "two paths that compute something different: a mask, scale or dropout of one of them",
    ),
    "batch": (
        "an example gives something else in another batch",
        "the batch and the length are swapped (batch_first), or statistics are taken over a batch",
    ),
    "order": (
        "the order of the tokens makes no difference",
        "positions are not added, or come after the last attention; a set needs none",
    ),
    "rows": (
        "the weights of a query do not sum to one over the keys",
        "softmax over the wrong dimension: it should be the last one, of the keys",
    ),
    "heads": (
        "most queries give all weight to one key, or all have the same weights",
        "scores that are not divided by √d, a query that is not used, or projections of zero",
    ),
}
"""What each kind of finding means, and its likely cause."""

SHARP = 0.99
"""A weight that leaves nothing for other keys."""


CACHES = ("past_key_values", "past_kv", "past", "layer_past", "kv_cache", "cache")
"""What models call the keys and values of earlier tokens, among their arguments."""

ASKING = re.compile(
    r"(?:need|output|return)_(?:weights?|attn|attn_weights|attentions?|attention_weights|map)"
)
"""What models call the wish for weights."""


class Finding(NamedTuple):
    """Something that is wrong with a model.

    Args:
        kind: one of `KINDS`
        module: the name of the module where it was seen first; the model's class if that is not
            known
        value: how large it is: the difference relative to the largest output; of rows, how far
            their sum is from 1; of heads, the share of the queries
        meaning: what it means
        cause: what is likely to cause it
        is_serious: whether it is a mistake in any model
    """

    kind: str
    module: str
    value: float
    meaning: str
    cause: str
    is_serious: bool = True

    def __str__(self) -> str:
        level = "" if self.is_serious else " (a hint)"
        return (
            f"[{self.kind}] {self.module}: {self.meaning}{level}\n"
            f"    value  {self.value:.3g}\n    cause  {self.cause}"
        )


@dataclass(frozen=True)
class Report:
    """What `check` found.

    Args:
        model: the class of the model
        findings: what is wrong, in the order of `KINDS`
        passed: the kinds that were looked for and not found
        skipped: the kinds that could not be looked for, with the reason
    """

    model: str
    findings: list[Finding]
    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def is_serious(self) -> bool:
        """Whether a finding is a mistake in any model."""
        return any(each.is_serious for each in self.findings)

    def raise_if_any(self) -> None:
        """Raise `AssertionError` with the report if a finding is serious, for test suites."""
        if self.is_serious:
            raise AssertionError(str(self))

    def to_json(self) -> dict[str, Any]:
        """The report as what `json.dumps` takes; an infinite value is None."""
        findings = [each._asdict() for each in self.findings]
        for each in findings:
            each["value"] = each["value"] if abs(each["value"]) < float("inf") else None
        return {
            "model": self.model,
            "findings": findings,
            "passed": self.passed,
            "skipped": self.skipped,
        }

    def __str__(self) -> str:
        count = len(self.findings)
        lines = [f"{self.model}: {count or 'no'} finding{'s' * (count != 1)}"]
        lines += [str(each) for each in self.findings]
        if self.passed:
            lines.append(f"passed   {', '.join(self.passed)}")
        lines += [f"skipped  {kind}: {reason}" for kind, reason in self.skipped.items()]
        return "\n".join(lines)


class SkippedError(Exception):
    """Why something could not be looked for."""


def check(
    model: Any,
    inputs: Any,
    *,
    causal: bool | None = None,
    padding: Tensor | None = None,
    batch_first: bool | None = None,
    ignore: Sequence[str] = (),
) -> Report:
    """Look for broken attention in a model: changes that should not matter, and maps.

    The model is called some thirty times, in evaluation mode, on the inputs and on small changes
    of them. A difference counts if it is larger than rounding explains, ε^0.6 of the largest
    output, and four times larger than that between two random seeds. Masks are those whose name
    says so: in a `..._padding_mask` True is hidden, as in torch, in any other `mask` visible.

    >>> model = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
    >>> report = check(model, torch.randn(2, 5, 6))
    >>> report.findings, "batch" in report.passed
    ([], True)
    >>> check(model, torch.randn(2, 5, 6), causal=True).findings[0].kind
    'future'

    Args:
        model: a torch module, or an object with one as `.model`, such as a loaded run
        inputs: what the model is called with: a tensor, a tuple, or a dict of keywords; best two
            examples of different lengths with their mask, and eight tokens or more
        causal: whether no output may depend on later tokens; by default whether the model says
            so, by a mask, a name, an attribute or its configuration
        padding: which positions of the first sequence are padding, (batch, length), for models
            that find that out themselves
        batch_first: whether inputs are (batch, length, ...); by default unless a module of torch
            says otherwise
        ignore: kinds of findings to leave out, such as "order" for models of sets

    Returns: a report; `raise_if_any()` raises for serious findings, `print` explains them
    """
    inner = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(inner, nn.Module):
        raise TypeError(
            f"check takes a torch module, or an object with one as .model, got "
            f"{type(model).__name__}"
        )
    if unknown := set(ignore) - KINDS.keys():
        raise ValueError(f"ignore should be of {', '.join(KINDS)}, got {', '.join(unknown)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probe = Probe(inner, inputs, causal, padding, batch_first)
        with capture(inner) as trace:
            captured = probe.run()
        looks = _Looks(probe, trace, captured)
        report = Report(type(inner).__name__, [], [], {})
        for kind in KINDS:
            if kind in ignore:
                report.skipped[kind] = "ignored"
                continue
            try:
                findings = list(getattr(looks, kind)())
            except SkippedError as reason:
                report.skipped[kind] = str(reason)
                continue
            except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
                sentence = str(error).strip().partition("\n")[0]
                report.skipped[kind] = f"the model refuses the changed inputs: {sentence}"
                continue
            for each in findings:
                if each.kind not in ignore and each.kind not in {f.kind for f in report.findings}:
                    report.findings.append(each)
            if not findings:
                report.passed.append(kind)
    names = {each.kind for each in report.findings}
    report.passed[:] = [kind for kind in report.passed if kind not in names]
    return report


def _finding(
    kind: str, module: str, value: float, detail: str = "", serious: bool = True
) -> Finding:
    meaning, cause = KINDS[kind]
    return Finding(kind, module, value, meaning + (detail and f": {detail}"), cause, serious)


class _Looks:
    """Looks for each kind of finding; a method for each.

    Args:
        captured: the result while the trace was recorded
    """

    def __init__(self, probe: Probe, trace: Trace, captured: Tensor) -> None:
        self.probe, self.trace, self.captured = probe, trace, captured
        self.name = type(probe.model).__name__
        self.leaks = False  # from the future
        self.causal = probe.is_causal(self._has_triangular_maps())

    def future(self) -> Iterator[Finding]:
        probe, main = self.probe, self.probe.main
        if not self.causal:
            raise SkippedError("the model does not say that it is causal; causal=True does")
        if main is None or not probe.per_position(main):
            raise SkippedError("the result has no row for each token")
        B, L = probe.shape(main)
        steps = torch.arange(L).expand(B, L).to(probe.base.device)
        real = steps >= 0 if main.real is None else main.real
        worst, where = 0.0, steps < 0
        for j in sorted({1, L // 2, L - 1} - {0}):
            rows = (steps < j) & real
            after = probe.run(probe.perturb(main, steps >= j))
            if (value := probe.differs(probe.base[rows], after[rows])) > worst:
                worst, where = value, steps >= j
        if worst:
            place = probe.locate({}, probe.perturb(main, where), ~where & real)
            half = L // 2
            past = probe.perturb(main, steps < half)
            inverted = probe.ignores(place, {}, past, steps == half)
            yield _finding("inverted" if inverted else "future", place, worst)
            self.leaks = True

    def padding(self) -> Iterator[Finding]:
        probe = self.probe
        looked = False
        for sequence in probe.sequences:
            B, L = probe.shape(sequence)
            real = sequence.real
            hidden: Changes | None = {}
            if real is None or real.all():
                real = torch.ones(B, L, dtype=torch.bool, device=probe.base.device)
                real[-1, L - max(L // 3, 1) :] = False
                hidden = probe.hide(sequence, real) if L > 2 else None
            if hidden is None:
                continue
            looked = True
            yield from self._padded(sequence, real, hidden)
            if self.causal and sequence is probe.main:
                yield from self._padded_left(sequence)
        if not looked:
            raise SkippedError("no mask or lengths among the inputs; padding= says what is padding")

    def _padded(self, sequence: Any, real: Tensor, hidden: Changes) -> Iterator[Finding]:
        probe = self.probe
        rows = real if probe.per_position(sequence) else ...
        base = probe.run(hidden)
        by_ids = sequence.mask is None and sequence.keys[0] in hidden
        by_ids |= sequence.mask is None and not hidden and probe.padding_id is not None
        if not by_ids:
            changes = {**hidden, **probe.perturb(sequence, ~real)}
            if value := probe.differs(base[rows], probe.run(changes)[rows]):
                place = probe.locate(hidden, changes, real)
                last = real & (real.flip(1).cumsum(1).flip(1) == 1) & ~real.all(1, keepdim=True)
                others = {**hidden, **probe.perturb(sequence, real & ~last)}
                inverted = probe.ignores(place, hidden, others, last)
                yield _finding("inverted" if inverted else "padding", place, value)
                return
        lengths = real.sum(1)
        short = int(lengths.argmin())
        length = int(lengths[short])
        if sequence is not probe.sequences[0] or length < 1 or not real[short, :length].all():
            return
        alone = probe.run(probe.crop(hidden, slice(short, short + 1), length))
        one = base[short : short + 1]
        padded = one[:, :length] if probe.per_position(sequence) else one
        if value := probe.differs(padded, alone):
            yield _finding("padding", self.name, value, "without its padding an example differs")

    def _padded_left(self, sequence: Any) -> Iterator[Finding]:
        """Compare a short sequence alone with the same after padding, as for generation."""
        probe, x = self.probe, self.probe.tensor(sequence)
        B, L = probe.shape(sequence)
        pad = L // 3
        real = torch.arange(L, device=x.device).expand(B, L) >= pad
        hidden = probe.hide(sequence, real)
        if hidden is None or sequence.keys[0] in hidden or not probe.per_position(sequence):
            return
        moved = {**hidden, **probe.set(sequence, x.roll(pad, 1))}
        if counts := "position_ids" in probe.parameters:
            moved["position_ids"] = (real.cumsum(1) - 1).clamp_min(0)
        alone = probe.run(probe.crop(probe.hide(sequence, real | True) or {}, slice(None), L - pad))
        if value := probe.differs(alone, probe.run(moved)[:, pad:]):
            detail = "padding on the left, as for generation, differs from none"
            yield _finding("padding", self.name, value, detail, serious=counts)

    def inverted(self) -> Iterator[Finding]:
        """By maps; `future` and `padding` find it by their changes."""
        main = self.probe.sequences[0] if self.probe.sequences else None
        if main is None or main.real is None or main.real.all():
            return
        real = main.real
        for call in self.trace:
            if call.batch != len(real) or call.shape[-1] != real.shape[1]:
                continue
            rows = call.map.dense().double()
            hidden = (rows * ~real[:, None, None]).sum(-1)[~real.all(1)]
            visible = (rows * real[:, None, None]).sum(-1)[~real.all(1)]
            if hidden.mean() > SHARP and visible.max() < 1 - SHARP:
                yield _finding("inverted", call.name, float(hidden.mean()))

    def empty(self) -> Iterator[Finding]:
        probe = self.probe
        if bad := int((~probe.base.isfinite()).sum()):
            yield _finding("empty", self._first_bad({}), bad, f"{bad} outputs are not finite")
            return
        if not probe.sequences:
            raise SkippedError("no sequence among the inputs")
        first = probe.sequences[0]
        if first.real is None:
            raise SkippedError("no mask or lengths among the inputs")
        B, L = probe.shape(first)
        left, nothing = torch.ones(2, B, L, dtype=torch.bool, device=probe.base.device)
        left[-1, : L // 3], nothing[-1] = False, False
        looked, refused = False, ""
        for real in (nothing, left):
            changes = probe.hide(first, real)
            if changes is None:
                continue
            try:
                after = probe.run(changes)
            except (RuntimeError, ValueError, IndexError) as error:
                refused = str(error).partition("\n")[0]
                continue
            looked = True
            if bad := int((~after.isfinite()).sum()):
                detail = f"{bad} outputs are not finite if all tokens of an example are padding"
                if real is left:
                    detail = f"{bad} outputs are not finite if an example is padded on the left"
                yield _finding("empty", self._first_bad(changes), bad, detail)
                return
        if not looked:
            raise SkippedError(refused or "the mask or lengths cannot be changed")

    def _first_bad(self, changes: Changes) -> str:
        with self.probe._recording() as runs:
            self.probe.call(changes)
        for run in runs:
            bad = any(not each.isfinite().all() for each in run.outputs)
            if bad and not any(each.isnan().any() for each in run.inputs):
                return run.name
        return self.name

    def cache(self) -> Iterator[Finding]:
        probe, main = self.probe, self.probe.main
        if main is None or not self.causal or not probe.per_position(main):
            raise SkippedError("the model is not causal, or its result has no row for each token")
        if self.leaks:
            raise SkippedError("the full pass sees the future, so it differs in any case")
        L = probe.shape(main)[1]
        if L < 4:
            raise SkippedError("fewer than 4 tokens")
        inputs = dict.fromkeys(self._about(main))
        full = probe.run(inputs)
        steps: list[Tensor]
        if name := next((each for each in CACHES if each in probe.parameters), None):
            steps = self._with_cache(main, name, inputs, (L // 2, 2, *[1] * (L - L // 2 - 2)))
        elif hasattr(probe.model, "start") and hasattr(probe.model, "step"):
            steps = self._stepping(main)
        else:
            raise SkippedError("no cache among the arguments of the model")
        result = torch.cat(steps, dim=1)
        differences = [difference(full, full - (full - result) * at) for at in self._places(full)]
        bad = [index for index, value in enumerate(differences) if value > probe.noise]
        if bad:
            detail = f"the first of {len(bad)} positions is {bad[0]}"
            yield _finding("cache", self.name, max(differences), detail)

    @staticmethod
    def _places(full: Tensor) -> Tensor:
        """A selection of each position, (L, 1, L, 1, ...)."""
        L = full.shape[1]
        return torch.eye(L).to(full).view(L, 1, L, *[1] * (full.dim() - 2))

    def _about(self, main: Any) -> list[Any]:
        """The inputs that say something about each position of a sequence: masks, positions."""
        probe = self.probe
        shape = probe.shape(main)
        return [
            key
            for key, value in probe.inputs.items()
            if isinstance(value, Tensor)
            and key not in main.keys
            and value.shape == shape
            and (main is probe.sequences[0] or probe.name(key).startswith("decoder"))
            and not any(key in sequence.keys for sequence in probe.sequences)
        ]

    def _with_cache(
        self, main: Any, name: str, inputs: dict[Any, Any], sizes: Sequence[int]
    ) -> list[Tensor]:
        probe, x = self.probe, self.probe.tensor(main)
        asks: dict[Any, Any] = {"use_cache": True} if "use_cache" in probe.parameters else {}
        steps: list[Tensor] = []
        past, begin = None, 0
        for size in sizes:
            part = probe.set(main, x[:, begin : begin + size])
            output = probe.call({**inputs, **part, **asks, name: past})
            steps.append(probe.result(output))
            past = getattr(output, "past_key_values", None)
            if past is None and isinstance(output, tuple) and len(output) > 1:
                past = output[1]
            if past is None:
                raise SkippedError(f"the model returned no {name}")
            begin += size
        return steps

    def _stepping(self, main: Any) -> list[Tensor]:
        """The layers and models of this library: start, and step after step."""
        probe, x = self.probe, self.probe.tensor(main)
        model: Any = probe.model
        with torch.no_grad(), evaluating(model):
            if hasattr(model, "encode"):
                source = [value for key, value in probe.inputs.items() if key not in main.keys]
                state = model.start(model.encode(*source))
            else:
                state = model.start(len(x))
            steps = []
            for t in range(x.shape[1]):
                y, state = model.step(x[:, t] if x.dim() == 2 else x[:, t : t + 1], state)
                steps.append(y if x.dim() == 3 else y.unsqueeze(1))
        return steps

    def asking(self) -> Iterator[Finding]:
        probe = self.probe
        rows = self._real_rows()
        if value := probe.differs(probe.base[rows], self.captured[rows]):
            yield _finding("asking", self.name, value, "under regard.capture")
            return
        looked = False
        for option in filter(ASKING.fullmatch, probe.parameters):
            looked = True
            one, two = (probe.run({option: asked})[rows] for asked in (False, True))
            if value := probe.differs(one, two):
                yield _finding("asking", self.name, value, f"{option}=True")
                return
        model: Any = probe.model
        for name, module in model.named_modules():
            asks = next(filter(ASKING.fullmatch, parameters(module)), None) if name else None
            if asks is None:
                continue
            try:
                after = probe.asked(module, asks)
            except Exception:  # its caller needs what it returned before
                continue
            looked = True
            if value := probe.differs(probe.base[rows], after[rows]):
                yield _finding("asking", name, value, f"{asks} changes it")
                return
        implementation = getattr(getattr(model, "config", None), "_attn_implementation", None)
        if implementation in ("eager", "sdpa"):
            other = "eager" if implementation == "sdpa" else "sdpa"
            try:
                model.set_attn_implementation(other)
                after, looked = probe.run(), True
            except (ValueError, ImportError):  # it has one implementation alone
                after = probe.base
            finally:
                model.set_attn_implementation(implementation)
            if value := probe.differs(probe.base[rows], after[rows]):
                yield _finding("asking", self.name, value, f"{other} instead of {implementation}")
        if not looked:
            raise SkippedError("the model does not return weights")

    def _real_rows(self) -> Any:
        """Which rows of the result are those of real tokens."""
        probe, main = self.probe, self.probe.main
        known = main is not None and main.real is not None and probe.per_position(main)
        return main.real if known and main is not None else ...

    def batch(self) -> Iterator[Finding]:
        probe = self.probe
        B = len(probe.base)
        others = probe.other_examples()
        if not others:
            raise SkippedError("the result has no row for each example")
        if B > 1:
            if value := probe.differs(probe.base[:1], probe.run(others)[:1]):
                L = probe.shape(probe.main)[1] if probe.main else 1
                first = torch.arange(B, device=probe.base.device).expand(L, B).T == 0
                yield _finding("batch", probe.locate({}, others, first), value)
                return
            alone, together = probe.run(probe.crop({}, slice(0, 1))), probe.base[:1]
        else:
            alone, together = probe.base, probe.run(probe.crop({}, [0, 0]))[:1]
        if value := probe.differs(together, alone):
            yield _finding("batch", self.name, value, "alone it is not what it is in a batch")

    def order(self) -> Iterator[Finding]:
        probe, looked = self.probe, False
        for sequence in probe.sequences:
            x = probe.tensor(sequence)
            B, L = probe.shape(sequence)
            if x.is_floating_point() or L < 4:
                continue
            real = torch.ones_like(x, dtype=torch.bool) if sequence.real is None else sequence.real
            moves = real.clone()
            causal = self.causal and sequence is probe.main
            last = real & (real.flip(1).cumsum(1).flip(1) == 1)
            if causal:
                moves &= ~last
            place = torch.arange(L, device=x.device).expand(B, L).clone()
            for row in range(B):  # from the back to the front
                place[row, moves[row]] = place[row, moves[row]].flip(0)
            permuted = x.gather(1, place)
            if (permuted == x).all(1).any():
                continue
            looked = True
            after, base = probe.run(probe.set(sequence, permuted)), probe.base
            rows: Any = ...
            if probe.per_position(sequence):
                rows = last if causal else real
                shape = (B, L, *[1] * (base.dim() - 2))
                base = base if causal else base.gather(1, place.view(shape).expand_as(base))
            moved = difference(base[rows], after[rows])
            content = probe.run(probe.perturb(sequence, moves))
            if moved < min(probe.noise, difference(probe.base[rows], content[rows]) / 10):
                name = probe.name(sequence.keys[0])
                yield _finding("order", self.name, moved, f"of {name}, permuted")
        if not looked:
            raise SkippedError("no ids of four tokens or more")

    def rows(self) -> Iterator[Finding]:
        with Softmaxes(self.probe.model).watching() as softmaxes:
            self.probe.call()
        if softmaxes.found:
            yield _finding("rows", *softmaxes.found[0])
            return
        for call in self._calls():
            if call.provenance.get("normalizer") not in (None, "softmax"):
                continue
            sums = call.map.dense().double().sum(-1)
            seen = sums[sums.abs() > 1e-6]
            if seen.numel() and (value := float(seen.max() - 1)) > 0.02:  # a sink takes a part
                yield _finding("rows", call.name, value)

    def heads(self) -> Iterator[Finding]:
        for call in self._calls():
            maps = call.map.dense().double()
            sees = (maps > 0).sum(-1)
            wide = sees >= 4
            sharp = (maps.amax(-1) > SHARP)[wide].double()
            varied = maps.argmax(-1)[wide].unique().numel() > 1
            share = float(sharp.mean()) if sharp.numel() >= 8 and varied else 0.0
            if share > 0.5 and not _is_scaled(call):
                detail = f"{share:.0%} of the queries give all to one key"
                yield _finding("heads", call.name, share, detail, serious=False)
            M = call.shape[-2]
            late = maps[..., M // 2 :, :]
            common = (late > 0).all(-2, keepdim=True)
            late = late * common
            late = late / late.sum(-1, keepdim=True).clamp_min(1e-30)
            if M < 6 or int(common.sum(-1).min()) < 2:
                continue
            spread = (late - late[..., :1, :]).abs().amax((-1, -2))
            if bool((spread < self.probe.noise / 10).all()):
                detail = "every query has the same weights"
                yield _finding("heads", call.name, 1.0, detail, serious=False)

    def _calls(self) -> list[Call]:
        """The recorded calls; skipped if there are none."""
        calls = [call for call in self.trace if call.is_distribution]
        if not calls:
            raise SkippedError("no attention call was recorded")
        return calls

    def _has_triangular_maps(self) -> bool:
        """Whether most maps of a sequence to itself show no later keys, or a few."""
        main = self.probe.main
        if main is None:
            return False
        L = self.probe.shape(main)[1]
        square = [call for call in self.trace if call.shape[-2:] == (L, L)]
        return L > 3 and 2 * sum(map(_is_triangular, square)) >= max(len(square), 1)


def _is_triangular(call: Call) -> bool:
    """Whether no query sees keys after its own, or after the next two, but all sees the first."""
    shown = (call.map.dense() > 0).flatten(0, -3).any(0)
    return any(
        not shown.triu(offset + 1).any() and (offset == 0 or bool(shown[-1, 0]))
        for offset in range(min(3, len(shown) - 2))
    )


def _is_scaled(call: Call) -> bool:
    """Whether scores are dot products times 1/√d at most, as far as is known."""
    inputs = call.inputs
    if inputs is None or inputs.query.shape[-1] != inputs.key.shape[-1]:
        return False
    dots = (inputs.query @ inputs.key.mT).double()
    scores = inputs.score(inputs.query, inputs.key).double()
    scale = float((scores * dots).sum() / dots.square().sum().clamp_min(1e-30))
    return scale <= 1.5 * inputs.query.shape[-1] ** -0.5
