"""Numbers, units and names as text: shared by every renderer, so that a value reads the same everywhere.

A value that was not measured (None, NaN, infinite, missing) becomes the words of NOT_MEASURED, never 0 or "None".
SI prefixes throughout: 1 GB = 10⁹ bytes.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

NOT_MEASURED = "not measured"

#: The sign and word of each class: the sign is never the only carrier, and neither is colour.
CLASS_SIGN = {"implementation": "▲", "fit": "◆", "hardware": "■", "unknown": "○"}
CLASS_WORD = {"implementation": "implementation", "fit": "fit", "hardware": "hardware limit", "unknown": "unknown"}
SEVERITY_SIGN = {"critical": "‼", "warning": "!", "note": "·"}

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SI_UNITS = {
    "byte": "B",
    "bytes": "B",
    "b": "B",
    "byte/s": "B/s",
    "bytes/s": "B/s",
    "byte/second": "B/s",
    "b/s": "B/s",
    "flop": "FLOP",
    "flops": "FLOP",
    "flop/s": "FLOP/s",
    "flops/s": "FLOP/s",
    "op": "OP",
    "ops": "OP",
    "op/s": "OP/s",
    "ops/s": "OP/s",
    "hz": "Hz",
}
_SHARES = {"share", "fraction", "utilization"}
_PLAIN = {"", "1", "ratio", "count", "number", "int", "bool", "text", "none"}
_PERCENT = {"%", "pct", "percent"}
_TIMES_US = {
    "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "µs": 1.0, "usecond": 1.0,
    "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6,
}  # fmt: skip
_COUNTABLE = re.compile(
    r"^(warp inst|thread inst|inst|cycle|sector|request|wavefront|sample|element|block|thread|warp)s?(/s)?$"
)

_RESOURCE_NAMES = {
    "hbm": "HBM",
    "dram": "DRAM",
    "l2": "L2",
    "l1": "L1",
    "shared": "Shared memory",
    "smem": "Shared memory",
    "tensor": "Tensor pipe",
    "fp32": "FP32 pipe",
    "fp64": "FP64 pipe",
    "fp16": "FP16 pipe",
    "int": "Integer pipe",
    "alu": "ALU pipe",
    "fma": "FMA pipe",
    "xu": "Special functions",
    "sfu": "Special functions",
    "issue": "Issue slots",
    "lsu": "Load/store issue",
    "nvlink": "NVLink",
    "library": "Library",
}


def number(value: object) -> float | None:
    """`value` as a finite number, or None for anything else (booleans and texts too)."""
    if type(value) is float:  # by far the most
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def digits(value: float, significant: int = 3) -> str:
    """Plain decimal notation with `significant` digits and thousands separators: 0.0123, 1.23, 12.3, 123, 1,234."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e18 or size < 1e-6:
        return f"{value:.{significant - 1}e}"
    if size >= 10 ** (significant - 1):
        return f"{value:,.0f}"
    exponent = math.floor(math.log10(size))
    decimals = significant - 1 - exponent
    text = f"{value:,.{decimals}f}"
    if abs(float(text.replace(",", ""))) >= 10 ** (exponent + 1):  # 9.999 rounds up to one digit more
        text = f"{value:,.{max(decimals - 1, 0)}f}"
    return text


def count(value: object) -> str:
    """A whole number with separators; a fraction keeps three digits."""
    found = number(value)
    if found is None:
        return NOT_MEASURED
    if abs(found) < 1e15 and found == int(found):
        return f"{int(found):,}"
    return digits(found)


def _scaled(value: float, unit: str, gap: str = "") -> str:
    size = abs(value)
    for factor, prefix in _PREFIXES:
        if size >= factor * 0.9995:
            return f"{digits(value / factor)} {prefix}{gap if prefix else ''}{unit}"
    return f"{digits(value) if value != int(value) else int(value)} {unit}"


def duration(us: object) -> str:
    """Microseconds as µs, ms or s with three digits."""
    value = number(us)
    if value is None:
        return NOT_MEASURED
    size = abs(value)
    if size < 0.001 and size > 0:
        return f"{digits(value * 1e3)} ns"
    if size < 999.5:
        return f"{digits(value)} µs"
    if size < 999.5e3:
        return f"{digits(value / 1e3)} ms"
    return f"{digits(value / 1e6)} s"


def share(value: object) -> str:
    """A share of 1 as per cent; a decimal only where it tells something (below 10 %, just below 100 %)."""
    found = number(value)
    if found is None:
        return NOT_MEASURED
    return percent(found * 100)


def percent(value: object) -> str:
    """A number of per cent; see `share`."""
    found = number(value)
    if found is None:
        return NOT_MEASURED
    size = abs(found)
    if size == 0:
        return "0 %"
    if size < 0.05:
        return "<0.1 %" if found > 0 else ">−0.1 %"
    if size < 9.95 or 99.05 <= size < 99.95:
        return f"{found:.1f} %"
    return f"{found:,.0f} %"


def times(value: object) -> str:
    """A factor with the multiplication sign: 1.54×, 12.3×."""
    found = number(value)
    if found is None:
        return NOT_MEASURED
    return f"{found:.2f}×" if abs(found) < 9.995 else f"{digits(found)}×"


def times_range(low: object, high: object) -> str:
    """An interval of factors: 1.31–1.90×; one end only: "from 1.31×"."""
    first, last = number(low), number(high)
    if first is None and last is None:
        return NOT_MEASURED
    if last is None:
        return f"from {times(first)}"
    if first is None:
        return f"up to {times(last)}"
    if times(first) == times(last):
        return times(first)
    return f"{times(first)[:-1]}–{times(last)}"


def speedup(value: object) -> str:
    """A speedup object of the contract: "1.54× (1.31–1.90×)"."""
    if not isinstance(value, Mapping):
        return NOT_MEASURED
    expected, low, high = number(value.get("expected")), number(value.get("low")), number(value.get("high"))
    if expected is None:
        return times_range(low, high)
    if low is None and high is None:
        return times(expected)
    return f"{times(expected)} ({times_range(low, high)})"


def quantity(value: object, unit: object = "") -> str:
    """A fact's or metric's value with its unit: text stays text, shares become per cent, bytes get SI prefixes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value if value else "empty text"
    found = number(value)
    if found is None:
        return NOT_MEASURED
    name = unit.strip() if isinstance(unit, str) else ""
    key = name.lower()
    if key in _PLAIN:
        return count(found)
    if key in _SHARES:
        return share(found)
    if key in _PERCENT:
        return percent(found)
    if key in {"x", "×", "times"}:
        return times(found)
    if key in _TIMES_US:
        return duration(found * _TIMES_US[key])
    if key in _SI_UNITS:
        return _scaled(found, _SI_UNITS[key])
    if key in {"flop/byte", "op/byte"}:
        return f"{digits(found)} {name.split('/')[0].upper()}/B"
    if key == "ghz":
        return f"{digits(found)} GHz"
    if key == "mhz":
        return _scaled(found * 1e6, "Hz")
    if _COUNTABLE.match(key) and abs(found) >= 1e6:
        return _scaled(found, name, " ")
    return f"{count(found)} {name}"


def intensity(value: object) -> str:
    """Arithmetic intensity."""
    return quantity(value, "flop/byte")


def resource(value: object) -> str:
    """The readable name of a resource id (`hbm` → HBM); unknown ids stay as they are."""
    if not isinstance(value, str) or not value:
        return NOT_MEASURED
    return _RESOURCE_NAMES.get(value.lower(), value)


def words(value: object) -> str:
    """An id as words: long_scoreboard → long scoreboard."""
    return value.replace("_", " ") if isinstance(value, str) and value else NOT_MEASURED


def _visible(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def clean(text: str, newlines: bool = False) -> str:
    """`text` with every invisible or direction-changing character written out: ESC as \\x1b, U+202E as \\u202e.

    With `newlines`, line breaks and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return _cleaned(text, newlines) if len(text) < _KEPT_TEXT else _clean(text, newlines)


# The texts of rules and the labels of charts come back for every kernel; names and source lines are longer or few.
_KEPT_TEXT = 4_000


@lru_cache(maxsize=4096)
def _cleaned(text: str, newlines: bool) -> str:
    return _clean(text, newlines)


def _clean(text: str, newlines: bool) -> str:
    kept: list[str] = []
    for char in text:
        if char == "\t" or (newlines and char == "\n"):
            kept.append(char if newlines else " ")
        elif unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
            kept.append(_visible(char))
        else:
            kept.append(char)
    return "".join(kept)


def shorten(text: object, limit: int = 80) -> str:
    """`text` cleaned and cut in the middle to at most `limit` characters, so that both ends stay readable."""
    if not isinstance(text, str):
        return NOT_MEASURED
    if len(text) > 4 * limit:  # a 100 kB name is not cleaned character by character
        text = text[: 2 * limit] + "…" + text[-2 * limit :]
    text = clean(text)
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 3
    return f"{text[: limit - 1 - tail].rstrip()}…{text[len(text) - tail :].lstrip()}"


def dims(value: object) -> str:
    """A grid or block: 32 × 4 × 16, with trailing ones left out."""
    if not isinstance(value, list | tuple) or not value:
        return NOT_MEASURED
    parts = [number(part) for part in value]
    if any(part is None for part in parts):
        return NOT_MEASURED
    while len(parts) > 1 and parts[-1] == 1:
        parts.pop()
    return " × ".join(count(part) for part in parts)


def condition(evidence: Mapping[str, Any]) -> str:
    """An evaluated condition as text: "31 sector/request > 4 sector/request"."""
    unit = evidence.get("unit")
    value = quantity(evidence.get("value"), unit)
    operator = OPERATORS.get(str(evidence.get("op")), "")
    threshold = evidence.get("threshold")
    if not operator or threshold is None or (number(threshold) is None and not isinstance(threshold, str | bool)):
        return value
    return f"{value} {operator} {quantity(threshold, unit)}"


OPERATORS = {">": ">", "<": "<", ">=": "≥", "<=": "≤", "==": "=", "=": "=", "!=": "≠", "in": "in", "not in": "not in"}
