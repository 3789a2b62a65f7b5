"""What a score holds while it works is measured, not guessed."""

import torch

from regard.core.normalize import softmax
from regard.core.request import make_request
from regard.paths.blockwise import score_memory


def request(score, query=(2, 11, 5), keys=7):
    q, k = torch.randn(*query), torch.randn(query[0], keys, query[-1])
    return make_request(q, k, k, score=score, mask=None, bias=None, normalize=softmax, dropout=0.0)


def test_a_score_of_pairs_alone_grows_by_its_scores():
    assert score_memory(request(lambda q, k: q @ k.mT)) == 2 * 7


def test_a_broadcast_score_grows_by_its_largest_intermediate():
    assert score_memory(
        request(lambda q, k: -(q.unsqueeze(-2) - k.unsqueeze(-3)).abs().sum(-1))
    ) == (2 * 7 * 5)


def test_what_belongs_to_the_keys_does_not_count():
    def score(q, k):
        return q @ (k.repeat(1, 1, 50)[..., :5]).mT

    assert score_memory(request(score)) == 2 * 7


def test_a_score_that_does_something_else_with_two_rows_is_feared():
    def score(q, k):
        return (q @ k.mT) if q.shape[-2] == 1 else (q @ k.mT).exp().log()

    assert score_memory(request(score)) == 2 * 7 * 5


def test_trying_a_score_leaves_the_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    dropping = request(lambda q, k: torch.nn.functional.dropout(q, 0.5) @ k.mT)
    torch.manual_seed(3)
    score_memory(dropping)
    assert torch.equal(torch.rand(2), expected)
