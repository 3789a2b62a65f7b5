"""`attend_linear` with a decay and a delta rule: masks, maps, observers and wrong shapes."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import regard
from regard.paths.gated_delta import DeltaInputs, recurrent

B, H, N, D, DV = 2, 3, 11, 5, 7


@pytest.fixture
def given() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    key = torch.randn(B, H, N, D, dtype=torch.float64)
    return {
        "query": torch.randn(B, H, N, D, dtype=torch.float64),
        "key": key / key.norm(dim=-1, keepdim=True),
        "value": torch.randn(B, H, N, DV, dtype=torch.float64),
        "log_decay": -torch.rand(B, H, N, D, dtype=torch.float64),
        "beta": torch.rand(B, H, N, 1, dtype=torch.float64),
    }


def test_the_output_is_that_of_the_recurrence(given):
    expected, _ = recurrent(DeltaInputs(*given.values()))
    torch.testing.assert_close(regard.attend_linear(**given, causal=True), expected)


def test_the_map_makes_the_output_and_is_recorded(given):
    with regard.capture() as trace:
        output, map = regard.attend_linear(**given, causal=True, return_map=True)
    torch.testing.assert_close(map.dense() @ given["value"], output)
    torch.testing.assert_close(map[..., 3:5, :], map.dense()[..., 3:5, :])
    torch.testing.assert_close(trace.calls[0].map.dense(), map.dense())


class LargestStorage(TorchDispatchMode):
    """The bytes of the largest tensor that is made."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(results):
            if isinstance(tensor, torch.Tensor):
                self.size = max(self.size, tensor.untyped_storage().nbytes())
        return results


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"causal": True, "log_decay": -0.01}, {"causal": True, "beta": 0.5}],
    ids=["efficient", "causal", "retention", "delta"],
)
def test_rows_of_a_map_are_computed_without_the_rest_of_it(options):
    torch.manual_seed(0)
    length = 2003
    query, key = torch.randn(length, D), torch.randn(length, D) / 9
    if "beta" in options:
        options = {**options, "beta": torch.full((length, 1), options["beta"])}
    _, map = regard.attend_linear(query, key, query, **options, return_map=True)
    with LargestStorage() as largest:
        rows = map[1000:1007]
    assert largest.size < 4 * length * 70  # as wide as one chunk; the whole map: length · length
    torch.testing.assert_close(rows, map.dense()[1000:1007])
    assert not options.get("causal") or not rows[0, 1001:].any()


def test_hidden_keys_are_as_if_they_were_not_there(given):
    """Also if they are NaN: the other outputs are those of a shorter sequence."""
    real = torch.tensor([0, 1, 3, 4, 7, 10])
    mask = torch.zeros(N, dtype=torch.bool).index_fill(0, real, True)
    short = {name: x[..., real, :] for name, x in given.items()}
    expected = regard.attend_linear(**short, causal=True)
    for name in ("key", "value"):
        given[name] = given[name].masked_fill(~mask[:, None], torch.nan)
    output = regard.attend_linear(**given, causal=True, mask=mask)
    torch.testing.assert_close(output[..., real, :], expected)


def test_a_number_is_a_decay_for_all_positions(given):
    del given["log_decay"], given["beta"]
    wide = torch.full((N, 1), -0.3, dtype=torch.float64)
    torch.testing.assert_close(
        regard.attend_linear(**given, causal=True, log_decay=-0.3),
        regard.attend_linear(**given, causal=True, log_decay=wide),
    )


def test_half_precision_is_computed_in_single(given):
    half = {name: x.bfloat16() for name, x in given.items()}
    expected = regard.attend_linear(**{n: x.float() for n, x in half.items()}, causal=True)
    output = regard.attend_linear(**half, causal=True)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output, expected.bfloat16())


def test_wrong_arguments_end_in_one_sentence(given):
    empty = given["query"][..., :0]
    with pytest.raises(
        ValueError, match=r"the same width, of 1 or more, got query \(2, 3, 11, 0\)"
    ):
        regard.attend_linear(empty, empty, given["value"])
    with pytest.raises(ValueError, match="needs causal=True and as many queries as keys"):
        regard.attend_linear(**given)
    with pytest.raises(ValueError, match=r"log_decay should be \(\.\.\., 11, 1\) or"):
        regard.attend_linear(**{**given, "log_decay": torch.zeros(N, 4)}, causal=True)
    with pytest.raises(ValueError, match=r"beta should be \(\.\.\., 11, 1\) for keys"):
        regard.attend_linear(**{**given, "beta": torch.zeros(B, H, N)}, causal=True)
    with pytest.raises(ValueError, match=r"beta \(4, 11, 1\) does not broadcast"):
        regard.attend_linear(**{**given, "beta": torch.zeros(4, N, 1)}, causal=True)
