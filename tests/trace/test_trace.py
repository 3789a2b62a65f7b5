"""A trace holds maps by name, picks examples, heads and rows, and labels them."""

import pytest
import torch

from regard.models import build
from regard.trace import Call, Trace, capture
from regard.visual.terminal import show


def weights(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).softmax(-1)


def test_a_trace_of_maps_gives_each_back_by_name():
    one, two = weights(2, 3, 5), weights(3, 5)
    trace = Trace.of_maps({"one": one, "two": two}, queries=list("abc"), keys=list("vwxyz"))
    assert trace.names == ["one", "two"]
    assert torch.equal(trace["one"].map.dense(), one)
    assert torch.equal(trace["two"].map[0], two)
    assert trace["two"].shape == (1, 3, 5)
    assert trace.labels(trace["one"]) == (list("abc"), list("vwxyz"))


def test_without_keys_the_queries_attend_to_themselves():
    trace = Trace.of_maps({"self": weights(3, 3)}, queries=list("abc"))
    assert trace.labels(trace["self"]) == (list("abc"), list("abc"))


def test_an_unknown_name_is_answered_with_the_nearest():
    trace = Trace.of_maps({"cross": weights(3, 3)}, queries=list("abc"))
    with pytest.raises(KeyError, match="did you mean 'cross'"):
        trace["corss"]


def test_calls_are_found_by_place_as_in_a_list():
    trace = Trace.of_maps({"one": weights(3, 3), "two": weights(3, 3)}, queries=list("abc"))
    assert (trace[0].name, trace[-1].name) == ("one", "two")
    with pytest.raises(IndexError):
        trace[2]


def test_labels_that_do_not_fit_are_an_error():
    with pytest.raises(ValueError, match="2 target tokens"):
        Trace.of_maps({"cross": weights(3, 5)}, queries=["a", "b"], keys=list("vwxyz"))


def test_a_map_of_one_row_of_numbers_is_an_error():
    with pytest.raises(ValueError, match=r"should be \(heads, M, N\)"):
        Call("cross", weights(5))


def test_one_example_of_a_batch_loses_its_padding():
    whole = weights(2, 3, 5, 7)
    trace = Trace([Call("cross", whole)]).label(
        target=[list("abcde"), list("fgh")], source=[list("stuvwxy"), list("st")]
    )
    assert trace.batch == 2
    one = trace.of(1)
    assert one.batch is None
    assert torch.equal(one["cross"].map.dense(), whole[1, :, :3, :2])
    assert one.labels(one["cross"]) == (list("fgh"), list("st"))
    assert torch.equal(trace.of(0)["cross"].map.dense(), whole[0])
    with pytest.raises(IndexError, match="example 2 of a batch of 2"):
        trace["cross"].of(2)


def test_selected_layers_heads_and_rows_keep_their_numbers_and_labels():
    whole = weights(5, 7, 3)
    maps = {"encoder.0": weights(5, 7, 3), "decoder.0": whole}
    trace = Trace.of_maps(maps, queries=list("abcdefg"), keys=list("xyz"))
    part = trace.select("decoder.*", heads=[3, 1], rows=slice(2, 6, 2))
    assert part.names == ["decoder.0"]
    (call,) = part
    assert torch.equal(call.map.dense(), whole[[3, 1], 2:6:2])
    assert call.provenance == {"heads": [3, 1], "rows": [2, 4]}
    assert part.labels(call)[0] == ["c", "e"]
    again = part.select(heads=[1]).calls[0]
    assert again.provenance["heads"] == [1]
    assert torch.equal(again.map.dense(), whole[[1], 2:6:2])


def test_a_selection_of_nothing_is_an_error():
    trace = Trace.of_maps({"cross": weights(2, 3, 3)}, queries=list("abc"))
    with pytest.raises(KeyError, match="no call is named like"):
        trace.select("decoder.*")
    with pytest.raises(ValueError, match="heads of 'cross' are 0 to 1"):
        trace.select(heads=[2])


def test_the_attentions_of_a_transformer_are_selected_by_their_names():
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9, "dim": 8, "heads": 2, "hidden": 8}
    model = build("transformer", **sizes, layers=2)
    with capture(model) as trace:
        model(torch.ones(1, 4, dtype=torch.long), None, torch.ones(1, 3, dtype=torch.long))
    for role, name in (
        ("encoder self-attention", "encoder.layers.{}.attention"),
        ("masked decoder self-attention", "decoder.layers.{}.attention"),
        ("encoder-decoder attention", "decoder.layers.{}.memory_attention"),
    ):
        assert trace.select(role).names == [name.format(layer) for layer in (0, 1)]
    assert "encoder–decoder attention" in show(trace.of(0), width=72)
