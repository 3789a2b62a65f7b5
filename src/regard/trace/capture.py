"""Record what a model attends to, without changing its output."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from regard.attention.observer import Recorder, observe, unobserved
from regard.attention.record import CallRecord, Freezer, LayerInputs
from regard.core.blocks import in_functorch
from regard.core.request import Request
from regard.layers.role import ENCODER_DECODER, SELF
from regard.trace.call import Call, Inputs
from regard.trace.forward import Forward
from regard.trace.generation import Generation
from regard.trace.missed import (
    OUTSIDE,
    Missed,
    Watch,
    abbreviated,
    calling_frame,
    class_name,
    is_recomputed,
    recorded,
)
from regard.trace.modules import Modules, inner_module, is_third_party, without_fast_paths
from regard.trace.projections import ProjectionInputs, find_output, find_projections
from regard.trace.trace import Trace

NAMED = 3  # modules that a warning names


@contextmanager
def capture(model: Any = None, *, inputs: bool = False, gradients: bool = False) -> Iterator[Trace]:
    """Record every attention call of a model, by the name of its module.

    A trace keeps references to queries, keys, values, score, mask and seed (copies in inference
    mode, where torch counts no changes): no map is computed until it is read, and the output of
    the model is the same to the last bit. Calls in the same thread are recorded: those of this
    library, of torch (`nn.MultiheadAttention`, `nn.Transformer`,
    `F.scaled_dot_product_attention`), of transformers, and attention that a model writes out, a
    softmax and its product with values. Others, such as those of a compiled graph, cannot be
    recorded: a warning and `trace.missed` name the modules that look like attention, ran, and were
    not recorded, with the reason.

    >>> import regard
    >>> from torch import nn
    >>> from regard.layers import MultiHeadAttention
    >>> model = nn.Sequential(MultiHeadAttention(6, heads=2))
    >>> with regard.capture(model) as trace:
    ...     _ = model(torch.randn(3, 5, 6))
    >>> trace
    Trace of 1 attention call
      0  source × source  (3, 2, 5, 5)
    >>> trace["0"].map[0, 1, 4].shape, trace["0"].verify() < 1e-6
    (torch.Size([5]), True)

    Args:
        model: a torch module; an object with one as `.model`, such as a loaded run; or None to
            record all calls, named by the class of their module
        inputs: also keep what the projections W_Q, W_K and W_V of each layer received, for the
            step-by-step view; it takes more time and memory
        gradients: also keep the gradient of each output once backward reaches it, from which
            `call.gradient` has that of the weights, and what `regard.analysis.attribute` needs.
            Parameters may be frozen

    Yields: a trace that grows as calls happen

    Raises:
        RuntimeError: with gradients, for a call under `torch.no_grad()`
    """
    model = None if model is None else inner_module(model, "capture")
    modules = Modules(model)
    projections = ProjectionInputs(modules.by_name.values()) if inputs else None
    watch = Watch(modules.attention, modules.opaque)
    trace = Captured(CallRecorder(modules, watch, projections, gradients=gradients), modules)
    with ExitStack() as stack:
        if projections is not None:
            stack.enter_context(projections.recording())
        if gradients:
            stack.enter_context(without_fast_paths())
            if model is not None:
                trace.forward = Forward(model)
                stack.enter_context(trace.forward.recording())
        stack.enter_context(modules.observable())
        stack.enter_context(observe(trace._recorder))
        yield trace
    if not trace.has_calls:
        warnings.warn(f"capture recorded nothing: {trace.reason}", stacklevel=3)
    elif missed := trace.missed:
        warnings.warn(
            f"capture recorded only a part: {len(missed)} module(s) that look like attention ran "
            f"and were not recorded, see trace.missed: {'; '.join(abbreviated(missed, NAMED))}",
            stacklevel=3,
        )


class CallRecorder(Recorder):
    """An observer that keeps records of calls; names and maps are made when they are read."""

    def __init__(
        self,
        modules: Modules,
        watch: Watch,
        projections: ProjectionInputs | None = None,
        *,
        gradients: bool = False,
    ) -> None:
        super().__init__()
        self.modules, self.watch, self.projections = modules, watch, projections
        self.gradients, self.freeze = gradients, Freezer()
        self.generation = Generation(lambda call: modules.role(call.module) is ENCODER_DECODER)

    def notify(self, call: CallRecord) -> None:
        """Keep a call, unless it is recomputed in backward or belongs to a functorch transform."""
        if is_recomputed() or in_functorch():
            return
        recorded()
        plain = self.projections is None and not self.gradients and is_third_party(call.module)
        joins = plain or call.grows is not None
        with unobserved():
            if joins and self.generation.joins(call):
                return
        record, ids = call.kept(self.freeze), self.modules.ids
        if self.projections is not None:
            record.layer = self.projections.of(call.module, self.freeze)
        if self.gradients:
            if not torch.is_grad_enabled():
                raise RuntimeError(
                    "capture(gradients=True) met a call under torch.no_grad() or inference_mode(), "
                    "as in generate(): call the model itself with gradients enabled, "
                    "as in logits = model(ids); its parameters may be frozen"
                )
            call.keep_gradient(record)
        self.calls.append(record)
        if joins:
            self.generation.note(record)
        if ids and id(call.module) not in ids and (caller := calling_frame(ids)) is not None:
            self.watch.report(caller, OUTSIDE)


class Captured(Trace):
    """A trace of the calls of a recorder, which may still grow."""

    def __init__(self, recorder: CallRecorder, modules: Modules) -> None:
        self._recorder, self._modules = recorder, modules
        self._records: list[CallRecord] = []
        self._found: list[Call] = []
        self._seen = 0
        self._counts: dict[str, int] = {}
        self.forward: Forward | None = None
        about = {} if modules.model is None else {"model": type(modules.model).__name__}
        super().__init__([], {}, {**about, "version": sys.modules["regard"].__version__})

    @property
    def calls(self) -> list[Call]:
        """The calls so far, in order."""
        new = self._recorder.calls[self._seen :]
        self._seen += len(new)
        for place, (record, call) in enumerate(zip(self._records, self._found, strict=True)):
            if record.shape[-2:] != call.shape[-2:] and record.grows is not None:
                record.grows.grow(record)  # a generation went on
                self._found[place] = self._call(record, call.name)
        for record in new:
            name = None if record.discarded else self._name(record)
            if record.grows is not None:
                record.grows.grow(record)
            if name is not None:
                self._records.append(record)
                self._found.append(self._call(record, name))
        return self._found

    @calls.setter
    def calls(self, calls: list[Call]) -> None:
        self._found = calls

    def differentiate(self, target: Tensor) -> Tensor | None:
        """Set the gradients of all calls to those of a scalar; no parameter gets one.

        Returns: the gradient of the embedded input, (B, N, D); None if there is none

        Raises:
            ValueError: if it is no scalar, or was computed without gradients
        """
        if target.numel() != 1 or not target.requires_grad:
            raise ValueError(
                f"the target should be a scalar of the model's output, with its graph, got "
                f"{tuple(target.shape)}, requires_grad={target.requires_grad}; call the model with "
                "gradients enabled in the block of capture(model, gradients=True)"
            )
        records = [each for each in self._recorder.calls if each.attached is not None]
        if not records:
            raise ValueError(
                "this trace has no gradients: record it with capture(model, gradients=True)"
            )
        for record in records:
            record.output_gradient = None
        tensors: list[Tensor] = [each.attached for each in records if each.attached is not None]
        embedded = None if self.forward is None else self.forward.embedded
        if embedded is not None:
            tensors.append(embedded)
        found = torch.autograd.grad(target, tensors, retain_graph=True, allow_unused=True)
        for record in records:
            if record.output_gradient is None and record.output is not None:  # not on the way
                record.output_gradient = torch.zeros_like(record.output)
        return None if embedded is None else found[-1]

    @property
    def missed(self) -> list[Missed]:
        """The modules so far that look like attention, ran, and were not recorded."""
        recorded = {id(each.module) for each in self._recorder.calls if not each.discarded}
        return [
            Missed(self._modules.name(module) or class_name(module), class_name(module), reason)
            for module, reason in self._recorder.watch.missed(recorded)
        ]

    @missed.setter
    def missed(self, missed: list[Missed]) -> None: ...

    @property
    def has_calls(self) -> bool:
        """Whether there is a call of the model."""
        ids = self._modules.ids
        return any(not ids or id(each.module) in ids for each in self._recorder.calls)

    @property
    def reason(self) -> str:
        """The known reasons why no call was recorded, and the modules that were missed."""
        missed = "; ".join(abbreviated(self.missed, NAMED))
        return f"{self._reason}{f'; see trace.missed: {missed}' if missed else ''}"

    @property
    def _reason(self) -> str:
        if self._modules.is_compiled:
            return (
                "the model is compiled, and calls inside a compiled graph are not seen; run it "
                'under torch.compiler.set_stance("force_eager")'
            )
        if self._recorder.calls:
            return (
                f"{len(self._recorder.calls)} attention calls came from outside the forward() "
                "of the model's modules; capture() without a model records all"
            )
        if self._modules.third_party:
            return (
                "no call of F.scaled_dot_product_attention, nn.MultiheadAttention, transformers' "
                "attention interface or regard.attend was made in this block and thread, and no "
                "softmax became the weights of values"
            )
        return "no attention was computed in this block and thread; was the model called in it?"

    def _name(self, record: CallRecord) -> str | None:
        """The name of the call; None if it is of another model."""
        name = self._modules.name(record.module)
        if name is None and self._modules.model is None:
            name = "attend" if isinstance(record.source, Request) else record.path
        if name is None:
            return None
        name = f"{name}.{record.part}" if record.part else name
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def _call(self, record: CallRecord, name: str) -> Call:
        role = self._modules.role(record.module)
        return Call(
            name,
            record.by_head(),
            role.queries,
            role.keys,
            ({} if role is SELF else {"role": role.name}) | record.provenance,
            None if record.source is None else lambda: _inputs(record),
            lambda: record.error,
            record.gradient_by_head,
            record.output_by_head,
        )

    def __repr__(self) -> str:
        return super().__repr__() if self.calls else f"Trace of no attention calls: {self.reason}"


def _inputs(record: CallRecord) -> Inputs:
    request, layer = record.request, _layer(record)
    assert request is not None
    return Inputs(
        request.query,
        request.key,
        request.value,
        request.score,
        request.mask,
        request.bias,
        request.normalize,
        (layer and layer.output) or find_output(record.module),
        layer,
        find_projections(record.module) != () or layer is not None,
    )


def _layer(record: CallRecord) -> LayerInputs | None:
    """The inputs of the layer, before its projections; None if they were not recorded."""
    if record.layer is not None or record.layer_inputs is None:
        return record.layer
    with torch.no_grad():
        query, key, value = (each.detach() for each in record.layer_inputs())
    return LayerInputs((query, key, value))
