"""Bahdanau et al. 2015, written out with the model's own parameters."""

import pytest
import torch
from torch import Tensor

from regard.attention.observer import observe
from regard.attention.record import CallRecord
from regard.core.request import Request
from regard.models import Bahdanau, Encoder, Seq2Seq, Tokens, build
from tests.recorded import recorded

B, S, T, SOURCE, TARGET, DIM, HIDDEN, STATE = 2, 7, 5, 13, 17, 3, 5, 11
LENGTHS = torch.tensor([7, 4])


def model_of(**options) -> Seq2Seq:
    torch.manual_seed(2)
    encoder = Encoder(Tokens(SOURCE, DIM), HIDDEN, bidirectional="all", **options)
    decoder = Bahdanau(encoder, Tokens(TARGET, DIM), STATE, width=2, layers=1)
    return Seq2Seq(encoder, decoder).double()


def gru(layer: torch.nn.GRU, x: Tensor, h: Tensor, direction: str = "") -> Tensor:
    """One step of torch's GRU for one sentence: x (D,), h (H,)."""
    wi, wh, bi, bh = (
        getattr(layer, f"{name}_l0{direction}")
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    (r, z, n), (ur, uz, un) = (wi @ x + bi).chunk(3), (wh @ h + bh).chunk(3)
    reset, update = torch.sigmoid(r + ur), torch.sigmoid(z + uz)
    return (1 - update) * torch.tanh(n + reset * un) + update * h


def annotations(model: Seq2Seq, ids: Tensor) -> tuple[Tensor, Tensor]:
    """h(j) = [→h(j) ; ←h(j)] of one sentence, and both ends (A.2.1)."""
    layer = model.encoder.recurrent.layers[0]
    embedded = model.encoder.embedding.weight[ids]
    forward, backward = [], []
    h = torch.zeros(HIDDEN, dtype=torch.float64)
    for x in embedded:
        h = gru(layer, x, h)
        forward.append(h)
    h = torch.zeros(HIDDEN, dtype=torch.float64)
    for x in embedded.flip(0):
        h = gru(layer, x, h, "_reverse")
        backward.insert(0, h)
    states = torch.cat((torch.stack(forward), torch.stack(backward)), -1)
    return states, torch.cat((forward[-1], backward[0]))


def test_the_model_is_the_one_of_the_appendix():
    model = model_of()
    decoder = model.decoder
    source, target = torch.randint(SOURCE, (B, S)), torch.randint(TARGET, (B, T))
    features, maps = recorded(model, lambda: model(source, LENGTHS, target))
    score = decoder.attention.score
    W, U, v = score.query_weight, score.key_weight, score.vector
    for b in range(B):
        h, ends = annotations(model, source[b, : LENGTHS[b]])
        torch.testing.assert_close(model.encode(source, LENGTHS).states[b, : LENGTHS[b]], h)
        first = decoder.bridge.projections[0]
        s = torch.tanh(first.weight @ ends + first.bias)
        for i in range(T):
            e = torch.stack([v @ torch.tanh(W @ s + U @ h[j]) for j in range(len(h))])  # A.1.2
            alpha = torch.exp(e) / torch.exp(e).sum()
            c = sum(alpha[j] * h[j] for j in range(len(h)))  # eq. 5
            y = decoder.embedding.weight[target[b, i]]
            s = gru(decoder.recurrent.layers[0], torch.cat((y, c)), s)  # A.2.2
            deep = decoder.join.projection
            wide = deep.weight @ torch.cat((s, y, c)) + deep.bias
            t = torch.stack([torch.maximum(wide[0], wide[1]), torch.maximum(wide[2], wide[3])])
            torch.testing.assert_close(features[b, i], t)
            torch.testing.assert_close(maps["decoder.attention"][b, 0, i, : len(h)], alpha)


def test_the_keys_are_projected_once(monkeypatch):
    model = model_of()
    calls = []
    score = model.decoder.attention.score
    project = score.project

    def counted(key: Tensor) -> Tensor:
        calls.append(key.shape)
        return project(key)

    monkeypatch.setattr(score, "project", counted)
    source, target = torch.randint(SOURCE, (B, S)), torch.randint(TARGET, (B, T))
    model(source, LENGTHS, target)
    assert calls == [(B, S, 2 * HIDDEN)]


# ------------------------------------------------------------------ all steps together


class Counted:
    """A watcher that counts calls of attention; one that may edit them needs to see each step."""

    gradients = False

    def __init__(self, *, edits: bool) -> None:
        self.calls, self.edits = 0, edits

    def edit(self, request: Request) -> Request:
        return request

    def notify(self, report: CallRecord) -> None:
        self.calls += 1


def trained(model: Seq2Seq) -> list[Tensor]:
    return [*model.encoder.parameters(), *model.decoder.parameters()]


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_all_steps_together_are_the_steps_one_by_one(cell, dropout):
    pytest.importorskip("numba")
    torch.manual_seed(3)
    model = build("bahdanau", source_vocabulary=SOURCE, target_vocabulary=TARGET, embedding=DIM,
                  hidden=STATE, cell=cell, dropout=dropout).double().train()  # fmt: skip
    source, target = torch.randint(SOURCE, (B, S)), torch.randint(TARGET, (B, T))
    upstream = torch.randn(B, T, STATE, dtype=torch.float64)
    answers = []
    for edits in (False, True):
        torch.manual_seed(4)
        counted = Counted(edits=edits)
        with observe(counted):
            features = model(source, LENGTHS, target)
        assert counted.calls == (T if edits else 1)
        answers.append([features, *torch.autograd.grad(features, trained(model), upstream)])
    for together, alone in zip(*answers, strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 2, "residual": True},
        {"attention": "local", "window": 2},
        {"score": "general"},
        {"attention": "hard"},
    ],
)
def test_what_must_go_step_by_step_agrees_with_steps(options):
    torch.manual_seed(5)
    model = build("bahdanau", source_vocabulary=SOURCE, target_vocabulary=TARGET, embedding=DIM,
                  hidden=STATE, **options).double().eval()  # fmt: skip
    source, target = torch.randint(SOURCE, (B, S)), torch.randint(TARGET, (B, T))
    memory = model.encode(source, LENGTHS)
    features, state = model.decode(memory, target), model.start(memory)
    for i in range(T):
        step, state = model.step(target[:, i], state)
        torch.testing.assert_close(step, features[:, i])


def test_the_same_seed_gives_the_same_bits():
    answers = []
    for _ in range(2):
        torch.manual_seed(6)
        model = build("bahdanau", source_vocabulary=SOURCE, target_vocabulary=TARGET, embedding=DIM,
                      hidden=STATE, dropout=0.3).train()  # fmt: skip
        source, target = torch.randint(SOURCE, (B, S)), torch.randint(TARGET, (B, T))
        features = model(source, LENGTHS, target)
        answers.append([features, *torch.autograd.grad(features.sum(), trained(model))])
    assert all(map(torch.equal, *answers))
