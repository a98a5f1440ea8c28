"""Whether the fault of every pair is in the machine code that was built; needs no GPU.

    python3 tests/gpu/pair_code.py --binaries DIR

DIR holds the programs by name, as `corpus.py` builds them. Prints what is not as tests/data/fault_in_code.yaml says,
and exits 1 then. Needs nvdisasm (of a CUDA toolkit, or PyPI's wheel) and PyYAML.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import corpus

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import fault_code  # noqa: E402
from diagnose.collect.names import function_of  # noqa: E402
from diagnose.sass.binary import open_binary, read_image  # noqa: E402
from diagnose.sass.disassemble import disassemble  # noqa: E402


def opcodes(program: Path) -> dict[str, Counter[str]]:
    """Instructions of each function by opcode. Raises DiagnoseError for what is no CUDA program."""
    found: dict[str, Counter[str]] = {}
    for image in open_binary(program).cubins:
        for code in disassemble(read_image(program, image), program.name):
            found.setdefault(code.name, Counter()).update(one.opcode for one in code.instructions)
    return found


def of_kernel(kernel: dict[str, Any], code: dict[str, Counter[str]]) -> Counter[str]:
    """Of all instances of a kernel's function, together."""
    return sum((counts for name, counts in code.items() if function_of(name) == kernel["function"]), Counter())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--binaries", type=Path, required=True)
    options = parser.parse_args()
    kernels = {kernel["name"]: kernel for kernel in corpus.load(ROOT / "kernels", "")}
    pairs = [
        (kernel, kernels[kernel["twin"]])
        for kernel in kernels.values()
        if kernel.get("twin") in kernels and kernel.get("gain") is not False and kernel["expect"] != "quiet"
    ]
    programs = {corpus.slug(one["name"]): options.binaries / corpus.slug(one["name"]) for pair in pairs for one in pair}
    there = {name: path for name, path in programs.items() if path.is_file()}
    with ThreadPoolExecutor() as pool:
        code = dict(zip(there, pool.map(opcodes, there.values()), strict=True))
    told: Counter[str] = Counter()
    wrong = 0
    for fault, fix in pairs:
        first, second = (corpus.slug(one["name"]) for one in (fault, fix))
        verdict = fault["expect"]
        if first not in code or second not in code:
            told["not built"] += 1
            continue
        if "none" in fault_code.table()[verdict]:
            told["in no opcode"] += 1
            continue
        one_code = fault["function"] == fix["function"]
        problem = fault_code.problem(verdict, of_kernel(fault, code[first]), of_kernel(fix, code[second]), one_code)
        told["one code" if one_code else "two codes"] += 1
        if problem:
            wrong += 1
            print(f"NO {fault['name']} ({verdict}): {problem}")
    print(f"# {len(pairs)} kernels with a twin: {dict(told)}; {wrong} not as expected")
    return 1 if wrong or told["not built"] else 0


if __name__ == "__main__":
    sys.exit(main())
