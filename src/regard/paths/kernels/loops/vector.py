"""Explicit SIMD vectors for numba: 64 bytes of floats in one value, whatever the registers.

The compiler's own vectorizer prefers 256 bits and gives up on loops over many arrays; with these a
kernel states what stays in a register. LLVM splits a vector where registers are narrower, so the
same kernel runs on any CPU.

Arrays are addressed by the flat position of an element, so they must be contiguous.
"""

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

# No "nnan" and no "ninf": a NaN or an inf that a query may see must come out as one.
FLAGS = ("contract", "arcp", "nsz")
STRICT = ("nsz",)  # not empty, so that numba adds no flags: these may not be rearranged
INT32 = ir.IntType(32)


class Vector(types.Type):
    """The type of `lanes` floats of one dtype held in registers."""

    def __init__(self, dtype: types.Float, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Vector({dtype}, {lanes})")

    @property
    def element(self) -> ir.Type:
        return ir.FloatType() if self.dtype.bitwidth == 32 else ir.DoubleType()

    @property
    def ir(self) -> ir.VectorType:
        return ir.VectorType(self.element, self.lanes)

    @property
    def suffix(self) -> str:
        return f"v{self.lanes}f{self.dtype.bitwidth}"


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """How numba holds a `Vector`: as LLVM's own vector type."""

    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.ir)


def vector_of(dtype: types.Float) -> Vector:
    return Vector(dtype, 512 // dtype.bitwidth)


def constant(vector: Vector, value: float) -> ir.Constant:
    return ir.Constant(vector.ir, [ir.Constant(vector.element, float(value))] * vector.lanes)


def call(builder, name, result, arguments, fastmath=()):
    """A call of one of LLVM's own functions, declared when first used."""
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = ir.Function(builder.module, kind, name)
    return builder.call(function, arguments, fastmath=fastmath)


def shuffle(builder, left, right, lanes):
    """The named lanes of left (0, 1, ...) and of right (the numbers after those)."""
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(INT32, len(lanes)), lanes))


def spread(builder, value, vector):
    """One float in every lane."""
    empty = ir.Constant(vector.ir, ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(INT32, 0))
    return shuffle(builder, first, empty, [0] * vector.lanes)


def pointer(context, builder, array_type, arguments, vector=None):
    """The address of the element, or of the vector, at arguments = (array, position, ...)."""
    array, position = arguments[:2]
    data = context.make_array(array_type)(context, builder, array).data
    place = builder.gep(data, [position])
    return place if vector is None else builder.bitcast(place, vector.ir.as_pointer())


@intrinsic
def load(typing, array, position):
    """The vector that starts at a flat position of an array."""
    vector = vector_of(array.dtype)

    def generate(context, builder, signature, arguments):
        place = pointer(context, builder, signature.args[0], arguments, vector)
        return builder.load(place, align=array.dtype.bitwidth // 8)

    return vector(array, types.intp), generate


@intrinsic
def store(typing, array, position, values):
    """Write a vector, of any number of lanes, or one number to a flat position of an array."""
    vector = values if isinstance(values, Vector) else None

    def generate(context, builder, signature, arguments):
        place = pointer(context, builder, signature.args[0], arguments, vector)
        value = arguments[2]
        if vector is None:
            value = context.cast(builder, value, values, array.dtype)
        builder.store(value, place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, values), generate


@intrinsic
def add_to(typing, array, position, values):
    """Add a vector to the one that starts at a flat position of an array."""

    def generate(context, builder, signature, arguments):
        place = pointer(context, builder, signature.args[0], arguments, values)
        align = array.dtype.bitwidth // 8
        new = builder.fadd(builder.load(place, align=align), arguments[2], flags=FLAGS)
        builder.store(new, place, align=align)
        return context.get_dummy_value()

    return types.void(array, types.intp, values), generate


@intrinsic
def element(typing, array, position):
    """The element at a flat position of an array."""

    def generate(context, builder, signature, arguments):
        return builder.load(pointer(context, builder, signature.args[0], arguments))

    return array.dtype(array, types.intp), generate


@intrinsic
def broadcast(typing, array, position):
    """The element at a flat position of an array, in every lane."""
    vector = vector_of(array.dtype)

    def generate(context, builder, signature, arguments):
        value = builder.load(pointer(context, builder, signature.args[0], arguments))
        return spread(builder, value, vector)

    return vector(array, types.intp), generate


@intrinsic
def zero(typing, array):
    """A vector of zeros of an array's dtype."""
    vector = vector_of(array.dtype)
    return vector(array), lambda context, builder, signature, arguments: constant(vector, 0)


@intrinsic
def lanes(typing, array):
    """How many elements of an array make a vector."""
    number = vector_of(array.dtype).lanes
    return types.intp(array), lambda context, builder, signature, arguments: ir.Constant(
        ir.IntType(types.intp.bitwidth), number
    )


@intrinsic
def like(typing, values, number):
    """A number in every lane of a vector like `values`."""

    def generate(context, builder, signature, arguments):
        number = context.cast(builder, arguments[1], signature.args[1], values.dtype)
        return spread(builder, number, values)

    return values(values, number), generate


def define_operator(symbol, instruction):
    """Let + - * join vectors with vectors and with numbers."""

    @type_callable(symbol)
    def type_of_operator(typing):
        def result(left, right):
            if isinstance(left, Vector) and (left == right or isinstance(right, types.Number)):
                return left
            if isinstance(right, Vector) and isinstance(left, types.Number):
                return right
            return None

        return result

    @lower_builtin(symbol, Vector, Vector)
    @lower_builtin(symbol, Vector, types.Number)
    @lower_builtin(symbol, types.Number, Vector)
    def generate(context, builder, signature, arguments):
        vector = signature.return_type
        operands = [
            value
            if kind == vector
            else spread(builder, context.cast(builder, value, kind, vector.dtype), vector)
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        return getattr(builder, instruction)(*operands, flags=FLAGS)


define_operator(operator.add, "fadd")
define_operator(operator.sub, "fsub")
define_operator(operator.mul, "fmul")


def bounded(comparison):
    """A minimum or maximum of a vector and a bound that lets NaN through."""

    @intrinsic
    def clip(typing, values, bound):
        def generate(context, builder, signature, arguments):
            beyond = builder.fcmp_ordered(comparison, *arguments, flags=STRICT)
            return builder.select(beyond, arguments[1], arguments[0])

        return values(values, bound), generate

    return clip


at_most, at_least = bounded(">"), bounded("<")


@intrinsic
def magnitude(typing, values):
    """|values|."""

    def generate(context, builder, signature, arguments):
        return call(builder, f"llvm.fabs.{values.suffix}", values.ir, arguments)

    return values(values), generate


@intrinsic
def where_below(typing, values, limit, inside, outside):
    """`inside` in the lanes with values < limit, `outside` in the others."""

    def generate(context, builder, signature, arguments):
        below = builder.fcmp_ordered("<", *arguments[:2], flags=STRICT)
        return builder.select(below, *arguments[2:])

    return values(values, limit, inside, outside), generate


@intrinsic
def total(typing, values):
    """The sum of the lanes."""

    def generate(context, builder, signature, arguments):
        zero = ir.Constant(values.element, -0.0)
        name = f"llvm.vector.reduce.fadd.{values.suffix}"
        return call(builder, name, values.element, [zero, *arguments], ("reassoc",))

    return values.dtype(values), generate


@intrinsic
def largest(typing, values):
    """The largest lane, NaN aside."""

    def generate(context, builder, signature, arguments):
        name = f"llvm.vector.reduce.fmax.{values.suffix}"
        return call(builder, name, values.element, arguments)

    return values.dtype(values), generate


def folded(builder, vectors):
    """The sums of the lanes of some vectors, as a vector of their number: cheaper than `total`."""

    def fold(left, right, parts):
        """Add the second half of each part of [left right] to its first half."""
        count = left.type.count * (1 if left is right else 2)
        halves = np.arange(count).reshape(parts, 2, -1)
        first, second = (
            shuffle(builder, left, right, halves[:, half].ravel().tolist()) for half in (0, 1)
        )
        return builder.fadd(first, second, flags=FLAGS)

    number, parts = len(vectors), 1
    while len(vectors) > 1:
        parts *= 2
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [fold(left, right, parts) for left, right in pairs]
    (sums,) = vectors
    while sums.type.count > number:
        sums = fold(sums, sums, number)
    return sums


def generate_totals(context, builder, signature, arguments):
    return folded(builder, arguments)


@intrinsic
def totals4(typing, a, b, c, d):
    """The sums of the lanes of four vectors, as a vector of four."""
    return Vector(a.dtype, 4)(a, b, c, d), generate_totals


@intrinsic
def totals8(typing, a, b, c, d, e, f, g, h):
    """The sums of the lanes of eight vectors, as a vector of eight."""
    return Vector(a.dtype, 8)(a, b, c, d, e, f, g, h), generate_totals
