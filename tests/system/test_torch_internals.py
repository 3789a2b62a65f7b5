"""Private functions of torch: on a release that the table lacks, the public ones serve as well."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.system import torch_internals

SOURCE = Path(torch_internals.__file__).parents[1]


def private(tree: ast.AST) -> Iterator[str]:
    """The names of torch in a file that begin with an underscore."""
    modules = {"torch", "dist", "nn", "F"}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            names = [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            module, name = node.args[:2]
            if isinstance(name, ast.Constant):
                names = [f"{ast.unparse(module)}.{name.value}"]
        for name in names:
            first, *rest = name.partition("(")[0].split(".")
            if first in modules and any(
                part.startswith("_") and not part.endswith("__") for part in rest
            ):
                yield name


def test_one_file_alone_names_private_functions():
    uses = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if any(private(ast.parse(path.read_text("utf-8"))))
    }
    assert uses == {str(Path("system", "torch_internals.py"))}


@pytest.mark.parametrize(
    "code",
    [
        "torch.ops.aten._softmax_backward_data.default(a)",
        "from torch._subclasses import FakeTensor",
        "getattr(torch, '_fused_adamw_', None)",
        "torch._C._len_torch_dispatch_stack()",
    ],
)
def test_a_private_name_is_noticed(code):
    assert any(private(ast.parse(code)))


@pytest.mark.parametrize("purpose", torch_internals.TABLE)
def test_private_functions_are_in_use_on_tested_releases_alone(purpose):
    import torch.distributed  # noqa: F401

    row = torch_internals.TABLE[purpose]
    is_tested = torch_internals.RELEASE in row.releases
    assert (torch_internals.functions(purpose) is not None) == is_tested
    assert (purpose in torch_internals.off()) == (row.is_fast and not is_tested)


UNTESTED = """
import torch
torch.__version__ = "99.1.0"
import regard
from regard.core.blocks import can_inspect_values, in_functorch
from regard.system import torch_internals as internals

assert not any(map(internals.functions, internals.TABLE))

tensors = q, k, v = [torch.randn(2, 3, 70, 5, requires_grad=True) for _ in range(3)]
masks = (None, regard.causal(), regard.window(3, 0), regard.lengths(torch.tensor([0, 9])))
bias = torch.randn(70, 70)
for mask in masks:
    for options in ({}, {"bias": bias}, {"score": regard.Additive(5, 5, 3)}):
        def results(path):
            output = regard.attend(q, k, v, mask=mask, path=path, **options)
            return output, *torch.autograd.grad(output.square().sum(), tensors)
        for one, other in zip(results("auto"), results("reference")):
            torch.testing.assert_close(one, other)
small = [torch.randn(2, 2, 40, 4, requires_grad=True) for _ in range(3)]  # two products
torch.testing.assert_close(
    torch.autograd.grad(regard.attend(*small).square().sum(), small),
    torch.autograd.grad(regard.attend(*small, path="reference").square().sum(), small),
)
reason = regard.explain(q, k, v).reason
assert "not tested with torch 99.1" in reason, reason
slower = ["flash attention", "gradient of softmax", "fused AdamW", "dispatch modes"]
assert internals.off() == slower

# what is asked of torch by trial
seen = []
def look(x):
    seen.append((in_functorch(), can_inspect_values(x)))
    return x * 2
look(torch.ones(2))
torch.func.vmap(look)(torch.ones(2, 2))
torch.func.grad(lambda x: look(x).sum())(torch.ones(2))
with torch.autograd.forward_ad.dual_level():
    look(torch.ones(2))
look(torch.ones(2))
from torch.fx.experimental.proxy_tensor import make_fx
make_fx(look)(torch.ones(2))
from torch._subclasses import FakeTensorMode
with FakeTensorMode():
    look(torch.ones(2))
no, transformed, traced = (False, True), (True, False), (False, False)
assert seen == [no, transformed, transformed, transformed, no, traced, traced], seen

from regard.training import Training
from regard.training.optimizer import AdamW
torch.manual_seed(0)
ours, theirs = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
theirs.load_state_dict(ours.state_dict())
optimizer = AdamW(ours, Training(steps=1, weight_decay=0.0, clip=0.0))
given = optimizer.options
peer = torch.optim.Adam(theirs.parameters(), lr=0.1, betas=given.betas, eps=given.eps)
for model in (ours, theirs):
    model(torch.ones(5, 3)).square().sum().backward()
optimizer.step(0.1, count=1)
peer.step()
torch.testing.assert_close(ours.weight, theirs.weight)

with regard.capture() as trace:
    torch.nn.functional.scaled_dot_product_attention(q, k, v)
assert len(trace.calls) == 1
from regard.cli import main
assert main(["doctor"]) == 0
"""


def test_on_another_release_the_public_functions_give_the_same(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    command = [sys.executable, "-c", UNTESTED]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    assert "flash attention" in done.stdout
