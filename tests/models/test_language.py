"""The decoder-only language model."""

import copy

import pytest
import torch
from torch import nn

from regard.models import LanguageModel
from tests.recorded import recorded, step_weights

B, T, VOCABULARY = 3, 7, 13
SIZES = {"dim": 12, "heads": 3, "hidden": 11, "layers": 2}
POSITIONS = ["sinusoidal", "learned", "rotary", "alibi", "none"]


def model_of(**options) -> LanguageModel:
    torch.manual_seed(9)
    return LanguageModel(VOCABULARY, **(SIZES | options)).double().eval()


def ids() -> torch.Tensor:
    return torch.randint(VOCABULARY, (B, T), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_steps_give_what_the_whole_gives(position, norm):
    model = model_of(position=position, norm=norm, max_length=T)
    features, maps = recorded(model, lambda: model(ids()))
    torch.testing.assert_close(model(ids()), features)
    state = model.start(B)
    rows = ids()
    order = torch.tensor([2, 0, 0])
    for t in range(T):
        (feature, state), found = step_weights(model, lambda: model.step(rows[:, t], state))  # noqa: B023
        torch.testing.assert_close(feature, model(rows)[:, t])
        assert found.keys() == maps.keys()
        for name, weights in found.items():
            assert weights.shape == (B, 3, t + 1)
            if t < 3:  # before the beams change places
                torch.testing.assert_close(weights, maps[name][..., t, : t + 1])
        if t == 2:
            state, rows = state.reorder(order), rows[order]
    assert set(maps) == {"decoder.layers.0.attention", "decoder.layers.1.attention"}


def test_it_is_torch_with_a_causal_mask():
    layer = nn.TransformerEncoderLayer(12, 3, 11, batch_first=True, norm_first=True, dropout=0.0)
    theirs = nn.TransformerEncoder(
        layer.double(), 2, nn.LayerNorm(12).double(), enable_nested_tensor=False
    )
    model = model_of(position="sinusoidal")
    model.decoder = type(model.decoder).from_torch(theirs)
    x = model.position(model.embedding(ids()))
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    torch.testing.assert_close(model(ids()), theirs(x, mask=later))


def test_no_position_attends_to_a_later_one():
    model = model_of()
    features = model(ids())
    changed = ids()
    changed[:, 4:] = (changed[:, 4:] + 1) % VOCABULARY
    torch.testing.assert_close(model(changed)[:, :4], features[:, :4])
    assert not torch.allclose(model(changed)[:, 4], features[:, 4])


def test_the_output_is_tied_by_default():
    model = model_of()
    assert model.output.weight is model.embedding.weight
    free = model_of(tie=False)
    assert free.output.weight is not free.embedding.weight
    other = copy.deepcopy(model)
    assert other.output.weight is other.embedding.weight
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(ids()), model(ids()))
