"""Rotary positions with scaled frequencies and of a part of the features."""

import math

import pytest
import torch

import regard
from regard.layers import LinearScaling, MultiHeadAttention, NTKScaling, Rotary, YaRN

SCALINGS = [
    (LinearScaling(4.0), {"rope_type": "linear", "factor": 4.0}, None),
    (NTKScaling(3.0), {"rope_type": "dynamic", "factor": 2.0}, 2 * 512),  # 2 · 2 − (2 − 1)
    (YaRN(4.0, 512), {"rope_type": "yarn", "factor": 4.0}, None),
    (YaRN(16.0, 64, fast=8.0, slow=2.0),
     {"rope_type": "yarn", "factor": 16.0, "beta_fast": 8.0, "beta_slow": 2.0,
      "original_max_position_embeddings": 64}, None),
]  # fmt: skip


def turns(rotary: Rotary, position: int) -> torch.Tensor:
    """What the pairs (1, 0) become at a position, (dim/2, 2)."""
    x = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(rotary.dim // 2)
    return rotary.rotate(x[None], position)[0].unflatten(-1, (-1, 2))


@pytest.mark.parametrize(("scaling", "parameters", "length"), SCALINGS, ids=str)
@pytest.mark.parametrize("dim", [8, 64])
def test_scaled_frequencies_are_those_of_transformers(scaling, parameters, length, dim):
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=2 * dim,
        num_attention_heads=2,
        max_position_embeddings=512,
        rope_parameters={"rope_theta": 5000.0, **parameters},
    )
    make = rope.ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
    frequency, magnitude = make(config, "cpu", seq_len=length)
    found = turns(Rotary(dim, base=5000.0, scaling=scaling), 7)
    angle = 7 * frequency.double()
    expected = magnitude * torch.stack((angle.cos(), angle.sin()), -1)
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-6)  # theirs are float32


def test_ntk_is_a_larger_base():
    found = turns(Rotary(6, base=100.0, scaling=NTKScaling(5.0)), 3)
    torch.testing.assert_close(found, turns(Rotary(6, base=100.0 * 5 ** (6 / 4)), 3))


def test_yarn_keeps_short_waves_scales_long_ones_and_sharpens():
    found = turns(Rotary(32, scaling=YaRN(8.0, 4096)), 11)
    growth = 0.1 * math.log(8.0) + 1
    plain, linear = turns(Rotary(32), 11), turns(Rotary(32, scaling=LinearScaling(8.0)), 11)
    torch.testing.assert_close(found[0], growth * plain[0])  # a wavelength of 2π
    torch.testing.assert_close(found[-1], growth * linear[-1])  # longer than 4096


def test_a_part_of_the_features_is_rotated_as_in_gpt_j():
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    x = torch.randn(2, 5, 3, 10, dtype=torch.float64)  # (batch, length, heads, width)
    sin, cos = gptj.create_sinusoidal_positions(5, 4).expand(2, 5, 4).double().chunk(2, -1)
    expected = torch.cat((gptj.apply_rotary_pos_emb(x[..., :4], sin, cos), x[..., 4:]), -1)
    found = Rotary(10, rotated=4).rotate(x.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{"rotated": 2}, *({"scaling": scaling} for scaling, *_ in SCALINGS[:3])], ids=str
)
def test_steps_equal_the_full_pass(options):
    layer = MultiHeadAttention(12, 3, position=Rotary(4, **options)).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    full = layer(x, mask=regard.causal())
    state = layer.start(2)
    for t in range(7):
        y, state = layer.step(x[:, t : t + 1], state)
        torch.testing.assert_close(y, full[:, t : t + 1])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Rotary(4, rotated=6), "rotated must be at most dim=4, got 6"),
        (lambda: Rotary(8, rotated=3), "rotated must be even, got 3; use 2 or 4"),
        (lambda: LinearScaling(0.0), "factor must be above 0, got 0"),
        (lambda: NTKScaling(-1.0), "factor must be above 0, got -1"),
        (lambda: YaRN(2.0, 0), "length must be"),
        (lambda: YaRN(2.0, 64, fast=1.0, slow=2.0), "slow must be between 0 and fast=1"),
    ],
)
def test_settings_that_make_no_sense_are_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()
