"""Human-readable formatting of numbers."""

from __future__ import annotations

import math

_SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_WORDS = ((1e9, " billion"), (1e6, " million"))


def compact(number: float) -> str:
    """Format with at most three digits and a suffix: 950, 2k, 12.5k, 1.6M."""
    for scale, letter in _SCALES:
        # Slightly below the scale, since 999.6 thousand is rounded to 1M, not 1000k.
        if abs(number) >= scale * 0.9995:
            return f"{_three_digits(number / scale)}{letter}"
    return _three_digits(number)


def exact(number: float) -> str:
    """Format with all digits and a suffix: 950, 12.5k, 100.25k."""
    for scale, letter in _SCALES:
        if abs(number) >= scale:
            return f"{number / scale:.12g}{letter}"
    return f"{number:.12g}"


def amount(number: float) -> str:
    """Format a large number in words: 1.64 billion, 38.1 million, 52,100."""
    for scale, word in _WORDS:
        if number >= scale:
            return f"{number / scale:.3g}{word}"
    return f"{number:,.0f}"


def plural(number: int, noun: str) -> str:
    """Format a number with its noun: 1 step, 2,000 steps."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: 3 d 4 h, 12 h 5 min, 4 min 10 s, 9.5 s."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def percent(fraction: float) -> str:
    """Format a fraction as a percentage, with more places for small ones: 12%, 3.4%, 0.06%."""
    places = 0 if not fraction or abs(fraction) >= 0.0995 else 1 if abs(fraction) >= 0.00995 else 2
    return f"{fraction:.{places}%}"


def power(number: float) -> str:
    """Format a small number in scientific notation: 1e-4, 2.5e-5, 0."""
    if not number:
        return "0"
    digits, exponent = f"{number:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}"


def _three_digits(number: float) -> str:
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    places = max(0, 2 - math.floor(math.log10(abs(number))))
    text = f"{number:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
