"""What the textbooks say about attention, measured."""

from regard.claims.cost import attention_is_parallel, time_grows_with_length
from regard.claims.finding import Chart, Claim, Finding
from regard.claims.fixed_vector import attention_keeps_the_gradient, early_tokens_are_lost
from regard.claims.layers import (
    attention_knows_no_order,
    projections_can_lower_a_weight,
    residuals_keep_the_gradient,
    scaling_keeps_the_variance,
)

CLAIMS: dict[str, Claim] = {
    "fixed-vector": Claim(
        "A fixed vector loses the content of a long source; attention does not.",
        early_tokens_are_lost,
    ),
    "gradient": Claim(
        "Attention gives the gradient a direct way to early tokens.",
        attention_keeps_the_gradient,
    ),
    "scale": Claim(
        "Dividing by √d keeps the variance of the scores at 1, so softmax keeps its gradient.",
        scaling_keeps_the_variance,
    ),
    "residual": Claim(
        "Residual (skip) connections keep the gradient in deep stacks.",
        residuals_keep_the_gradient,
    ),
    "order": Claim(
        "Attention without positions knows no order.",
        attention_knows_no_order,
    ),
    "parallel": Claim(
        "Attention is parallel over positions; a recurrent network is not.",
        attention_is_parallel,
    ),
    "cost": Claim(
        "Full attention takes time O(n²), a window of width w O(n·w), efficient attention O(n).",
        time_grows_with_length,
    ),
    "projections": Claim(
        "Learned projections can lower a weight that similarity raises.",
        projections_can_lower_a_weight,
    ),
}
"""Claims by name; each is measured in under two minutes on two cores."""

__all__ = ["CLAIMS", "Chart", "Claim", "Finding"]
