"""What the textbooks say about attention, measured."""

from regard.claims.cost import attention_is_parallel, time_grows_with_length
from regard.claims.finding import Chart, Finding, Measure
from regard.claims.fixed_vector import attention_keeps_the_gradient, early_tokens_are_lost
from regard.claims.layers import (
    attention_knows_no_order,
    projections_can_lower_a_weight,
    residuals_keep_the_gradient,
    scaling_keeps_the_variance,
)

CLAIMS: dict[str, Measure] = {
    "fixed-vector": early_tokens_are_lost,
    "gradient": attention_keeps_the_gradient,
    "scale": scaling_keeps_the_variance,
    "residual": residuals_keep_the_gradient,
    "order": attention_knows_no_order,
    "parallel": attention_is_parallel,
    "cost": time_grows_with_length,
    "projections": projections_can_lower_a_weight,
}
"""Claims by name; each measures itself in under two minutes on two cores."""

__all__ = ["CLAIMS", "Chart", "Finding", "Measure"]
