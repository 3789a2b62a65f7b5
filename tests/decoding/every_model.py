"""Models of every kind with random parameters, and their log-probabilities of texts."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from regard.data.batch import BOS, EOS
from regard.models import build

SOURCE, TARGET = 13, 11
RECURRENT = {"embedding": 5, "hidden": 7}
ATTENTIVE = {"dim": 12, "heads": 3, "hidden": 11, "layers": 2, "dropout": 0.2}

MODELS = {
    "bahdanau": ("bahdanau", {}),
    "bahdanau, whole vectors": ("bahdanau", {"embedding": 16, "hidden": 32}),
    "bahdanau, hard": ("bahdanau", {"attention": "hard", "score": "general"}),
    "luong": ("luong", {"bidirectional": "all"}),
    "luong, fed": ("luong", {"feeding": True, "layers": 2, "cell": "lstm", "dropout": 0.2}),
    "luong, whole vectors": ("luong", {"embedding": 16, "hidden": 32, "cell": "lstm"}),
    "luong, local": ("luong", {"attention": "local", "window": 2}),
    "luong, predictive": ("luong", {"attention": "predictive", "window": 2}),
    "gnmt": ("gnmt", {"layers": 3}),
    "plain": ("plain", {"layers": 2, "cell": "lstm"}),
    "peeky": ("peeky", {}),
    "attention": ("attention", {}),
    "transformer": ("transformer", {}),
    "transformer, pre, rotary": ("transformer", {"norm": "pre", "position": "rotary"}),
    "transformer, alibi": ("transformer", {"position": "alibi", "kv_heads": 1}),
    "transformer, relative": ("transformer", {"position": "relative"}),
    "transformer, learned": ("transformer", {"position": "learned", "max_length": 17}),
    "transformer, none": ("transformer", {"position": "none", "decoder_layers": 1}),
}
EVERY = pytest.mark.parametrize("name", MODELS)


def model_of(name: str, *, target: int = TARGET, ends: float = -2.0, seed: int = 5) -> nn.Module:
    """A model in float64 that does not always say the same, and ends now and then."""
    torch.manual_seed(seed)
    kind, options = MODELS[name]
    first = ATTENTIVE if kind == "transformer" else RECURRENT
    model = build(
        kind, **{"source_vocabulary": SOURCE, "target_vocabulary": target} | first | options
    )
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.7)
        model.output.weight[EOS] *= 3.0  # so that some steps end
        model.output.bias[EOS] += ends
    return model


def sources(lengths: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths))
    return torch.randint(4, SOURCE, shape, generator=generator), torch.tensor(lengths)


def log_probability(model: nn.Module, source: Tensor, tokens: tuple[int, ...]) -> float:
    """Of tokens after one source (S,), teacher forced, the end counted if it is there."""
    return log_probabilities(model, source, [tokens])[tokens]


def log_probabilities(model: nn.Module, source: Tensor, texts: list) -> dict[tuple, float]:
    """Of each text after one source (S,)."""
    longest = max(map(len, texts))
    padded = torch.tensor([[*text, *[3] * (longest - len(text))] for text in texts])
    inputs = torch.cat((torch.full((len(texts), 1), BOS), padded[:, :-1]), 1)
    was = model.training
    model.eval()
    with torch.no_grad():
        memory = model.encode(source.expand(len(texts), -1))
        scores = torch.log_softmax(model.output(model.decode(memory, inputs)), -1)
    model.train(was)
    each = scores.gather(2, padded[..., None]).squeeze(2)
    counted = torch.arange(longest) < torch.tensor([[len(text)] for text in texts])
    return dict(zip(texts, each.where(counted, 0.0).sum(1).tolist(), strict=True))


def all_texts(target: int, longest: int) -> list[tuple[int, ...]]:
    """Every output there can be: those that end, and those that fill the limit without."""
    words = range(3, target)
    texts = []
    for length in range(longest):
        texts += [(*text, EOS) for text in itertools.product(words, repeat=length)]
    return texts + list(itertools.product(words, repeat=longest))


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
