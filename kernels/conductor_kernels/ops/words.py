"""Packed weights from words of 32 bits to float32, in registers: what `tiles.py` reads tiles by.

Weights are decoded without conversions from integers, which run at a fraction of a multiplication's
rate. Where x is a vector, a field of a 32-bit word is masked in place and read as the bits of a
float: below 2^-126 those are plain fixed point, p bits up is 2^p times more, and x carries the
powers of two that make up for it, so a weight costs one mask and one multiplication. x is raised by
2^96 and no more, so that x up to 2^31 stays a number; the sums, then 2^53 too small, are raised
later. It needs subnormal numbers kept, as Triton compiles by default. The values of e4m3 fit the
same way: exponent and mantissa four bits down are a float 2^120 too small, its subnormals included.
NaN of e4m3, which no export writes, would read as 480.

`tiny` numbers are such; `whole` ones are the codes themselves; `above_one` are floats between 1 and
2 with a code in their fraction, from which one step takes off both the 1 and a zero point. Words
are [ROWS, COLUMNS / 4], of int4 [ROWS, COLUMNS / 8].
"""

from __future__ import annotations

from conductor_kernels.language import jit, tl


@jit
def _field(words, MASK: tl.constexpr):
    """Fields of words where they stand, as floats: 2^-149 times their worth."""
    return (words & MASK).to(tl.float32, bitcast=True)


@jit
def tiny_int4(words, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS]: inputs j and j + 4 of a word are 2^(4 (j % 4) - 149) times their code."""
    high = words >> 16
    first = tl.join(_field(words, 0xF), _field(high, 0xF))
    second = tl.join(_field(words, 0xF0), _field(high, 0xF0))
    third = tl.join(_field(words, 0xF00), _field(high, 0xF00))
    fourth = tl.join(_field(words, 0xF000), _field(high, 0xF000))
    return tl.reshape(tl.join(tl.join(first, third), tl.join(second, fourth)), [ROWS, COLUMNS])


@jit
def _signed(words, MASK: tl.constexpr):
    """Fields of bytes with 128 added, as floats without it."""
    middle = tl.full([1, 1], MASK & 0x8080, tl.int32)
    return _field(words, MASK) - middle.to(tl.float32, bitcast=True)


@jit
def tiny_int8(words, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS]: inputs j and j + 2 of a word are 2^(8 (j % 2) - 149) times their code."""
    words = words ^ -0x7F7F7F80
    high = words >> 16
    first = tl.join(_signed(words, 0xFF), _signed(high, 0xFF))
    second = tl.join(_signed(words, 0xFF00), _signed(high, 0xFF00))
    return tl.reshape(tl.join(first, second), [ROWS, COLUMNS])


@jit
def _small_float(words, UP: tl.constexpr):
    """The e4m3 that lies UP bits below the top of each word, as a float 2^120 too small."""
    return (((words << UP) >> 4) & -0x78100000).to(tl.float32, bitcast=True)


@jit
def tiny_fp8(words, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS], 2^-120 times their worth."""
    even = tl.join(_small_float(words, 24), _small_float(words, 8))
    odd = tl.join(_small_float(words, 16), _small_float(words, 0))
    return tl.reshape(tl.join(even, odd), [ROWS, COLUMNS])


@jit
def _whole(words, MASK: tl.constexpr, MIDDLE: tl.constexpr):
    """The field at the bottom of each word less MIDDLE, by 2^23, whose last place is 1."""
    return ((words & MASK) | 0x4B000000).to(tl.float32, bitcast=True) - (2.0**23 + MIDDLE)


@jit
def whole_int8(words, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS]: the codes."""
    words = words ^ -0x7F7F7F80
    even = tl.join(_whole(words, 0xFF, 128), _whole(words >> 16, 0xFF, 128))
    odd = tl.join(_whole(words >> 8, 0xFF, 128), _whole(words >> 24, 0xFF, 128))
    return tl.reshape(tl.join(even, odd), [ROWS, COLUMNS])


@jit
def _above_one(words, RIGHT: tl.constexpr):
    """1 + a 16th of the four bits that lie RIGHT above the top of a float's fraction."""
    words = words << -RIGHT if RIGHT < 0 else words >> RIGHT
    return ((words & 0x780000) | 0x3F800000).to(tl.float32, bitcast=True)


@jit
def above_one_int4(words, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS], 1 + a 16th of each code: so near to it that a zero point can be taken off in
    the same step as the 1, with no loss to speak of."""
    a = tl.join(_above_one(words, -19), _above_one(words, -3))
    b = tl.join(_above_one(words, -15), _above_one(words, 1))
    c = tl.join(_above_one(words, -11), _above_one(words, 5))
    d = tl.join(_above_one(words, -7), _above_one(words, 9))
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [ROWS, COLUMNS])


@jit
def scaled_int4(words, scale, zero, GROUP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS] float32, one multiplication and addition each. `scale` and `zero` have a
    column for each group in the tile."""
    WIDTH: tl.constexpr = GROUP if GROUP < COLUMNS else COLUMNS
    tile = tl.reshape(above_one_int4(words, ROWS, COLUMNS), [ROWS, COLUMNS // WIDTH, WIDTH])
    tile = tile * (scale * 16.0)[:, :, None] - (scale * (zero + 16.0))[:, :, None]
    return tl.reshape(tile, [ROWS, COLUMNS])
