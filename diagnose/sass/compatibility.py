"""Which GPUs run a binary, from the targets of its images: code as it is, PTX compiled when loaded, or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from diagnose.sass.binary import Image

# Data paths that came with sm_90 and later; Ampere's own are mma, ldmatrix and cp-async.
NEWER_PATHS = frozenset(
    {"tma", "tma-multicast", "wgmma", "sparse-wgmma", "fp8-wgmma", "setmaxnreg", "cluster", "dsm", "async-fence",
     "tcgen05", "tmem", "stmatrix", "dpx", "block-scaled-mma", "fp8-mma"}
)  # fmt: skip
AMPERE_PATHS = frozenset({"mma", "ldmatrix", "cp-async", "sparse-mma"})
# What only targets with a letter may use.
_TCGEN05, _BLOCK_SCALED = "tcgen05 and setmaxnreg", "block-scaled mma and setmaxnreg"
_LETTER_ONLY = {
    90: "wgmma and setmaxnreg",
    100: _TCGEN05,
    103: _TCGEN05,
    110: _TCGEN05,
    120: _BLOCK_SCALED,
    121: _BLOCK_SCALED,
}
_TARGET = re.compile(r"(sm|compute)_(\d+)([af]?)")


@dataclass(frozen=True)
class Runs:
    """How a GPU of compute capability `sm` runs the binary.

    `how` is code (as it is), ptx (compiled when loaded: slow start, and only what that PTX says) or no; `target` is
    the image that serves, `lost` what the GPU has that this target cannot use.
    """

    sm: int
    how: str
    target: str | None
    lost: str | None


def _parts(target: str) -> tuple[str, int, str] | None:
    match = _TARGET.fullmatch(target)
    return (match[1], int(match[2]), match[3]) if match else None


def serves(target: str, sm: int) -> bool:
    """Whether code or PTX for `target` runs on a GPU of compute capability `sm` (90)."""
    parts = _parts(target)
    if parts is None:
        return False
    kind, number, letter = parts
    family = number // 10 == sm // 10 and number <= sm
    if letter == "a":
        return number == sm
    if letter == "f":
        return family
    return family if kind == "sm" else number <= sm


def on(images: Iterable[Image], sm: int) -> Runs:
    """How a GPU of compute capability `sm` runs a binary with these images."""
    targets = {image.arch for image in images if image.kind in ("cubin", "ptx")}
    # The driver takes the nearest code; a letter of the very architecture is nearest.
    for kind, how in (("sm", "code"), ("compute", "ptx")):
        best = max(
            ((number, letter, target) for target in targets if (parts := _parts(target)) and serves(target, sm)
             for found, number, letter in (parts,) if found == kind),
            default=None,
        )  # fmt: skip
        if best is not None:
            number, letter, target = best
            lost = None
            if number != sm:
                lost = f"what sm_{sm} has beyond sm_{number}"
            elif not letter and sm in _LETTER_ONLY:
                lost = f"{_LETTER_ONLY[sm]} (only sm_{sm}a may use them)"
            return Runs(sm, how, target, lost)
    return Runs(sm, "no", None, None)


def table(images: Sequence[Image], sms: Iterable[int]) -> tuple[Runs, ...]:
    """How each GPU runs the binary."""
    return tuple(on(images, sm) for sm in sms)


def recompiled_ampere(paths: Iterable[str], sm: int | None) -> bool:
    """Whether code for sm_90 or later uses Ampere's paths and none of its own: it runs, and that is all."""
    found = set(paths)
    return sm is not None and sm >= 90 and bool(found & AMPERE_PATHS) and not found & NEWER_PATHS
