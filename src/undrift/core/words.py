"""Values and ranges in the words of a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def bounds(least: float = -math.inf, most: float = math.inf, above: float = -math.inf, below: float = math.inf) -> str:
    """A range in words.

    >>> bounds(least=0, most=1), bounds(above=0), bounds(least=0, below=0.5)
    ('between 0 and 1', 'above 0', 'at least 0 and below 0.5')
    """
    if least > -math.inf and most < math.inf:
        return f"between {brief(least)} and {brief(most)}"
    limits = (("at least", least), ("above", above), ("at most", most), ("below", below))
    return " and ".join(f"{word} {brief(value)}" for word, value in limits if math.isfinite(value))


def brief(value: float) -> str:
    """
    >>> brief(0.5), brief(1e9), brief(10**9), brief(2**63)
    ('0.5', '1e+09', '1,000,000,000', '2⁶³')
    """
    if isinstance(value, int) and abs(value) == 2**63:
        return "−2⁶³" if value < 0 else "2⁶³"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def shown(value: Any, most: int = 80) -> str:
    """A value as a sentence names it: on one line, and short, however long the value is.

    >>> shown("fast"), shown(10**5000), shown([1] * 99, most=12)
    ("'fast'", 'a number of 5,001 digits', '[1, 1, 1, 1…')
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**40:
        return f"a number of {int(value.bit_length() * math.log10(2)) + 1:,} digits"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a list that holds a long integer, or brackets a thousand deep
        return f"such a {type(value).__name__}"
    except Exception:
        return f"an object of {type(value).__name__}"
    return clipped(" ".join(text.split()), most)


def clipped(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def in_short(error: BaseException) -> str:
    """What an error of somebody else's code says, on one line that is not too long."""
    return clipped(" ".join(str(error).split()), 120)


def is_unicode(text: str) -> bool:
    """Whether a file can hold the text. What is typed in another encoding has bytes that stand for no character.

    >>> is_unicode("ρ"), is_unicode(b"\\xff".decode(errors="surrogateescape"))
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def some(names: Sequence[str], most: int = 4) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def clock(seconds: float) -> str:
    """A duration as text.

    >>> clock(75), clock(7500)
    ('75 s', '2 h 05 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
