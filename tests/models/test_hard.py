import pytest
import torch

from regard.models.hard import ESTIMATORS, HardReader

SYMBOLS = torch.tensor([[1, 2, 3, 4, 5], [6, 5, 4, 0, 0]])
MARKS = torch.tensor([[2, 1, 0, 1, 2], [0, 1, 1, 2, 2]])
LENGTHS = torch.tensor([5, 3])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_answer_comes_from_the_chosen_position_alone(estimator: str) -> None:
    torch.manual_seed(0)
    reader = HardReader(7, 3, dim=11, estimator=estimator)
    for mode in (True, False):
        found = reader.train(mode)(SYMBOLS, MARKS, LENGTHS)
        symbol = SYMBOLS.gather(1, found.chosen.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(
            found.logits, reader.output(reader.symbols(symbol.unsqueeze(1)).squeeze(1))
        )
        assert (found.chosen < LENGTHS).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_in_eval_mode_the_most_likely_position_is_chosen(estimator: str) -> None:
    torch.manual_seed(0)
    reader = HardReader(7, 3, dim=11, estimator=estimator).eval()
    found = reader(SYMBOLS, MARKS, LENGTHS)
    likely = reader.probabilities(SYMBOLS, MARKS, LENGTHS)
    torch.testing.assert_close(likely.sum(1), torch.ones(2))
    assert torch.equal(likely.argmax(1), found.chosen)
    torch.testing.assert_close(likely.amax(1).log(), found.log_probability)


@pytest.mark.parametrize("estimator", ["straight_through", "gumbel"])
def test_the_loss_reaches_the_query_through_the_choice(estimator: str) -> None:
    reader = HardReader(7, 3, dim=11, estimator=estimator)
    reader(SYMBOLS, MARKS, LENGTHS).logits.square().sum().backward()
    assert reader.query.grad.abs().sum() > 0


def test_a_sampled_choice_passes_no_gradient_but_its_probability_does() -> None:
    reader = HardReader(7, 3, dim=11, estimator="reinforce")
    found = reader(SYMBOLS, MARKS, LENGTHS)
    found.logits.square().sum().backward(retain_graph=True)
    assert reader.query.grad is None
    found.log_probability.sum().backward()
    assert reader.query.grad.abs().sum() > 0


def test_bad_input_raises_a_helpful_error() -> None:
    with pytest.raises(ValueError, match="unknown estimator 'gumble'; did you mean 'gumbel'"):
        HardReader(7, 3, estimator="gumble")
    with pytest.raises(ValueError, match=r"both be \(rows, N\), got \(2, 5\) and \(2, 3\)"):
        HardReader(7, 3)(SYMBOLS, MARKS[:, :3], LENGTHS)
