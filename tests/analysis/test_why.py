"""Claims are confirmed where a model was built so that they are true."""

import torch
from torch import nn

from regard.analysis import Decision, explain_decision
from regard.analysis.why import units, verdict
from regard.layers import MultiHeadAttention

WORDS = list("abcdefghij")


class Planted(nn.Module):
    """Head 0 reads token 7 and makes logit 1; head 1 reads everything alike and makes nothing.

    Its other heads add noise of the size `noise` to all logits.
    """

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(10, 8)
        self.attention = MultiHeadAttention(8, heads=4)
        with torch.no_grad():
            self.embedding.weight.mul_(0.3)
            self.embedding.weight[:, 0] = 0.0
            self.embedding.weight[7, 0] = 1.0
            layer = self.attention
            layer.query_projection.weight[0:2] = 0.0
            layer.query_projection.bias[0:2] = torch.tensor([6.0, 0.0])
            layer.key_projection.weight[0:2] = torch.eye(8)[[0, 0]]
            layer.value_projection.weight[0:2] = torch.eye(8)[[0, 0]]
            layer.output_projection.weight.mul_(0.1)
            layer.output_projection.weight[1, :2] = 3.0

    def forward(self, ids):
        return self.attention(self.embedding(ids))


def planted(said: int = 1, instead: int = 2) -> Decision:
    model = Planted().eval().requires_grad_(False)
    ids = torch.arange(10)[None]
    return Decision(
        model, lambda: model(ids), lambda output: output[0, -1], 9, "".join(WORDS), "", WORDS,
        [False] * 10, said, instead, lambda ids: [str(each) for each in ids],
    )  # fmt: skip


def test_the_word_and_the_head_that_decide_are_found_and_confirmed():
    found = explain_decision(planted())
    words = [claim for claim in found.claims if claim.kind == "word"]
    heads = [claim for claim in found.claims if claim.kind == "head"]
    assert (words[0].name, words[0].verdict) == ("h", "confirmed")
    assert words[0].effect > 1 > words[0].high
    assert (heads[0].name, heads[0].verdict) == ("attention 0", "confirmed")
    assert found.heads[0].head == 0
    assert abs(found.difference - float(planted().difference(planted().run()))) < 1e-5
    assert found.competitors[0][0] == "1"
    assert found.agreement["gradient_attention"] == 1.0
    assert {"attention", "occlusion", "input_gradient"} <= set(found.methods)


def test_what_heads_add_is_their_direct_contribution_where_the_output_is_linear():
    decision = planted()
    found = explain_decision(decision)
    model = decision.model
    plain = decision.difference(decision.run())
    for head in found.heads:
        weight = model.attention.output_projection.weight
        columns = slice(2 * head.head, 2 * head.head + 2)
        saved = weight[:, columns].clone()
        weight[:, columns] = 0.0
        without = decision.difference(decision.run())
        weight[:, columns] = saved
        assert abs(head.score - float(plain - without)) < 1e-5


def test_the_other_way_round_everything_speaks_against():
    one, other = explain_decision(planted(1, 2)), explain_decision(planted(2, 1))
    first, second = one.methods["gradient_attention"], other.methods["gradient_attention"]
    assert torch.allclose(torch.tensor(first), -torch.tensor(second), atol=1e-6)
    assert other.claims[0].score < 0
    assert other.claims[0].verdict == "confirmed"


def test_controls_are_drawn_by_a_seed():
    assert explain_decision(planted(), seed=5) == explain_decision(planted(), seed=5)


def test_verdicts():
    assert verdict(2.0, 1.5, -0.1, 0.3) == "confirmed"
    assert verdict(-2.0, -1.5, -0.1, 0.3) == "confirmed"
    assert verdict(2.0, -1.5, -0.1, 0.3) == "refuted"
    assert verdict(-2.0, 1.5, -0.1, 0.3) == "refuted"
    assert verdict(2.0, 0.5, 0.6, 0.9) == "undecided"  # less than any other
    assert verdict(2.0, float("nan"), 0.0, 1.0) == "undecided"


def test_units_are_words_or_characters():
    assert units(["<bos>", "a", " ", "b"]) == [0, 1, 2, 3]
    assert units(["▁play", "ing", "▁it"]) == [0, 0, 1]
