"""The choice of path depends on the device: paths for CPUs are not chosen elsewhere."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import regard

REQUESTS = {
    "dense": ({}, "fused"),
    "causal": ({"mask": regard.causal()}, "fused"),
    "window": ({"mask": regard.window(9, 9)}, "flex"),
    "composed": ({"mask": regard.causal() & regard.lengths(torch.tensor([512, 300]))}, "flex"),
    "general": ({"score": regard.General(64, 64), "mask": regard.window(9, 9)}, "flex"),
    "dropout": ({"dropout": 0.1, "mask": regard.window(9, 9)}, "blockwise"),
    "sparsemax": ({"normalize": "sparsemax"}, "blockwise"),
    "your function": ({"score": lambda q, k: -torch.cdist(q, k)}, "blockwise"),
}


def explain_on_cuda(**options):
    """The plan for fake tensors, and a score with fake parameters."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        if isinstance(score := options.get("score"), nn.Module):
            for name, own in score.named_parameters(recurse=False):
                fake = torch.empty_like(own, device="cuda", requires_grad=False)
                setattr(score, name, nn.Parameter(fake, requires_grad=False))
        query = torch.empty(2, 8, 512, 64, device="cuda")
        return regard.explain(query, query, query, **options)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_cuda_tensor_takes_a_path_that_torch_has_for_cuda(name):
    options, path = REQUESTS[name]
    assert explain_on_cuda(**options).path == path


def test_additive_attention_on_cuda_runs_in_blocks_and_explain_reports_it():
    plan = explain_on_cuda(score=regard.Additive(64, 64, 16))
    assert plan.path == "blockwise"
    assert "computed by torch" in plan.reason
    assert "the kernel is for the CPU, not cuda" in plan.reason


def test_a_path_for_the_cpu_cannot_be_forced_on_cuda():
    with pytest.raises(ValueError, match="the kernel is for the CPU, not cuda"):
        explain_on_cuda(score=regard.Additive(64, 64, 16), path="additive_kernel")
