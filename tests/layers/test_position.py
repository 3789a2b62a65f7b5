import copy
import io
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.layers import ALiBi, Learned, Position, PositionalEncoding, RelativeBias, Rotary

MODULES = [
    Position(),
    PositionalEncoding(6),
    Learned(6, 13),
    Rotary(6),
    ALiBi(3),
    RelativeBias(3, buckets=8, max_distance=5),
]
HALVES = [torch.float16, torch.bfloat16]


def sinusoid(position: int, column: int, dim: int, wavelength: float = 10000.0) -> float:
    angle = position / wavelength ** ((column - column % 2) / dim)
    return math.cos(angle) if column % 2 else math.sin(angle)


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("offset", [0, 5])
def test_sinusoids_are_those_of_the_paper(dim, offset):
    x = torch.randn(2, 3, 11, dim, dtype=torch.float64)
    table = [[sinusoid(p + offset, c, dim) for c in range(dim)] for p in range(11)]
    expected = x + torch.tensor(table, dtype=torch.float64)
    torch.testing.assert_close(PositionalEncoding(dim)(x, offset), expected, rtol=0, atol=1e-12)


def test_sinusoids_take_another_wavelength():
    encoding = PositionalEncoding(4, max_wavelength=50.0)
    result = encoding(torch.zeros(5, 4, dtype=torch.float64))
    assert result[3, 2].item() == pytest.approx(sinusoid(3, 2, 4, 50.0))
    assert result[3, 3].item() == pytest.approx(sinusoid(3, 3, 4, 50.0))


def test_sinusoids_are_exact_far_out():
    result = PositionalEncoding(7)(torch.zeros(1, 7), offset=1_000_003)
    expected = [sinusoid(1_000_003, column, 7) for column in range(7)]
    torch.testing.assert_close(result[0], torch.tensor(expected), rtol=0, atol=1e-6)


def test_a_shift_of_the_sinusoids_is_linear():
    # section 3.5: PE(pos + k) is a linear function of PE(pos), the same one for every pos
    table = PositionalEncoding(6)(torch.zeros(23, 6, dtype=torch.float64))
    shift = torch.linalg.lstsq(table[:7], table[5:12]).solution
    torch.testing.assert_close(table[7:18] @ shift, table[12:23])


@pytest.mark.parametrize("kind", [PositionalEncoding, lambda dim: Learned(dim, 11)])
def test_a_step_equals_its_row_of_the_whole(kind):
    position = kind(5)
    x = torch.randn(2, 7, 5)
    whole = position(x)
    for t in range(7):
        assert torch.equal(position(x[:, t : t + 1], offset=t), whole[:, t : t + 1])


def test_learned_positions_are_their_parameters():
    position = Learned(5, max_length=7)
    x = torch.randn(2, 3, 5)
    result = position(x, offset=4)
    assert torch.equal(result, x + position.weight[4:7])
    result.sum().backward()
    counts = torch.tensor([0.0, 0, 0, 0, 2, 2, 2]).unsqueeze(-1).expand(7, 5)
    torch.testing.assert_close(position.weight.grad, counts)


@pytest.mark.parametrize(("length", "offset"), [(8, 0), (3, 5), (1, -1)])
def test_learned_positions_end_at_max_length(length, offset):
    with pytest.raises(ValueError, match=r"from 0 to 6, got .*build Learned"):
        Learned(5, max_length=7)(torch.zeros(length, 5), offset=offset)


def test_rotary_turns_pairs_by_the_matrix_of_the_paper():
    dim, base, offset = 6, 10000.0, 3
    x = torch.randn(2, 5, dim, dtype=torch.float64)
    expected = torch.empty_like(x)
    for p in range(5):
        matrix = torch.zeros(dim, dim, dtype=torch.float64)
        for i in range(dim // 2):
            angle = (p + offset) * base ** (-2 * i / dim)
            c, s = math.cos(angle), math.sin(angle)
            block = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
            matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
        expected[:, p] = x[:, p] @ matrix.T
    torch.testing.assert_close(Rotary(dim, base).rotate(x, offset), expected)


@given(query=st.integers(0, 5000), key=st.integers(0, 5000), moved=st.integers(0, 100_000))
def test_rotary_scores_depend_on_the_distance_alone(query, key, moved):
    generator = torch.Generator().manual_seed(query * 5003 + key)
    q, k = torch.randn(2, 1, 10, generator=generator, dtype=torch.float64)
    rotary = Rotary(10)
    here = rotary.rotate(q, query) @ rotary.rotate(k, key).T
    there = rotary.rotate(q, query + moved) @ rotary.rotate(k, key + moved).T
    torch.testing.assert_close(here, there, rtol=0, atol=1e-8)


def test_rotary_keeps_lengths_and_changes_with_distance():
    rotary, x = Rotary(6), torch.randn(7, 6, dtype=torch.float64)
    turned = rotary.rotate(x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    same = rotary.rotate(x[:1].expand(7, 6))
    scores = same @ same.T
    assert scores[0].unique().numel() == 7


def test_rotary_gradients_are_right():
    rotary = Rotary(4)
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: rotary.rotate(x, 5), x)
    assert torch.autograd.gradgradcheck(lambda x: rotary.rotate(x, 5), x)


def test_rotary_takes_any_memory_layout():
    rotary = Rotary(4)
    packed = torch.randn(3, 5, 2, 11, dtype=torch.float64)
    views = [
        packed[..., 1:5],  # odd offset and odd strides
        packed.transpose(-1, -2)[..., 4:8, :].transpose(-1, -2),
        packed.transpose(1, 3)[..., 1:5],  # features apart from each other
        torch.randn(3, 5, 2, 4, dtype=torch.float64).transpose(1, 2),
        torch.randn(1, 1, 1, 4, dtype=torch.float64).expand(3, 2, 5, 4),
        torch.randn(29, dtype=torch.float64)[1:25].view(2, 3, 4),  # contiguous, odd offset
    ]
    for view in views:
        expected = rotary.rotate(view.contiguous().clone(), 2)
        torch.testing.assert_close(rotary.rotate(view, 2), expected, rtol=0, atol=1e-15)


def test_odd_rotary_width_raises_a_helpful_error():
    with pytest.raises(ValueError, match="even, got 7; use a head width of 6 or 8"):
        Rotary(7)


def longhand_slopes(heads: int) -> list[float]:
    """Press et al. 2022: a geometric series that starts at its own ratio, 2^(−8/n)."""
    if heads & (heads - 1) == 0:
        ratio = 2 ** (-8 / heads)
        return [ratio**h for h in range(1, heads + 1)]
    power = 1
    while power * 2 < heads:
        power *= 2
    return longhand_slopes(power) + longhand_slopes(2 * power)[0::2][: heads - power]


@pytest.mark.parametrize("heads", range(1, 35))
def test_alibi_slopes_are_those_of_the_paper(heads):
    slopes = ALiBi(heads).slopes
    assert slopes == pytest.approx(longhand_slopes(heads))
    assert len(set(slopes)) == heads


def test_alibi_slopes_of_the_two_cases_printed_in_the_paper():
    assert ALiBi(8).slopes == tuple(2.0**-h for h in range(1, 9))
    assert ALiBi(16).slopes == pytest.approx([2 ** (-h / 2) for h in range(1, 17)])


SIZES = [(5, 5, None), (2, 7, None), (7, 2, None), (3, 7, 1)]


@pytest.mark.parametrize(("M", "N", "offset"), SIZES)
def test_alibi_lowers_scores_by_distance(M, N, offset):
    alibi = ALiBi(3)
    bias = alibi.bias(M, N, offset, dtype=torch.float64)
    first = N - M if offset is None else offset
    for h in range(3):
        for i in range(M):
            for j in range(N):
                assert bias[h, i, j].item() == -alibi.slopes[h] * abs(first + i - j)


def test_alibi_puts_the_last_query_on_the_last_key():
    whole = ALiBi(5).bias(7, 7)
    assert torch.equal(ALiBi(5).bias(1, 7), whole[:, -1:])
    assert torch.equal(ALiBi(5).bias(3, 7, offset=2), whole[:, 2:5])  # a block of rows


@pytest.mark.parametrize("dtype", HALVES)
def test_alibi_counts_exactly_before_it_rounds(dtype):
    bias = ALiBi(2).bias(1, 5003, dtype=dtype)
    assert bias.dtype == dtype
    assert torch.equal(bias, ALiBi(2).bias(1, 5003, dtype=torch.float64).to(dtype))


@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_bias_is_that_of_t5(bidirectional):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    from transformers import T5Config

    config = T5Config(d_model=6, d_kv=2, num_heads=3, is_decoder=not bidirectional)
    theirs = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    ours = RelativeBias(3, bidirectional=bidirectional).double()
    ours.load_state_dict({"weight": theirs.relative_attention_bias.weight})
    for M, N in ((300, 300), (1, 1), (2, 400)):
        expected = theirs.compute_bias(M, N, past_seen_tokens=N - M)[0]
        torch.testing.assert_close(ours.bias(M, N), expected, rtol=0, atol=0)
    (found,) = torch.autograd.grad(ours.bias(300, 300).square().sum(), ours.weight)
    truth = theirs.compute_bias(300, 300).square().sum()
    (expected,) = torch.autograd.grad(truth, theirs.relative_attention_bias.weight)
    torch.testing.assert_close(found, expected)


def test_relative_bias_follows_its_definition():
    position = RelativeBias(2, buckets=8, max_distance=16).double()
    bias = position.bias(3, 5, offset=1)
    for i in range(3):
        for j in range(5):
            distance = j - (i + 1)
            bucket = min(abs(distance), 2 + int(abs(distance) >= 2 * 8**0.5))  # 0, 1, 2–5, 6–16
            expected = position.weight[bucket + 4 * (distance > 0)]
            assert torch.equal(bias[:, i, j], expected)
    assert position.bias(0, 5).shape == (2, 0, 5)
    assert position.bias(5, 0).shape == (2, 5, 0)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
@pytest.mark.parametrize("position", MODULES, ids=lambda p: type(p).__name__)
def test_every_hook_keeps_the_type_and_is_exact_to_its_rounding(position, dtype):
    x = torch.randn(2, 7, 6).to(dtype)
    for hook in (position, position.rotate):
        result, exact = hook(x, 3), hook(x.double(), 3)
        assert result.dtype == dtype
        assert result.shape == x.shape
        torch.testing.assert_close(result.double(), exact, rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_hooks_a_position_does_not_give_do_nothing():
    x = torch.randn(2, 7, 6)
    for position in MODULES:
        given_hooks = {
            "forward": not torch.equal(position(x, 1), x),
            "rotate": not torch.equal(position.rotate(x, 1), x),
            "bias": position.bias(3, 5) is not None,
        }
        expected = {
            Position: [],
            PositionalEncoding: ["forward"],
            Learned: ["forward"],
            Rotary: ["rotate"],
            ALiBi: ["bias"],
            RelativeBias: ["bias"],
        }[type(position)]
        assert [name for name, there in given_hooks.items() if there] == expected


@pytest.mark.parametrize("position", MODULES, ids=lambda p: type(p).__name__)
def test_positions_copy_save_compile_and_keep_no_state(position):
    x = torch.randn(2, 7, 6)
    before = set(position.state_dict())
    assert before == ({"weight"} if isinstance(position, Learned | RelativeBias) else set())
    other = copy.deepcopy(position)
    file = io.BytesIO()
    torch.save(position.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))

    def hooks(position, x, offset):
        return position(x, offset), position.rotate(x, offset), position.bias(5, 7)

    expected = hooks(position, x, 2)
    compiled = torch.compile(hooks, backend="aot_eager", fullgraph=True)
    for result in (hooks(other, x, 2), compiled(position, x, 2)):
        for got, want in zip(result, expected, strict=True):
            assert (got is None) == (want is None)
            if want is not None:
                torch.testing.assert_close(got, want)
    assert set(position.state_dict()) == before
    assert vars(position).keys() == vars(other).keys()


class Hooks(torch.nn.Module):
    def __init__(self, position):
        super().__init__()
        self.position = position

    def forward(self, x):
        return self.position(x) + self.position.rotate(x)


@pytest.mark.parametrize("position", MODULES, ids=lambda p: type(p).__name__)
def test_positions_export_with_any_length(position):
    module = Hooks(position)
    length = torch.export.Dim("length", min=2, max=13)
    program = torch.export.export(
        module, (torch.randn(2, 5, 6),), dynamic_shapes={"x": {1: length}}
    )
    x = torch.randn(2, 11, 6)
    torch.testing.assert_close(program.module()(x), module(x))


@pytest.mark.parametrize("position", [PositionalEncoding(6), Learned(6, 13)])
def test_a_wrong_width_or_type_is_an_error(position):
    with pytest.raises(ValueError, match=r"expects \(\.\.\., length, 6\), got \(2, 5\)"):
        position(torch.zeros(2, 5))
    with pytest.raises(TypeError, match="embed the tokens first"):
        position(torch.zeros(2, 6, dtype=torch.long))
    with pytest.raises(ValueError, match="got \\(2, 4\\)"):
        Rotary(6).rotate(torch.zeros(2, 4))


@pytest.mark.parametrize(
    "build",
    [
        lambda: PositionalEncoding(0),
        lambda: PositionalEncoding(4, max_wavelength=0.0),
        lambda: Learned(3, max_length=0),
        lambda: Rotary(0),
        lambda: Rotary(4, base=-1.0),
        lambda: ALiBi(0),
        lambda: RelativeBias(0),
        lambda: RelativeBias(2, buckets=3),
        lambda: RelativeBias(2, buckets=32, max_distance=8),
    ],
)
def test_sizes_that_make_no_sense_are_errors(build):
    with pytest.raises(ValueError, match="must be"):
        build()
