"""Pitfalls of asynchronous copies and wgmma that the code alone can hint at. Each says "may": a wait or a fence can
also stand in another kernel, behind a call, or be unnecessary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.sass.cfg import WGMMA
from diagnose.sass.disassemble import Instruction

_STORES = frozenset({"STS", "STSM"})
_VALUE = re.compile(r"\b(0x[0-9a-f]+)\s*$")


@dataclass(frozen=True)
class Pitfall:
    """What may be wrong, and the instruction to look at."""

    name: str
    text: str
    at: Instruction


def pitfalls(code: Sequence[Instruction]) -> tuple[Pitfall, ...]:
    """Every pitfall that the code of a kernel hints at."""
    found: list[Pitfall] = []
    fenced = any(i.opcode.startswith("FENCE.VIEW.ASYNC") and "T" not in i.opcode.split(".") for i in code)
    stored = [i for i in code if i.base in _STORES]
    if stored and not fenced:
        out = next((i for i in code if i.base in {"UTMASTG", "UTMAREDG"} or i.opcode.startswith("UBLKCP.G.S")), None)
        if out is not None:
            found.append(
                Pitfall(
                    "async-fence",
                    "TMA may read shared memory before ordinary stores to it are visible: no fence.proxy.async",
                    out,
                )
            )
        # Without a TMA load, what wgmma reads in shared memory was stored there by the threads.
        loads = any(i.base == "UTMALDG" or i.opcode.startswith("UBLKCP.S.G") for i in code)
        reads = next((i for i in code if i.base in WGMMA and "gdesc" in i.text), None)
        if reads is not None and not loads:
            found.append(
                Pitfall(
                    "async-fence",
                    "wgmma may read shared memory before ordinary stores to it are visible: no fence.proxy.async",
                    reads,
                )
            )
    committed = next((i for i in code if i.base == "LDGDEPBAR"), None)
    copied = next((i for i in code if i.base == "LDGSTS"), None)
    waited = any(
        i.base == "DEPBAR" or i.opcode.startswith("SYNCS") or i.opcode.startswith("ATOMS.ARRIVE") for i in code
    )
    if copied is not None and not waited:
        what = "are committed" if committed is not None else "are issued"
        found.append(
            Pitfall(
                "copy-wait", f"cp.async copies {what} and may never be waited for in this kernel", committed or copied
            )
        )
    found += _setmaxnreg(code)
    return tuple(found)


def _setmaxnreg(code: Sequence[Instruction]) -> list[Pitfall]:
    """A kernel that raises a warp group's registers has to lower another's first, or the raise waits for ever."""
    raised = [i for i in code if i.base == "USETMAXREG" and "TRY_ALLOC" in i.opcode]
    lowered = [i for i in code if i.base == "USETMAXREG" and "DEALLOC" in i.opcode]
    if raised and not lowered:
        match = _VALUE.search(raised[0].text)
        amount = f" to {int(match[1], 16)}" if match else ""
        text = f"setmaxnreg raises registers{amount}, and no warp group gives any back: it may wait for ever"
        return [Pitfall("setmaxnreg-order", text, raised[0])]
    return []
