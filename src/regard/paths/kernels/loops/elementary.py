"""1/x, eˣ and tanh of SIMD vectors, without a call in the loop.

>>> x = np.linspace(-0.5, 0.5, 7)
>>> bool(np.abs(np.polyval(power_coefficients(6)[::-1], x) / np.exp2(x) - 1).max() < 1e-8)
True
"""

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.extending import intrinsic

from ..compile import inner
from .vector import STRICT, at_least, at_most, call, constant, like, magnitude, where_below

# Known only if numba compiles for the CPU it runs on.
HAS_ESTIMATE = (
    not config.CPU_NAME
    and not config.CPU_FEATURES
    and bool(binding.get_host_cpu_features().get("avx512f"))
)
# By the bits of the dtype: degrees of the polynomials for 2ˣ and eˣ, bias of the exponent, bits of
# the fraction, largest argument of eˣ.
EXPONENTIALS = {32: (5, 6, 127, 23, 87.0), 64: (10, 10, 1023, 52, 708.0)}


def fused(builder, vector, a, b, c):
    """a·b + c, in one instruction where there is one."""
    return call(builder, f"llvm.fmuladd.{vector.suffix}", vector.ir, [a, b, c], STRICT)


@intrinsic
def reciprocal(typing, values):
    """1 / values, up to 2¹²⁶: an estimate and one of Newton's steps, or a division."""

    def generate(context, builder, signature, arguments):
        (value,) = arguments
        one = constant(values, 1)
        if not HAS_ESTIMATE or values.dtype.bitwidth != 32:
            return builder.fdiv(one, value, flags=STRICT)
        everywhere = ir.Constant(ir.IntType(16), -1)
        name = "llvm.x86.avx512.rcp14.ps.512"
        guess = call(builder, name, values.ir, [value, constant(values, 0), everywhere])
        error = fused(builder, values, builder.fneg(value), guess, one)
        return fused(builder, values, guess, error, guess)

    return values(values), generate


def power_coefficients(degree: int) -> np.ndarray:
    """A polynomial for 2ˣ on |x| ≤ ½, interpolated at Chebyshev's points."""
    fit = np.polynomial.Chebyshev.interpolate(np.exp2, degree, domain=[-0.5, 0.5])
    return fit.convert(kind=np.polynomial.Polynomial).coef


def polynomial(builder, vector, coefficients, x):
    result = constant(vector, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = fused(builder, vector, result, x, constant(vector, coefficient))
    return result


def split_integer(builder, vector, x):
    """n, the integer nearest to x, and 2ⁿ put together from its bits."""
    _, _, bias, fraction, _ = EXPONENTIALS[vector.dtype.bitwidth]
    # Adding 1.5·2^fraction rounds to an integer and leaves it in the lowest bits.
    shift = constant(vector, 1.5 * 2.0**fraction + bias)
    shifted = builder.fadd(x, shift, flags=STRICT)
    integers = ir.VectorType(ir.IntType(vector.dtype.bitwidth), vector.lanes)
    places = ir.Constant(integers, [fraction] * vector.lanes)
    power = builder.bitcast(builder.shl(builder.bitcast(shifted, integers), places), vector.ir)
    return builder.fsub(shifted, shift, flags=STRICT), power


@intrinsic
def power_of_two(typing, values):
    """2ˣ = 2ⁿ · 2^(x − n), the latter by a polynomial; |x| up to 126, 1022 in float64."""
    coefficients = power_coefficients(EXPONENTIALS[values.dtype.bitwidth][0])

    def generate(context, builder, signature, arguments):
        (x,) = arguments
        n, power = split_integer(builder, values, x)
        rest = builder.fsub(x, n, flags=STRICT)
        return builder.fmul(polynomial(builder, values, coefficients, rest), power, flags=STRICT)

    return values(values), generate


@intrinsic
def exponential(typing, values):
    """eˣ = 2ⁿ · e^r with r = x − n·log 2 taken in two steps, exact for large |x| too.

    Arguments beyond ±87 (float64: ±708) count as that; NaN stays NaN.
    """
    _, degree, _, _, limit = EXPONENTIALS[values.dtype.bitwidth]
    coefficients = power_coefficients(degree) / np.log(2) ** np.arange(degree + 1)
    first = round(np.log(2) * 2**9) / 2**9  # so short that n times it is exact

    def generate(context, builder, signature, arguments):
        (x,) = arguments
        for side, comparison in ((-limit, "<"), (limit, ">")):
            bound = constant(values, side)
            beyond = builder.fcmp_ordered(comparison, x, bound, flags=STRICT)
            x = builder.select(beyond, bound, x)
        scaled = builder.fmul(x, constant(values, 1 / np.log(2)), flags=STRICT)
        n, power = split_integer(builder, values, scaled)
        rest = fused(builder, values, n, constant(values, -first), x)
        rest = fused(builder, values, n, constant(values, first - np.log(2)), rest)
        return builder.fmul(polynomial(builder, values, coefficients, rest), power, flags=STRICT)

    return values(values), generate


@intrinsic
def tanh_limits(typing, values):
    """Beyond which |x| tanh is constant, and below which its polynomial is exact to rounding."""
    pair = types.UniTuple(types.float64, 2)
    limit, small = (43.0, 0.25) if values.dtype.bitwidth == 32 else (350.0, 0.02)

    def generate(context, builder, signature, arguments):
        numbers = [ir.Constant(ir.DoubleType(), number) for number in (limit, small)]
        return context.make_tuple(builder, pair, numbers)

    return pair(values), generate


@inner
def tanh_and_slope(x):
    """tanh x and a quarter of its derivative, both to full relative precision.

    With u = e²ˣ and r = 1/(1 + u): tanh x = 1 − 2r and tanh' x = 4ur²; near 0, where
    1 − 2r would cancel, the first is a polynomial.
    """
    limit, small = tanh_limits(x)
    x = at_most(at_least(x, like(x, -limit)), like(x, limit))
    u = exponential(x + x)
    r = reciprocal(u + 1.0)
    z = x * x
    series = x * (z * (z * (z * (z * (62 / 2835) - 17 / 315) + 2 / 15) - 1 / 3) + 1.0)
    t = where_below(magnitude(x), like(x, small), series, 1.0 - 2.0 * r)
    return t, u * r * r
