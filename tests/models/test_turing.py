import pytest
import torch

from regard.models.turing import LongShortTermMemory, NeuralTuringMachine


def machine(**options) -> NeuralTuringMachine:
    torch.manual_seed(0)
    return NeuralTuringMachine(3, 5, **{"hidden": 7, "slots": 11, "width": 2} | options)


def test_a_step_is_controller_then_memory_then_output_of_both() -> None:
    model = machine(reads=2).double()
    x = torch.randn(3, 2, 3, dtype=torch.float64)
    state = model.memory.start(3)
    h, c = model.controller(torch.cat((x[:, 0], state.read()), -1))  # the first state is zero
    read, state = model.memory.step(h, state)
    first = model.output(torch.cat((h, read), -1))
    h, c = model.controller(torch.cat((x[:, 1], read), -1), (h, c))
    read, state = model.memory.step(h, state)
    second = model.output(torch.cat((h, read), -1))
    output = model(x, return_map=True)
    torch.testing.assert_close(output.logits, torch.stack((first, second), 1))
    torch.testing.assert_close(output.read_weights[:, 1], state.read_weights)
    torch.testing.assert_close(output.write_weights[:, 1], state.write_weights)
    torch.testing.assert_close(model(x).logits, output.logits)


@pytest.mark.parametrize("kind", [machine, lambda: LongShortTermMemory(3, 5, hidden=7, layers=2)])
def test_nothing_is_known_before_it_is_heard(kind) -> None:
    model = kind()
    x = torch.randn(2, 13, 3)
    later = x.clone()
    later[:, 7:] += 1.0
    before, after = model(x).logits, model(later).logits
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_gradients_reach_every_parameter_and_the_first_input() -> None:
    model = machine()
    x = torch.randn(2, 5, 3, requires_grad=True)
    model(x).logits[:, -1].sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
    assert x.grad[:, 0].abs().sum() > 0


def test_more_slots_are_no_more_parameters() -> None:
    small, large = machine(), machine(slots=101)
    large.load_state_dict(small.state_dict())
    assert large(torch.randn(2, 5, 3), return_map=True).read_weights.shape == (2, 5, 1, 101)


def test_an_lstm_has_no_weights_to_show() -> None:
    output = LongShortTermMemory(3, 5, hidden=7)(torch.zeros(2, 3, 3), return_map=True)
    assert output.read_weights is None
    assert output.write_weights is None


def test_bad_inputs_raises_a_helpful_error() -> None:
    for model in (machine(), LongShortTermMemory(3, 5)):
        for x in (torch.zeros(2, 7, 4), torch.zeros(7, 3), torch.zeros(2, 0, 3)):
            with pytest.raises(ValueError, match=r"\(sequences, steps, 3\) with a step or more"):
                model(x)
