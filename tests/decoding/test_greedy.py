"""Greedy search: the most likely token at each step, for every model, and the maps it made."""

import pytest
import torch

from regard.data.batch import BOS, EOS, PAD
from regard.decoding import Hypothesis, Limits, greedy
from tests.decoding.every_model import (
    EVERY,
    MODELS,
    TARGET,
    close,
    log_probability,
    model_of,
    sources,
)
from tests.recorded import recorded

LENGTHS = [7, 3, 5, 1, 2]
SHORT = Limits(ratio=1.0, extra=4)


def longhand(model, source, limit, prefix=(), forbid=()):
    """Greedy search of one sentence by whole passes, without any state."""
    model.eval()
    memory, tokens = model.encode(source[None]), []
    while len(tokens) < limit and (not tokens or tokens[-1] != EOS):
        logits = model.output(model.decode(memory, torch.tensor([[BOS, *tokens]])))[0, -1]
        logits[[PAD, BOS, *forbid]] = -torch.inf
        tokens.append(prefix[len(tokens)] if len(tokens) < len(prefix) else int(logits.argmax()))
    return tuple(tokens)


@EVERY
def test_the_steps_give_what_whole_passes_give(name):
    model = model_of(name)
    source, lengths = sources(LENGTHS)
    found = greedy(model, source, lengths, limits=SHORT)
    expected = [longhand(model, s[:n], n + 4) for s, n in zip(source, LENGTHS, strict=True)]
    assert [hypothesis.tokens for hypothesis in found] == expected


@EVERY
def test_the_score_is_the_models_own_log_probability(name):
    model = model_of(name)
    source, lengths = sources(LENGTHS)
    for row, n, found in zip(source, LENGTHS, greedy(model, source, lengths), strict=True):
        assert close(found.score, log_probability(model, row[:n], found.tokens))


@EVERY
def test_the_maps_are_those_of_the_emitted_tokens_teacher_forced(name):
    model = model_of(name).eval()
    source, lengths = sources(LENGTHS)
    found = greedy(model, source, lengths, limits=SHORT, return_map=True)
    for row, n, hypothesis in zip(source, LENGTHS, found, strict=True):
        inputs = torch.tensor([[BOS, *hypothesis.tokens[:-1]]])
        memory = model.encode(row[None, :n])
        _, maps = recorded(model, lambda: model.decode(memory, inputs))  # noqa: B023
        expected = {k: m for k, m in maps.items() if "layers" not in k or "memory" in k}
        assert hypothesis.maps.keys() == expected.keys()
        for key, map in hypothesis.maps.items():
            torch.testing.assert_close(map, expected[key][0])
            assert not map.is_inference()


@EVERY
def test_the_rest_of_the_batch_changes_nothing(name):
    model = model_of(name)
    source, lengths = sources(LENGTHS)
    together = greedy(model, source, lengths, limits=SHORT, return_map=True)
    for number, n in enumerate(LENGTHS):
        (alone,) = greedy(model, source[number : number + 1, :n], limits=SHORT, return_map=True)
        assert alone.tokens == together[number].tokens
        assert close(alone.score, together[number].score)
        for key, map in alone.maps.items():
            torch.testing.assert_close(map, together[number].maps[key])


@pytest.mark.parametrize("return_map", [False, True])
def test_an_empty_source_becomes_an_empty_output(return_map):
    model = model_of("bahdanau")
    source, _ = sources([3, 3, 3])
    found = greedy(model, source, torch.tensor([0, 3, 0]), return_map=return_map)
    nothing = Hypothesis((), 0.0, {} if return_map else None)
    assert found[0] == found[2] == nothing
    assert found[1].tokens
    assert greedy(model, source, torch.tensor([0, 0, 0]), return_map=return_map) == [nothing] * 3
    assert greedy(model, source[:, :0], return_map=return_map) == [nothing] * 3


@EVERY
def test_a_model_that_never_ends_is_stopped_at_the_limit(name):
    model = model_of(name, ends=-1e9)
    source, lengths = sources([5, 2])
    found = greedy(model, source, lengths, limits=Limits(ratio=2.0, extra=1))
    assert [len(hypothesis.tokens) for hypothesis in found] == [11, 5]
    assert not any(hypothesis.finished for hypothesis in found)


def test_learned_positions_are_a_limit_of_their_own():
    model = model_of("transformer, learned", ends=-1e9)
    (found,) = greedy(model, *sources([5]), limits=Limits(ratio=0.0, extra=1000))
    assert len(found.tokens) == 17


@pytest.mark.parametrize("name", ["luong, fed", "transformer"])
def test_a_prefix_is_respected_and_counted(name):
    model = model_of(name)
    source, lengths = sources([5, 3, 4])
    prefix = [[7, 3], [], [9, 9, 5]]
    found = greedy(model, source, lengths, prefix=prefix, limits=SHORT)
    for row, n, own, hypothesis in zip(source, [5, 3, 4], prefix, found, strict=True):
        assert hypothesis.tokens == longhand(model, row[:n], n + 4, own)
        assert close(hypothesis.score, log_probability(model, row[:n], hypothesis.tokens))


def test_forbidden_tokens_are_not_emitted():
    model = model_of("luong", ends=-3.0)
    source, lengths = sources(LENGTHS)
    free = greedy(model, source, lengths, limits=SHORT)
    often = max(range(3, TARGET), key=[t for h in free for t in h.tokens].count)
    found = greedy(model, source, lengths, limits=SHORT, forbid=[often])
    assert all(often not in hypothesis.tokens for hypothesis in found)
    assert found[0].tokens == longhand(model, source[0], 11, forbid=[often])


def test_padding_and_begin_are_never_emitted():
    model = model_of("luong")
    with torch.no_grad():
        model.output.bias[[PAD, BOS]] = 50.0
    found = greedy(model, *sources(LENGTHS), limits=SHORT)
    assert not {PAD, BOS} & {token for hypothesis in found for token in hypothesis.tokens}


def test_a_model_in_train_mode_is_decoded_without_dropout_and_left_in_it():
    model = model_of("transformer").train()
    source, lengths = sources(LENGTHS)
    once, again = (greedy(model, source, lengths, limits=SHORT) for _ in range(2))
    assert once == again
    assert model.training
    assert all(part.training for part in model.modules())


def test_frames_are_decoded_like_tokens():
    from regard.models import build

    torch.manual_seed(2)
    model = build("luong", frames=3, target_vocabulary=TARGET, embedding=5, hidden=7)
    found = greedy(model, torch.randn(2, 5, 3), torch.tensor([5, 2]), limits=SHORT)
    assert all(hypothesis.tokens for hypothesis in found)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"prefix": [[5]]}, "2 lists of ids"),
        ({"prefix": [[5], [EOS]]}, "no padding, begin or end token, got 2"),
        ({"prefix": [[5], [TARGET]]}, f"below {TARGET}"),
        ({"prefix": [[5] * 9, []], "limits": Limits(1.0, 1)}, "more than the limit of 6"),
        ({"forbid": [EOS]}, "may not contain the end token"),
        ({"forbid": [TARGET]}, f"from 0 to {TARGET - 1}"),
        ({"limits": Limits(ratio=0.0, extra=0)}, "allow 1 token"),
    ],
)
def test_bad_arguments_raise_a_helpful_error(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        greedy(model_of("luong"), *sources([5, 3]), **options)


def test_every_kind_of_model_is_tried():
    from regard.models import KINDS

    assert {kind for kind, _ in MODELS.values()} == set(KINDS) - {"language"}


def test_the_models_of_these_tests_end_early_and_late():
    found = [h for name in MODELS for h in greedy(model_of(name), *sources(LENGTHS), limits=SHORT)]
    ended = [hypothesis.finished for hypothesis in found]
    assert 10 < sum(ended) < len(ended) - 10
    assert len({hypothesis.tokens for hypothesis in found}) > len(found) / 2
