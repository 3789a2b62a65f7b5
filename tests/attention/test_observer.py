"""Observers are notified of calls in their own thread, in order, until their block ends."""

import threading
from dataclasses import replace

import pytest
import torch

import regard
from regard.attention import observer
from regard.attention.dispatch import Computation, dispatch, map_of
from regard.attention.record import CallRecord
from regard.core.mask import causal
from regard.core.normalize import softmax
from regard.core.request import make_request

X = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(1))


class Listener:
    """Keeps the calls; with a mask it also edits requests."""

    def __init__(self, mask=None) -> None:
        self.mask, self.edits = mask, mask is not None
        self.calls: list[CallRecord] = []

    def edit(self, request):
        return replace(request, mask=self.mask)

    def notify(self, call) -> None:
        self.calls.append(call)


def test_there_are_no_observers_by_default():
    assert observer.observing == 0
    assert observer.observers() == ()


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (lambda: regard.attend(X, X, X), "reference"),
        (lambda: regard.attend(*[X.repeat(1, 11, 1)[:, None]] * 3), "fused"),
        (lambda: regard.attend(X, X, X, normalize="sparsemax", path="blockwise"), "blockwise"),
        (lambda: regard.attend_features(X, X, X), "features"),
        (lambda: regard.attend_linear(X, X, X), "linear"),
    ],
)
def test_a_call_has_the_map_that_made_its_output(call, path):
    listener = Listener()
    before = call()
    with observer.observe(listener):
        output = call()
    assert torch.equal(before, output)
    (call,) = listener.calls
    assert call.path == path
    assert call.output is output
    weights = call.map.dense()
    assert weights.shape == call.shape
    request = call.request
    made = call.combine(request, weights, slice(0, weights.shape[-2]))
    assert torch.allclose(made, output, atol=1e-5)


def test_an_edit_changes_the_request_and_later_observers_receive_the_edited_one():
    first, second = Listener(causal()), Listener()
    with observer.observe(first), observer.observe(second):
        output = regard.attend(X, X, X)
        features = regard.attend_features(X, X, X)
    assert torch.equal(output, regard.attend(X, X, X, mask=causal()))
    assert torch.equal(features, regard.attend_features(X, X, X, mask=causal()))
    assert [call.request.mask for call in second.calls] == [first.mask] * 2


def test_the_parts_of_a_call_are_not_observed():
    listener = Listener()
    request = make_request(
        X, X, X, score=regard.Dot(), mask=None, bias=None, normalize=softmax, dropout=0.0
    )

    def compute(request):
        return regard.attend(request.query, request.key, request.value, score="dot")

    with observer.observe(listener):
        dispatch(request, Computation("whole", compute, map_of, None))
    assert [call.path for call in listener.calls] == ["whole"]


def test_other_threads_are_not_observed():
    seen: list[tuple] = []
    with observer.observe(Listener()):
        thread = threading.Thread(target=lambda: seen.append(observer.observers()))
        thread.start()
        thread.join()
        assert len(observer.observers()) == 1
    assert seen == [()]


def test_observers_are_removed_after_an_error():
    listener = Listener()
    with pytest.raises(TypeError, match="query must be a tensor"), observer.observe(listener):
        regard.attend([1.0], X, X)
    assert observer.observing == 0
    regard.attend(X, X, X)
    assert listener.calls == []


def test_a_compiled_call_is_not_observed_and_gives_the_same():
    compiled = torch.compile(lambda x: regard.attend(x, x, x), backend="eager")
    expected = compiled(X)
    listener = Listener()
    with observer.observe(listener):
        found = compiled(X)
    assert torch.allclose(found, expected)
    assert listener.calls == []


def test_calls_name_the_module_that_made_them_in_forward_and_in_steps():
    outer = regard.layers.MultiHeadAttention(6, heads=2)
    x = torch.randn(2, 5, 6)
    with observer.record() as calls:
        outer(x)
        outer.step(x[:, :1], outer.start(2))
        regard.attend(x, x, x)
    assert [call.module for call in calls] == [outer, outer, None]
