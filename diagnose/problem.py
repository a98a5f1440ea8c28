"""What the user declares about the work: `--problem SPEC` and `--useful-flops N`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from diagnose.errors import DiagnoseError
from diagnose.model import Scalar

_SIZES = {
    "fp64": 8.0, "f64": 8.0, "double": 8.0, "fp32": 4.0, "f32": 4.0, "float": 4.0, "tf32": 4.0, "int32": 4.0,
    "fp16": 2.0, "f16": 2.0, "half": 2.0, "bf16": 2.0, "int16": 2.0, "fp8": 1.0, "e4m3": 1.0, "e5m2": 1.0, "int8": 1.0,
    "i8": 1.0, "fp4": 0.5, "int4": 0.5,
}  # fmt: skip
_CANONICAL = {
    "f64": "fp64", "double": "fp64", "f32": "fp32", "float": "fp32", "f16": "fp16", "half": "fp16", "fp8": "e4m3",
    "i8": "int8",
}  # fmt: skip
_FORMS = (
    "gemm:M,N,K[,TYPE][,nn|nt|tn|tt][,bias][,relu|gelu][,batch=B][,sparse] or "
    "attention:B,H,SQ,SK,D[,TYPE][,causal][,hkv=H] or bytes=N,flops=N "
    f"(types: {', '.join(('fp64', 'fp32', 'tf32', 'fp16', 'bf16', 'fp8', 'int8', 'fp4'))})"
)
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:[eE]\+?\d{1,2})?)([kKMGTP]?)")
_PREFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


_TRANSPOSITIONS = ("nn", "nt", "tn", "tt")  # of A (M x K) and B (K x N), row-major: t where it is kept transposed
_EPILOGUES = ("bias", "relu", "gelu")


@dataclass(frozen=True)
class Product:
    """A declared matrix product. `transposition` and `epilogue` as declared, empty where they were not."""

    m: int
    n: int
    k: int
    batch: int
    type: str
    transposition: str
    epilogue: tuple[str, ...]
    sparse: bool


@dataclass(frozen=True)
class Attention:
    """A declared attention forward pass; `kv_heads` of `heads` hold keys and values."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    dim: int
    type: str
    causal: bool


def _fail(spec: str, problem: str) -> DiagnoseError:
    return DiagnoseError(f"--problem {spec!r}: {problem}", f"--problem takes {_FORMS}")


def number(text: str, option: str) -> float:
    """A positive amount: 1000000, 1e9, 2.5T."""
    match = _NUMBER.fullmatch(text.strip())
    value = float(match[1]) * _PREFIX[match[2]] if match else math.nan
    if not math.isfinite(value) or value <= 0:
        raise DiagnoseError(f"{option} {text!r} is not an amount above 0", f"{option} 2.5e12, or with a prefix: 2.5T")
    return value


def _sizes(spec: str, words: list[str], names: tuple[str, ...]) -> dict[str, float]:
    if len(words) < len(names):
        raise _fail(spec, f"{', '.join(names[len(words) :])} missing")
    found = {}
    for name, word in zip(names, words, strict=False):
        if not re.fullmatch(r"\d{1,12}", word) or int(word) == 0:
            raise _fail(spec, f"{name} is {word!r}, not a whole number above 0 of 12 digits at most")
        found[name] = float(word)
    return found


def _causal_pairs(queries: float, keys: float) -> float:
    """Pairs of query and key under a causal mask that ends at the last key for the last query."""
    first = keys - queries + 1  # keys that the first query sees
    if first >= 1:
        return queries * (first + keys) / 2
    return keys * (keys + 1) / 2


def parse(spec: str) -> dict[str, Scalar]:
    """The declared facts of a problem: `useful_flops`, `useful_bytes`, `declared_sparse`, a product's `gemm_m` …"""
    text = spec.strip()
    family, colon, rest = text.partition(":")
    words = [word.strip() for word in (rest if colon else text).split(",") if word.strip()]
    settings = {w.split("=", 1)[0].strip().lower(): w.split("=", 1)[1].strip() for w in words if "=" in w}
    plain = [word for word in words if "=" not in word]
    if not colon:
        return _amounts(spec, plain, settings)
    if family == "gemm":
        return _gemm(spec, plain, settings)
    if family == "attention":
        return _attention(spec, plain, settings)
    raise _fail(spec, f"{family!r} is not a known problem")


def _amounts(spec: str, plain: list[str], settings: Mapping[str, str]) -> dict[str, Scalar]:
    if plain or not settings:
        raise _fail(spec, "it names no problem and no amounts")
    found: dict[str, Scalar] = {}
    for name, value in settings.items():
        if name not in ("bytes", "flops"):
            raise _fail(spec, f"{name!r} is neither bytes nor flops")
        found[f"useful_{name}"] = number(value, f"--problem {name}=")
    return found


def _options(spec: str, words: list[str], flags: tuple[str, ...], default: float) -> tuple[float, set[str]]:
    """Bytes a value, and the flags given."""
    size, given = default, set()
    for word in words:
        lower = word.lower()
        if lower in _SIZES:
            size = _SIZES[lower]
        elif lower in flags:
            given.add(lower)
        else:
            raise _fail(spec, f"{word!r} is not a type{' or ' + ' or '.join(flags) if flags else ''}")
    return size, given


def _setting(spec: str, settings: Mapping[str, str], name: str, default: float) -> float:
    if unknown := [key for key in settings if key != name]:
        raise _fail(spec, f"{unknown[0]!r} is not a setting of this problem")
    return _sizes(spec, [settings[name]], (name,))[name] if name in settings else default


def _gemm(spec: str, words: list[str], settings: Mapping[str, str]) -> dict[str, Scalar]:
    sizes = _sizes(spec, words, ("M", "N", "K"))
    size, flags = _options(spec, words[3:], ("sparse", *_TRANSPOSITIONS, *_EPILOGUES), 2.0)
    batch = _setting(spec, settings, "batch", 1.0)
    m, n, k = sizes["M"], sizes["N"], sizes["K"]
    found: dict[str, Scalar] = {
        "useful_flops": 2 * m * n * k * batch,
        # Each operand once and the result once, in the operands' type: a lower bound where the result is wider.
        "useful_bytes": (m * k + k * n + m * n) * size * batch,
        "gemm_m": m,
        "gemm_n": n,
        "gemm_k": k,
    }
    if "sparse" in flags:
        found["declared_sparse"] = True
    elif batch == 1 and not flags - set(_TRANSPOSITIONS):
        # The recorded times of the library are of such products: how an operand is kept changes them by a few per cent.
        type_ = next((word.lower() for word in words[3:] if word.lower() in _SIZES), "bf16")
        found["product_type"] = _CANONICAL.get(type_, type_)
    return found


def _attention(spec: str, words: list[str], settings: Mapping[str, str]) -> dict[str, Scalar]:
    sizes = _sizes(spec, words, ("B", "H", "SQ", "SK", "D"))
    size, flags = _options(spec, words[5:], ("causal",), 2.0)
    b, h, sq, sk, d = (sizes[name] for name in ("B", "H", "SQ", "SK", "D"))
    kv_heads = _setting(spec, settings, "hkv", h)
    pairs = _causal_pairs(sq, sk) if "causal" in flags else sq * sk
    return {
        "useful_flops": 4 * b * h * pairs * d,  # two products, two operations a multiply-add
        "useful_bytes": (2 * b * h * sq * d + 2 * b * kv_heads * sk * d) * size,
        "attention_rows": sq * h / kv_heads,  # queries that share a key
    }


def shape(spec: str) -> Product | Attention | None:
    """The declared problem itself, for what runs it again; None for bare amounts. Raises as `parse` does."""
    parse(spec)
    family, colon, rest = spec.strip().partition(":")
    if not colon:
        return None
    words = [word.strip().lower() for word in rest.split(",") if word.strip()]
    settings = {w.split("=", 1)[0].strip(): int(w.split("=", 1)[1]) for w in words if "=" in w}
    sizes = [int(word) for word in words if word.isdigit()]
    type_ = next((_CANONICAL.get(word, word) for word in words if word in _SIZES), "bf16")
    if family == "gemm":
        m, n, k = sizes
        return Product(
            m,
            n,
            k,
            settings.get("batch", 1),
            type_,
            next((word for word in words if word in _TRANSPOSITIONS), ""),
            tuple(word for word in _EPILOGUES if word in words),
            "sparse" in words,
        )
    b, h, sq, sk, d = sizes
    return Attention(b, h, settings.get("hkv", h), sq, sk, d, type_, "causal" in words)


def declared(problem: str | None, useful_flops: str | None) -> dict[str, Scalar]:
    """The facts that the options declare; `--useful-flops` wins over the problem's own count."""
    found = parse(problem) if problem else {}
    if useful_flops:
        found["useful_flops"] = number(useful_flops, "--useful-flops")
    return found
