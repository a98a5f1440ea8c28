"""Writes docs/architectures.md: the GPUs of the articles beside each other, and what changes for a kernel that moves.

python tests/gen_architectures.py            writes the file
python tests/gen_architectures.py --check    says whether it is up to date

Every number comes from diagnose/gpus (data sheets and white papers, named at the end of the page) or is computed of it
by the functions that diagnose itself uses: occupancy, stages of shared memory, ridge points.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import yaml

from diagnose.advice import SHARED_LANES, break_even_bytes, stage_budget
from diagnose.expr import COMPARISONS
from diagnose.gpus import catalogue
from diagnose.gpus.catalogue import Architecture, Product
from diagnose.occupancy import Block, resident
from diagnose.render.format import digits
from diagnose.sass import tcgen05

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "architectures.md"
#: Where the articles speak of it: `file#heading`.
ARTICLES = (
    "000_3ce42bb8a7855e69#先把演进关系画对",
    "000_3ce42bb8a7855e69#相比 Volta/Turing，硬件改变了什么",
    "000_3ce42bb8a7855e69#相比 GA10x/Ampere，硬件改变了什么",
    "000_3ce42bb8a7855e69#相比 A100/Ampere，硬件改变了什么",
    "000_3ce42bb8a7855e69#从 Ampere kernel 迁移时怎么判断",
    "000_3ce42bb8a7855e69#Ampere → Ada：先复用，再按 L2/FP8 重调",
    "000_3ce42bb8a7855e69#Ampere → Hopper：兼容运行不等于原生迁移",
    "002_81d68bc01aff1bfb#4. Blackwell上的变化：tcgen05与异步模型的演进",
)
GPUS = (
    "v100-sxm2", "t4", "a100-sxm4-40gb", "rtx-3090-ti", "rtx-4090", "h100-sxm", "h800-sxm", "h800-pcie", "h200", "b200",
)  # fmt: skip
MOVES = (
    ("v100-sxm2", "a100-sxm4-40gb"), ("t4", "a100-sxm4-40gb"), ("a100-sxm4-40gb", "rtx-3090-ti"),
    ("rtx-3090-ti", "rtx-4090"), ("a100-sxm4-40gb", "rtx-4090"), ("a100-sxm4-40gb", "h100-sxm"),
    ("h100-sxm", "h800-sxm"), ("h100-sxm", "h200"), ("h200", "b200"),
)  # fmt: skip
TILE = 32 * 1024  # 128 x 128 values of 16 bit: the article's tile
BLOCK = Block(threads=256, registers=128, shared_bytes=0)  # the article's block: two fit 64 K registers
_TMEM = tcgen05.COLUMNS * 128 * 4  # bytes: 128 lanes of 4 bytes in each column (PTX ISA, Tensor Memory)
_SAME = 0.05  # ridge points that differ by less are told apart by no kernel
_MISSING = "–"
_WIDTH = 120


def product(name: str) -> Product:
    """A product by its id."""
    return next(gpu for gpu in catalogue.products() if gpu.id == name)


def sixteen_bit(gpu: Product) -> float | None:
    """The dense 16-bit Tensor peak with FP32 accumulation: FP16, and BF16 where it exists."""
    return gpu.peaks.get("fp16")


def ridge(gpu: Product, kind: str) -> float | None:
    """Operations for each byte of memory from which on the peak of that type, and not the memory, is the limit."""
    peak = gpu.peaks.get(kind)
    return peak / gpu.memory_bytes_per_s if peak is not None and gpu.memory_bytes_per_s else None


def stages_alone(arch: Architecture) -> int | None:
    """Stages of the article's tile that one block an SM has room for."""
    if arch.shared_per_sm is None:
        return None
    found = stage_budget(TILE, arch.shared_per_sm, arch.shared_reserved_per_block or 0, 0, arch.shared_per_block)
    return found[0][1] if found else 0


def recompiled(gpu: Product, arch: Architecture) -> float | None:
    """The 16-bit peak that code of the warp-level mma reaches: its path's rate over the best path's."""
    best = max(
        (rate for key, rate in arch.tensor.items() if key.endswith(":fp16") and "sparse" not in key), default=None
    )
    own, peak = arch.tensor.get("mma:fp16"), sixteen_bit(gpu)
    return peak * own / best if own and best and peak else None


# --- pieces of text ---


def _number(value: float | None, factor: float = 1.0, suffix: str = "") -> str:
    if value is None:
        return _MISSING
    scaled = value / factor
    return f"{int(scaled):,}{suffix}" if scaled == int(scaled) else f"{digits(scaled)}{suffix}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    marks = ["---", *["--:"] * (len(head) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (head, marks, *rows)]


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _bullet(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


@dataclass(frozen=True)
class Row:
    """A line of a comparison: its value for a GPU, shown in `factor` of its unit with `suffix`."""

    label: str
    value: Callable[[Product, Architecture], float | None]
    factor: float = 1.0
    suffix: str = ""


ROWS: tuple[Row, ...] = (
    Row("SMs", lambda gpu, _: gpu.sm_count),
    Row("Boost clock", lambda gpu, _: gpu.boost_hz, 1e9, " GHz"),
    Row("FP32", lambda gpu, _: gpu.peaks.get("fp32"), 1e12, " TFLOP/s"),
    Row("FP64", lambda gpu, _: gpu.peaks.get("fp64"), 1e12, " TFLOP/s"),
    Row("16-bit Tensor", lambda gpu, _: sixteen_bit(gpu), 1e12, " TFLOP/s"),
    Row("TF32 Tensor", lambda gpu, _: gpu.peaks.get("tf32"), 1e12, " TFLOP/s"),
    Row("FP8 Tensor", lambda gpu, _: gpu.peaks.get("fp8"), 1e12, " TFLOP/s"),
    Row("FP4 Tensor", lambda gpu, _: gpu.peaks.get("fp4"), 1e12, " TFLOP/s"),
    Row("Memory", lambda gpu, _: gpu.memory_bytes_per_s, 1e9, " GB/s"),
    Row("L2", lambda gpu, _: gpu.l2_bytes, 2**20, " MB"),
    Row("NVLink", lambda gpu, _: gpu.nvlink_bytes_per_s, 1e9, " GB/s"),
    Row("Shared memory an SM", lambda _, arch: arch.shared_per_sm, 1024, " KB"),
    Row("Registers an SM", lambda _, arch: arch.registers_per_sm * 4 if arch.registers_per_sm else None, 1024, " KB"),
    Row("Tensor Memory an SM", lambda _, arch: _TMEM if arch.has("tmem") else None, 1024, " KB"),
    Row("Warps an SM", lambda _, arch: arch.max_warps_per_sm),
    Row("Ridge, 16 bit", lambda gpu, _: ridge(gpu, "fp16"), 1.0, " FLOP/B"),
    Row("Ridge, FP8", lambda gpu, _: ridge(gpu, "fp8"), 1.0, " FLOP/B"),
    Row("Ridge, FP32", lambda gpu, _: ridge(gpu, "fp32"), 1.0, " FLOP/B"),
    Row("Stages of a 32 KB tile, one block", lambda _, arch: stages_alone(arch)),
)
_KINDS = ("fp16", "bf16", "tf32", "fp8", "fp4", "int8", "fp64")
_LIMITS: tuple[tuple[str, Callable[[Architecture], float | None]], ...] = (
    ("Warps", lambda arch: arch.max_warps_per_sm),
    ("Blocks", lambda arch: arch.max_blocks_per_sm),
    ("Shared memory an SM (KB)", lambda arch: arch.shared_per_sm / 1024 if arch.shared_per_sm else None),
    (
        "Shared memory a block at most (KB)",
        lambda arch: arch.shared_per_block / 1024 if arch.shared_per_block else None,
    ),
    ("FP32 lanes", lambda arch: arch.rates.get("fp32")),
    ("Integer lanes", lambda arch: arch.rates.get("int32")),
    ("FP64 lanes", lambda arch: arch.rates.get("fp64")),
    ("Special functions a cycle", lambda arch: arch.rates.get("sfu")),
    ("Load/store lanes", lambda arch: arch.rates.get("lsu")),
)


def _pair(name: str) -> tuple[Product, Architecture]:
    gpu = product(name)
    return gpu, catalogue.architecture(gpu.sm)


def _shown(row: Row, name: str) -> str:
    return _number(row.value(*_pair(name)), row.factor, row.suffix)


def comparison(before: str, after: str) -> list[tuple[str, str, str, str]]:
    """Label, the two values and their ratio, for every row that differs."""
    found = []
    for row in ROWS:
        old, new = row.value(*_pair(before)), row.value(*_pair(after))
        if old == new:
            continue
        ratio = f"{digits(new / old)}×" if old and new is not None else "new" if new is not None else "gone"
        found.append((row.label, _shown(row, before), _shown(row, after), ratio))
    return found


# --- what changes ---


def changes(before: str, after: str) -> list[str]:
    """What a kernel that moves has to expect, in sentences computed of the two entries."""
    (old, old_arch), (new, new_arch) = _pair(before), _pair(after)
    said = [*_bounds(old, new), *_others(old, new), *_paths(old_arch, new_arch), *_tensor(old, new, new_arch)]
    return [*said, *_room(old_arch, new_arch), *_lanes(old_arch, new_arch), *_l2(old, new)]


def _bounds(old: Product, new: Product) -> list[str]:
    was, now = ridge(old, "fp16"), ridge(new, "fp16")
    peaks = _ratio(sixteen_bit(old), sixteen_bit(new))
    memory = _ratio(old.memory_bytes_per_s, new.memory_bytes_per_s)
    if was is None or now is None or peaks is None or memory is None:
        return []
    said = [
        f"The 16-bit Tensor peak {_times(peaks)}, the memory bandwidth {_times(memory)}: what products and streams get."
    ]
    low, high = sorted((was, now))
    if abs(now / was - 1) < _SAME:
        said.append(f"The 16-bit ridge stays near {now:.0f} FLOP/B: what limits a kernel stays.")
    elif now > was:
        said.append(
            f"The 16-bit ridge goes from {was:.0f} to {now:.0f} FLOP/B: kernels between the two were bound by the "
            f"Tensor Cores and are bound by memory; staying needs {digits(now / was)} times the reuse."
        )
    else:
        said.append(
            f"The 16-bit ridge goes from {was:.0f} to {now:.0f} FLOP/B: kernels between {low:.0f} and {high:.0f} "
            "were bound by memory and may be bound by the Tensor Cores."
        )
    if (narrow := ridge(new, "fp8")) is not None and "fp8" not in old.peaks:
        said.append(f"With FP8 the ridge is {narrow:.0f} FLOP/B: half of the bytes a value, and twice the operations.")
    return said


def _ratio(old: float | None, new: float | None) -> float | None:
    return new / old if old and new is not None else None


def _times(ratio: float) -> str:
    return "stays" if ratio == 1 else f"becomes {ratio:.3g} times as high"


def _others(old: Product, new: Product) -> list[str]:
    """Rates that only some kernels live on: doubles, and the links between GPUs."""
    said = []
    doubles = _ratio(old.peaks.get("fp64"), new.peaks.get("fp64"))
    if doubles is not None and doubles < 0.5:
        said.append(f"FP64 falls to {doubles:.2g} of what it was: kernels in double precision become bound by it.")
    links = _ratio(old.nvlink_bytes_per_s, new.nvlink_bytes_per_s)
    if links is not None and links != 1:
        said.append(f"Collectives have {links:.2g} times the NVLink bandwidth; no data path of an SM changes that.")
    elif old.nvlink_bytes_per_s and not new.nvlink_bytes_per_s:
        said.append("There is no NVLink: what GPUs exchange goes over PCIe.")
    return said


def _paths(old: Architecture, new: Architecture) -> list[str]:
    gained, lost = sorted(new.paths - old.paths), sorted(old.paths - new.paths)
    said = []
    if gained:
        said.append(f"New data paths: {', '.join(f'`{name}`' for name in gained)}.")
    if lost:
        said.append(f"Gone: {', '.join(f'`{name}`' for name in lost)}: such code has to be written anew.")
    if not gained and not lost and old.sm != new.sm:
        said.append("The same data paths: the main loop may stay as it is.")
    return said


def _tensor(old: Product, new: Product, arch: Architecture) -> list[str]:
    as_is, best, was = recompiled(new, arch), sixteen_bit(new), sixteen_bit(old)
    if old.sm == new.sm or was is None or best is None:
        return []
    if as_is is None:
        return [
            "What the warp-level `mma` reaches there is in no source that we have: measure it (`diagnose ceilings`)."
        ]
    if as_is < 0.99 * best:
        return [
            (
                f"Code that is only built anew keeps the warp-level `mma`, whose peak is {digits(as_is / 1e12)} of "
                f"the {digits(best / 1e12)} TFLOP/s: {digits(as_is / was)} times the old peak, where the new path "
                f"has {digits(best / was)} times."
            )
        ]
    return []


def _room(old: Architecture, new: Architecture) -> list[str]:
    was, now = stages_alone(old), stages_alone(new)
    said = []
    if new.has("tmem") and not old.has("tmem"):
        said.append(
            f"Accumulators move into {_TMEM // 1024} KB of Tensor Memory an SM and leave the registers: wide tiles "
            "cost none of them, and the epilogue has to read the results back."
        )
    if was is not None and now is not None and was != now and old.shared_per_sm and new.shared_per_sm:
        said.append(
            f"Shared memory goes from {old.shared_per_sm // 1024} to {new.shared_per_sm // 1024} KB an SM: one block "
            f"has room for {now} stages of a 32 KB tile, it had {was}. Search tile and stages again."
        )
    before, after = resident(old, BLOCK), resident(new, BLOCK)
    if (
        before is not None
        and after is not None
        and (old.max_warps_per_sm, before.blocks) != (new.max_warps_per_sm, after.blocks)
    ):
        said.append(
            f"An SM holds {new.max_warps_per_sm} warps, it held {old.max_warps_per_sm}; the registers stay at "
            f"{digits((new.registers_per_sm or 0) * 4 / 1024)} KB. A block of 256 threads with 128 registers each: "
            f"{after.blocks} an SM ({after.occupancy:.0%}), before {before.blocks} ({before.occupancy:.0%})."
        )
    elif old.sm != new.sm:
        said.append(
            f"The register file stays at {digits((new.registers_per_sm or 0) * 4 / 1024)} KB an SM: accumulators and "
            "stages share what they shared."
        )
    return said


def _lanes(old: Architecture, new: Architecture) -> list[str]:
    was, now = old.rates.get("fp32"), new.rates.get("fp32")
    if not was or not now:
        return []
    if now != was:
        half = (
            " Half of them are its integer lanes: FP32 code with many integer instructions gains less."
            if new.sm in SHARED_LANES
            else ""
        )
        return [f"An SM has {now:.0f} FP32 lanes, it had {was:.0f}.{half}"]
    if {old.sm, new.sm} <= SHARED_LANES and old.sm != new.sm:
        return [
            (
                f"The {now:.0f} FP32 lanes of an SM, {new.rates.get('int32') or 0:.0f} of them the integer lanes, "
                "were there before: the FP32 peak grows by SMs and clock, and its doubling does not count again."
            )
        ]
    return []


def _l2(old: Product, new: Product) -> list[str]:
    if not old.l2_bytes or not new.l2_bytes or new.l2_bytes < 1.5 * old.l2_bytes:
        return []
    return [
        (
            f"L2 grows from {old.l2_bytes / 2**20:.0f} to {new.l2_bytes / 2**20:.0f} MB: what is read again, and is "
            "smaller than that, may stay; a stream that is read once gains nothing."
        )
    ]


_CODE = re.compile(r"code_sm\s*(>=|<=|==|!=|<|>)\s*(\d+)")


def migration_rules(before: Architecture, target: Architecture) -> list[str]:
    """The titles of the rules of `diagnose static --for` that may speak of code for `before` on that target."""
    found = []
    for path in (ROOT / "rules" / "migration").glob("*.yaml"):
        rule = yaml.safe_load(path.read_text("utf-8"))
        targets = (rule.get("applies_to") or {}).get("arch") if "title" in rule else None
        if not targets or f"sm_{target.sm}" not in ([targets] if isinstance(targets, str) else targets):
            continue
        asked = [match for match in map(_CODE.fullmatch, rule["when"]["all"]) if match is not None]
        if all(COMPARISONS[match[1]](before.sm, int(match[2])) for match in asked):
            found.append(str(rule["title"]))
    return sorted(found)


# --- the page ---


def _head() -> list[str]:
    return [
        *(f"<!-- article: {tag} -->" for tag in ARTICLES),
        "# Architectures",
        "",
        *_paragraph(
            "What exists on the GPUs that the articles speak of, their peaks and ridge points, and what changes for "
            "a kernel that moves from one to another. Written by `tests/gen_architectures.py` from `diagnose/gpus`; "
            "a test keeps it up to date. Peaks are those of the data sheets, dense, Tensor types with FP32 "
            "accumulation; what is sustained is less (`diagnose ceilings`, `docs/ceilings.md`). A dash: no source "
            "says so, or it does not exist."
        ),
        "",
    ]


def _overview() -> list[str]:
    lines = ["## The GPUs", ""]
    for part in (GPUS[:5], GPUS[5:]):
        head = ["", *(product(name).name for name in part)]
        rows = [["Compute capability", *(f"{product(name).sm / 10:.1f}" for name in part)]]
        rows += [[row.label, *(_shown(row, name) for name in part)] for row in ROWS]
        lines += [*_table(head, rows), ""]
    return [
        *lines,
        *_paragraph(
            "The ridge point is peak over memory bandwidth: with fewer operations a byte the memory is the limit, "
            "with more the Tensor Cores (or the FP32 lanes) are. GeForce parts halve the 16-bit rate with FP32 "
            "accumulation."
        ),
        "",
    ]


def _architectures() -> list[Architecture]:
    return [catalogue.architecture(sm) for sm in dict.fromkeys(product(name).sm for name in GPUS)]


def _exists() -> list[str]:
    archs = _architectures()
    names = sorted(set().union(*(arch.paths for arch in archs)), key=lambda name: (_since(name, archs), name))
    rows = [[f"`{name}`", *("yes" if arch.has(name) else "" for arch in archs)] for name in names]
    return ["## Which data paths exist", "", *_table(["", *(_title(arch) for arch in archs)], rows), ""]


def _since(name: str, archs: Sequence[Architecture]) -> int:
    return next(arch.sm for arch in archs if arch.has(name))


def _title(arch: Architecture) -> str:
    return f"{arch.name} (sm_{arch.sm})"


def _inside() -> list[str]:
    archs = _architectures()
    rows = [[label, *(_number(value(arch)) for arch in archs)] for label, value in _LIMITS]
    for kind in _KINDS:
        best = [
            max(
                (rate for key, rate in arch.tensor.items() if key.split(":")[1] == kind and "sparse" not in key),
                default=None,
            )
            for arch in archs
        ]
        if any(rate is not None for rate in best):
            rows.append([f"Tensor operations a cycle, {kind}", *(_number(rate) for rate in best)])
    return ["## What an SM has", "", *_table(["", *(_title(arch) for arch in archs)], rows), ""]


def _moves() -> list[str]:
    lines = ["## What changes for a kernel that moves", ""]
    for before, after in MOVES:
        old, new = product(before), product(after)
        lines += [f"### {old.name} to {new.name}", ""]
        lines += _table(["", old.name, new.name, "change"], comparison(before, after))
        lines.append("")
        for sentence in changes(before, after):
            lines += _bullet(sentence)
        asked = migration_rules(*map(catalogue.architecture, (old.sm, new.sm))) if new.sm != old.sm else []
        if asked:
            target = f"sm_{new.sm}{'a' if new.sm >= 90 else ''}"
            lines += _bullet(f"`diagnose static FILE --for {target}` looks at the code for: {'; '.join(asked)}.")
        lines.append("")
    return lines


def _counted_once() -> list[str]:
    lines = [
        "## FP32 lanes counted once",
        "",
        *_paragraph(
            "An SM of GA10x and Ada does 128 FP32 a cycle, or 64 FP32 and 64 integer instructions. The data sheets' "
            "peaks hold both halves already, as SMs × lanes × 2 × clock shows:"
        ),
        "",
    ]
    rows = []
    for name in ("a100-sxm4-40gb", "rtx-3090-ti", "rtx-4090", "h100-sxm"):
        gpu, arch = _pair(name)
        lanes, integer = arch.rates.get("fp32") or 0.0, arch.rates.get("int32") or 0.0
        product_of = gpu.sm_count * lanes * 2 * (gpu.boost_hz or 0.0)
        both = f"{integer:.0f}, of these" if arch.sm in SHARED_LANES else f"{integer:.0f} beside them"
        arithmetic = f"{gpu.sm_count} × {lanes:.0f} × 2 × {(gpu.boost_hz or 0) / 1e9:.3g} GHz"
        rows.append([gpu.name, arithmetic, _number(product_of, 1e12), _number(gpu.peaks.get("fp32"), 1e12), both])
    head = ["", "product", "TFLOP/s", "data sheet", "integer lanes"]
    return [*lines, *_table(head, rows), ""]


def _small_copies() -> list[str]:
    rows = []
    for name in ("h100-sxm", "h200", "b200"):
        gpu, _ = _pair(name)
        if gpu.memory_bytes_per_s and gpu.boost_hz:
            bytes_ = break_even_bytes(gpu.memory_bytes_per_s, gpu.sm_count, gpu.boost_hz)
            rows.append([gpu.name, f"{bytes_:,.0f} bytes"])
    return [
        "## From which size on TMA copies pay",
        "",
        *_paragraph(
            "A TMA copy starts about 170 cycles later than a load. In that time an SM's share of the memory "
            "bandwidth moves so many bytes; a smaller box takes longer to start than to move."
        ),
        "",
        *_table(["", "box"], rows),
        "",
    ]


def _sources() -> list[str]:
    lines = ["## Sources", ""]
    for name in GPUS:
        gpu = product(name)
        lines += _bullet(f"{gpu.name}: {gpu.source} ({gpu.date}).")
    content = catalogue.load("architectures")
    wanted = {arch.sm for arch in _architectures()}
    keys = {
        key
        for entry in content["architectures"]
        if entry["sm"] in wanted
        for part in entry["sources"].values()
        for key in part
    }
    for key in sorted(keys):
        source = content["sources"][key]
        lines += _bullet(f"{source['text']} ({source['date']}).")
    return lines


def page() -> str:
    """The whole page."""
    lines = [
        *_head(), *_overview(), *_exists(), *_inside(), *_moves(), *_counted_once(), *_small_copies(), *_sources(),
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def stale() -> bool:
    """Whether the file differs from what would be written."""
    return not TARGET.is_file() or TARGET.read_text("utf-8") != page()


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with --check says whether it is up to date."""
    if "--check" in arguments:
        if stale():
            print(f"{TARGET} is not up to date: python tests/gen_architectures.py")
        return int(stale())
    TARGET.write_text(page(), "utf-8")
    print(f"wrote {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
