"""Ablation measures what the output loses; the parts are hidden longhand beside it."""

import pytest
import torch

import regard
from regard.analysis import (
    Pairs,
    ablate,
    head_importance,
    token_log_probabilities,
    word_importance,
)
from regard.models import build

SOURCE = torch.tensor([[5, 7, 11, 3, 2], [4, 6, 2, 0, 0]])
LENGTHS = torch.tensor([5, 3])
TARGET = torch.tensor([[1, 9, 8, 2], [1, 5, 2, 0]])
PAIRS = Pairs(SOURCE, LENGTHS, TARGET, torch.tensor([4, 3]))


def model_of(kind: str):
    torch.manual_seed(3)
    sizes: dict = {"source_vocabulary": 13, "target_vocabulary": 11, "hidden": 6}
    if kind == "transformer":
        sizes |= {"dim": 12, "heads": 3, "layers": 2}
    else:
        sizes |= {"embedding": 5}
    model = build(kind, **sizes).eval()
    with torch.no_grad():  # livelier than a fresh model
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model


def test_log_probabilities_are_those_of_the_next_tokens():
    model = model_of("transformer")
    with torch.no_grad():
        found = token_log_probabilities(model, PAIRS)
        logits = model.output(model(SOURCE, LENGTHS, TARGET[:, :-1]))
    assert found.shape == (2, 3)
    expected = logits[0, 1].log_softmax(-1)[8]
    assert float(found[0, 1]) == pytest.approx(float(expected), abs=1e-6)
    assert float(found[1, 2]) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "luong", "bahdanau", "gnmt"])
def test_a_hidden_word_costs_what_a_shorter_source_costs(kind):
    model = model_of(kind)
    cross = "decoder*memory_attention" if kind == "transformer" else "decoder*"
    change = ablate(model, PAIRS, cross, keys=[4])
    with torch.no_grad():
        memory = model.encode(SOURCE, LENGTHS)
        short = memory._replace(lengths=torch.tensor([4, 3]))
        logits = model.output(model.decode(short, TARGET[:, :-1])).log_softmax(-1)
        after = logits.gather(-1, TARGET[:, 1:, None])[..., 0]
        before = token_log_probabilities(model, PAIRS)
    expected = (after - before)[0, :3].sum()
    assert float(change[0]) == pytest.approx(float(expected), abs=1e-5)
    assert float(change[1]) == pytest.approx(0.0, abs=1e-6)


def test_heads_are_sorted_by_what_they_are_worth():
    model = model_of("transformer")
    found = head_importance(model, PAIRS, "decoder.*.memory_attention")
    assert len(found) == 6
    assert [each.change for each in found] == sorted(each.change for each in found)
    first = found[0]
    assert first.change == pytest.approx(
        float(ablate(model, PAIRS, first.name, heads=[first.head]).mean())
    )


def test_every_source_word_is_hidden_in_turn():
    model = model_of("luong")
    found = word_importance(model, PAIRS)
    assert found.shape == (2, 5)
    assert torch.allclose(found[:, 2], ablate(model, PAIRS, "decoder.*", keys=[2]))
    assert found[1, 3:].abs().max() < 1e-6
    with pytest.raises(ValueError, match="no attention from target to source"):
        word_importance(build("plain", source_vocabulary=13, target_vocabulary=11), PAIRS)


def test_a_model_is_left_as_it_was():
    model = model_of("transformer")
    with torch.no_grad():
        before = token_log_probabilities(model, PAIRS)
        ablate(model, PAIRS, heads=[0])
        assert torch.equal(before, token_log_probabilities(model, PAIRS))
    with pytest.warns(UserWarning, match="recorded nothing"), regard.capture(model) as trace:
        pass
    assert len(trace) == 0


def test_any_model_is_ablated_by_a_function_that_runs_it():
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    torch.manual_seed(2)
    sizes = {"vocab_size": 29, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 32}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()

    def logits():
        return model(SOURCE).logits[:, -1, 7]

    found = head_importance(model, logits)
    assert len(found) == 6
    worst = found[0]
    weight = model.get_submodule(worst.name).c_proj.weight
    with torch.no_grad():
        before = logits()
        weight[4 * worst.head : 4 * worst.head + 4] = 0.0  # W_O of the head
        expected = (logits() - before).mean()
    assert worst.change == pytest.approx(float(expected), abs=1e-5)
