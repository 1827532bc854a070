"""What each HVX operation means, written out by hand: loops over bytes in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Lanes = list[int]


def signed(value: int, bits: int) -> int:
    """The lowest ``bits`` of a number, as two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def lane(data: Sequence[int], index: int, size: int) -> int:
    """Lane ``index`` of ``size`` bytes, without sign."""
    value = 0
    for byte in range(size):
        value |= data[size * index + byte] << 8 * byte
    return value


def split(value: int, size: int) -> Lanes:
    """The bytes of a number, lowest first."""
    return [value >> 8 * byte & 255 for byte in range(size)]


def saturate(value: int, low: int, high: int) -> int:
    if value < low:
        return low
    return high if value > high else value


def vd0() -> Lanes:
    return [0] * 128


def lvsplatw(word: Lanes) -> Lanes:
    return [word[byte % 4] for byte in range(128)]


def lo(pair: Lanes) -> Lanes:
    return [pair[byte] for byte in range(128)]


def hi(pair: Lanes) -> Lanes:
    return [pair[128 + byte] for byte in range(128)]


def vshufoeb(u: Lanes, v: Lanes) -> Lanes:
    result = [0] * 256
    for half in range(64):
        result[2 * half] = v[2 * half]
        result[2 * half + 1] = u[2 * half]
        result[128 + 2 * half] = v[2 * half + 1]
        result[128 + 2 * half + 1] = u[2 * half + 1]
    return result


def vdealvdd(u: Lanes, v: Lanes, distances: int) -> Lanes:
    low, high = list(v), list(u)
    for distance in (64, 32, 16, 8, 4, 2, 1):
        if distances & distance:
            for byte in range(128):
                if not byte & distance:
                    high[byte], low[byte + distance] = low[byte + distance], high[byte]
    return low + high


def vrmpybusv_acc(sums: Lanes, u: Lanes, v: Lanes) -> Lanes:
    result: Lanes = []
    for word in range(32):
        total = lane(sums, word, 4)
        for byte in range(4 * word, 4 * word + 4):
            total += u[byte] * signed(v[byte], 8)
        result += split(total, 4)
    return result


def divide(values: Lanes, divisor: int) -> Lanes:
    result: Lanes = []
    for word in range(32):
        value = signed(lane(values, word, 4), 32)
        result += split(value // divisor if value >= 0 else -(-value // divisor), 4)
    return result


def vpackwh_sat(u: Lanes, v: Lanes) -> Lanes:
    result: Lanes = []
    for source in (v, u):
        for word in range(32):
            result += split(saturate(signed(lane(source, word, 4), 32), -(1 << 15), (1 << 15) - 1), 2)
    return result


def vpackhub_sat(u: Lanes, v: Lanes) -> Lanes:
    result: Lanes = []
    for source in (v, u):
        for half in range(64):
            result.append(saturate(signed(lane(source, half, 2), 16), 0, 255))
    return result


def vshuffb(values: Lanes) -> Lanes:
    result = [0] * 128
    for half in range(64):
        result[2 * half] = values[half]
        result[2 * half + 1] = values[64 + half]
    return result


MEANINGS: dict[str, Callable[..., Lanes]] = {
    function.__name__: function
    for function in (
        vd0, lvsplatw, lo, hi, vshufoeb, vdealvdd, vrmpybusv_acc, divide, vpackwh_sat, vpackhub_sat, vshuffb,
    )
}  # fmt: skip
"""By the operation's name."""
