"""Reads an executed-opcode histogram: data paths taken, bytes asked for by loads and stores, shares of families."""

from __future__ import annotations

import re
from collections.abc import Mapping

from diagnose.sass.text import matches

# Path name (contract) -> opcode prefixes that prove it. `*` takes any continuation of the name.
PATHS: Mapping[str, tuple[str, ...]] = {
    "mma": ("HMMA",),
    "fp8-mma": ("QMMA",),
    "block-scaled-mma": ("OMMA", "QMMA.SF", "OMMA.SF"),
    "int-mma": ("IMMA", "BMMA", "IGMMA", "BGMMA"),
    "fp64-mma": ("DMMA",),
    "ldmatrix": ("LDSM",),
    "stmatrix": ("STSM",),
    "cp-async": ("LDGSTS",),
    "mbarrier": ("SYNCS",),
    "tma": ("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED"),
    "wgmma": ("HGMMA", "QGMMA", "IGMMA", "BGMMA"),
    "fp8-wgmma": ("QGMMA",),
    "setmaxnreg": ("USETMAXREG",),
    "cluster": ("UCGABAR_ARV", "UCGABAR_WAIT"),
    "async-fence": ("FENCE.VIEW.ASYNC",),
    "tcgen05": ("UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA", "UTCBAR", "UTCCP"),
    "tmem": ("LDTM", "STTM", "UTCATOMSWS"),
    "dpx": ("VIADDMNMX", "VIMNMX3", "VIADDMNMX*", "VIMNMX3*"),
}


def paths(opcodes: Mapping[str, float]) -> tuple[str, ...]:
    """Sorted contract path names that the executed opcodes prove."""
    found = {
        name for name, prefixes in PATHS.items() if any(matches(op, prefix) for op in opcodes for prefix in prefixes)
    }
    for opcode in opcodes:
        parts = opcode.split(".")
        # Modifiers decide: HMMA.SP and HGMMA.SP read 2:4 data, UTMALDG….MULTICAST writes several CTAs.
        if parts[0] == "HMMA" and "SP" in parts:
            found.add("sparse-mma")
        if parts[0] in {"HGMMA", "QGMMA", "IGMMA"} and "SP" in parts:
            found.add("sparse-wgmma")
        if parts[0] in {"UTMALDG", "UBLKCP"} and "MULTICAST" in parts:
            found.add("tma-multicast")
    return tuple(sorted(found))


def count(opcodes: Mapping[str, float], *prefixes: str) -> float:
    """Executed warp (or thread) instructions whose opcode begins with one of the dotted prefixes."""
    return sum(n for opcode, n in opcodes.items() if any(matches(opcode, prefix) for prefix in prefixes))


def access_bytes(opcode: str) -> int:
    """Bytes that one lane asks for with a load or store opcode: LDG.E.128 -> 16, LDG.E.U16 -> 2, LDG.E -> 4."""
    parts = opcode.split(".")
    if "128" in parts:
        return 16
    if "64" in parts:
        return 8
    if "U16" in parts or "S16" in parts or "16" in parts:
        return 2
    if "U8" in parts or "S8" in parts or "8" in parts:
        return 1
    return 4


def bytes_asked(thread_opcodes: Mapping[str, float], *bases: str) -> float:
    """Bytes that all executed lanes asked for by instructions with one of the base opcodes (LDG, LDGSTS, STG …)."""
    return sum(n * access_bytes(opcode) for opcode, n in thread_opcodes.items() if opcode.split(".", 1)[0] in bases)


_GMMA = re.compile(r"^(?:HGMMA|QGMMA|IGMMA)(?:\.SP)?\.(\d+)x(\d+)x(\d+)\b")


def wgmma_n(opcodes: Mapping[str, float]) -> int | None:
    """N of the wgmma shape that does most of the work (executed count times N); None without wgmma."""
    work: dict[int, float] = {}
    for opcode, n in opcodes.items():
        match = _GMMA.match(opcode)
        if match:
            size = int(match.group(2))
            work[size] = work.get(size, 0.0) + n * size
    return max(work, key=lambda size: work[size]) if work else None
