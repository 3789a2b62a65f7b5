"""The kernels as torch operators: checks, compilation, and what they refuse."""

import pytest
import torch

from regard.paths.kernels import additive_attention, additive_scores, feature_attention

ops = torch.ops.regard
LOW = torch.tensor([[0, 1, 2, 0, 3]])
HIGH = torch.tensor([[3, 3, 2, 1, 7], [1, 2, 3, 4, 5]])


def draw(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()


def arguments(name):
    query, key, value, weight = draw(2, 5, 3), draw(2, 7, 3), draw(2, 7, 3), draw(3)
    context, nothing = draw(2, 5, 3), torch.zeros(2, 5, 0, dtype=torch.float64)
    return {
        "additive_scores": (query, key, weight, LOW, HIGH),
        "additive_scores_backward": (draw(2, 5, 7), query, key, weight, LOW, HIGH),
        "additive_attention": (query, key, weight, value, LOW, HIGH, True),
        "additive_attention_backward": (
            context, query, key, weight, value, LOW, HIGH, False, nothing,
        ),
        "feature_attention": (query, key, value, 2.0, LOW, HIGH),
        "feature_attention_backward": (
            context, query, key, value, 2.0, LOW, HIGH,
            torch.zeros(2, 5, 3, dtype=torch.float64), torch.ones(2, 5, 3, dtype=torch.float64),
        ),
    }[name]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "additive_scores",
        "additive_scores_backward",
        "additive_attention",
        "additive_attention_backward",
        "feature_attention",
        "feature_attention_backward",
    ],
)
def test_operator_keeps_torchs_rules(name):
    torch.library.opcheck(getattr(ops, name).default, arguments(name))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_graph_gives_the_same_context_and_gradients(dynamic):
    query, key, value, weight = draw(2, 5, 3), draw(2, 7, 3), draw(2, 7, 3), draw(3)

    def model(query, key, value, weight):
        first = additive_attention(query, key, weight, value, LOW, HIGH)
        scores = additive_scores(first, key, weight)
        return feature_attention(first, key, value, 5.0) * scores.sum(-1, keepdim=True)

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    results = []
    for function in model, compiled:
        out = function(query, key, value, weight)
        results.append((out, *torch.autograd.grad(out.sum(), (query, key, value, weight))))
    for plain, traced in zip(*results, strict=True):
        torch.testing.assert_close(traced, plain)


# torch's own forward mode still scripts some of its formulas when it is first used
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
def test_forward_mode_is_refused_and_not_zero():
    query, key, weight = (draw(*shape).detach() for shape in ((2, 5, 3), (2, 7, 3), (3,)))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(query, torch.ones_like(query))
        with pytest.raises(NotImplementedError, match="forward-mode"):
            additive_scores(dual, key, weight)
        with pytest.raises(NotImplementedError, match="forward-mode"):
            feature_attention(dual, key, key)


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.jacfwd])
def test_function_transforms_are_refused_and_not_wrong(transform):
    query, key, weight = (draw(*shape).detach() for shape in ((2, 5, 3), (2, 7, 3), (3,)))
    with pytest.raises((RuntimeError, NotImplementedError)):
        transform(lambda query: additive_scores(query, key, weight).sum())(query)
