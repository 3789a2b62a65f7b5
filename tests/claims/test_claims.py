"""Every claim measures itself in a quick run, and its verdict follows from its numbers."""

import pytest
import torch
from torch import nn

from regard.claims import CLAIMS, Finding
from regard.claims.cost import _critical_path
from regard.claims.layers import scaling_keeps_the_variance

# a quick run is too short for the time and the training to show their growth
DETERMINISTIC = ("gradient", "scale", "residual", "order", "parallel", "projections")


@pytest.mark.parametrize("name", CLAIMS)
def test_a_quick_run_has_numbers_for_every_column(name):
    finding = CLAIMS[name].measure(True)
    assert finding.rows
    assert all(len(row) == len(finding.columns) for row in finding.rows)
    assert all(len(line) > 1 for chart in finding.charts for line in chart.curves.values())
    if name in DETERMINISTIC:
        assert finding.agrees, str(finding)


def test_the_variance_is_that_of_the_formula():
    """Var(q · k) = d for independent entries of variance 1."""
    for d, plain, _, scaled, _ in scaling_keeps_the_variance(True).rows:
        assert plain == pytest.approx(d, rel=0.1)
        assert scaled == pytest.approx(1, rel=0.1)


def test_the_critical_path_counts_operations_that_follow_one_another():
    x = torch.ones(3, requires_grad=True)
    leaf = 1  # the accumulation of the gradient itself
    assert _critical_path(x.exp()) == leaf + 1
    assert _critical_path(x.exp().sin() + x.cos()) == leaf + 3
    deep = nn.Sequential(*(nn.Tanh() for _ in range(50)))
    assert _critical_path(deep(x)) == leaf + 50


def test_a_finding_that_disagrees_is_reported():
    finding = Finding(("n", "value"), [("a", 2.0)], False, "2 is not 1")
    assert str(finding).endswith("does not agree: 2 is not 1")
