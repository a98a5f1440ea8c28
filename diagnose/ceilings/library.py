"""The library's own time for the declared problem, on this machine: a mark that a kernel can be held against.

A matrix product runs by cuBLASLt (kernels/ceilings/library.cu: the same shape, type, transposition, epilogue and
batch), attention by PyTorch's cuDNN or FlashAttention kernels, where the program's own Python has PyTorch. What cannot
be run is said and is no limit: nothing is guessed.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from diagnose import problem
from diagnose.bundled import bundled
from diagnose.ceilings.measure import run_program, single
from diagnose.ceilings.record import Measured, Refused
from diagnose.collect import host
from diagnose.collect.kernels import build_kernel
from diagnose.errors import DiagnoseError
from diagnose.model import Scalar

_SECONDS = 120.0  # building aside; a product of 65,536 cubed in FP64 takes ten seconds a launch at most
_PRODUCT_TYPES = ("bf16", "fp16", "e4m3", "tf32", "fp32", "fp64")
_ATTENTION_TYPES = ("bf16", "fp16")
_PYTHON = re.compile(r"python(3(\.\d+)?)?")


def _product_words(p: problem.Product) -> list[str]:
    # cuBLASLt multiplies FP8 only with B kept transposed; for the other types A and B as they are declared, or plain.
    transposition = p.transposition or ("nt" if p.type == "e4m3" else "nn")
    sizes = {"m": p.m, "n": p.n, "k": p.k, "batch": p.batch}
    words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    return [*words, "--type", p.type, "--transpose", transposition, "--epilogue", "-".join(p.epilogue) or "none"]


def _product(p: problem.Product, capability: int, progress: Callable[[str], None]) -> list[Measured | Refused]:
    if p.type not in _PRODUCT_TYPES:
        return [Refused("library", f"{p.type} is not among its types ({', '.join(_PRODUCT_TYPES)})")]
    built = build_kernel(single("library", f"sm_{capability}"), None, progress)
    return run_program("library", [built, *_product_words(p)], _SECONDS)


def interpreter(target: Sequence[str]) -> str:
    """The Python to ask for PyTorch: the program's own where it is one, else the one on PATH, else this one."""
    own = next((word for word in target[:1] if _PYTHON.fullmatch(Path(word).name)), None)
    return own or shutil.which("python3") or sys.executable


def _attention(p: problem.Attention, target: Sequence[str]) -> list[Measured | Refused]:
    if p.type not in _ATTENTION_TYPES:
        return [Refused("library", f"{p.type} is not among its types ({', '.join(_ATTENTION_TYPES)})")]
    if p.causal and p.queries != p.keys:
        return [Refused("library", "PyTorch masks unequal lengths from the first key on, not up to the last")]
    script = bundled("kernels") / "ceilings" / "library_attention.py"
    sizes = (p.batch, p.heads, p.kv_heads, p.queries, p.keys, p.dim)
    words: list[str | Path] = [interpreter(target), script, *map(str, sizes), p.type, str(int(p.causal))]
    return run_program("library", words, _SECONDS)


def declared(
    spec: str | None, target: Sequence[str], progress: Callable[[str], None]
) -> tuple[Mapping[str, Scalar], list[str]]:
    """({`library_us`: the library's time for the declared problem}, warnings); empty where it cannot be run."""
    shape = problem.shape(spec) if spec else None
    if shape is None:
        return {}, []
    present = host.gpus()
    if not present or present[0].capability is None:
        return {}, ["the library was not run on the declared problem: nvidia-smi names no GPU here"]
    progress("running the library on the declared problem")
    try:
        found = (
            _product(shape, present[0].capability, progress)
            if isinstance(shape, problem.Product)
            else _attention(shape, target)
        )
    except DiagnoseError as error:
        found = [Refused("library", error.message)]
    times = [one.value for one in found if isinstance(one, Measured) and one.unit == "s" and one.value > 0]
    if times:
        return {"library_us": times[0] * 1e6}, []
    why = next((one.reason for one in found if isinstance(one, Refused)), "it printed no time")
    return {}, [f"the library was not run on the declared problem: {why}"]
