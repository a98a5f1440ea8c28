"""The figures of `diagnose rules accuracy` as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from diagnose.render import format as fmt

_NONE = "none"


def table(rows: Sequence[Sequence[str]], indent: int = 2) -> list[str]:
    """Columns by their widest cell; the last one runs on."""
    if not rows:
        return []
    cells = [[fmt.clean(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        " " * indent + "  ".join(c.ljust(w) for c, w in zip(row, [*widths[:-1], 0], strict=True)).rstrip()
        for row in cells
    ]


def figure(value: float | None) -> str:
    """A share with one decimal, or the words for one that nothing was counted for."""
    return _NONE if value is None else f"{value * 100:.1f} %"


def _factor(value: float | None) -> str:
    return _NONE if value is None else fmt.times(value)


def _gain(gain: Mapping[str, Any]) -> list[str]:
    pairs = gain["pairs"]
    lines = [
        "",
        f"Predicted against measured gain, {len(pairs)} pairs:",
        *table(
            [
                ("median error", figure(gain["median_error"])),
                ("worst error", figure(gain["worst_error"])),
                ("intervals that hold the measured gain", figure(gain["coverage"])),
                ("median width of the intervals (high/low)", _factor(gain["median_width"])),
            ]
        ),
    ]
    outside = [row for row in pairs if not row["inside"]]
    if outside:
        lines += ["", "Outside their interval:"]
        lines += table(
            [("kernel", "rule", "predicted", "measured")]
            + [
                (
                    row["kernel"],
                    row["rule"],
                    f"{fmt.times(row['expected'])} ({fmt.times_range(row['low'], row['high'])})",
                    fmt.times(row["measured"]),
                )
                for row in sorted(outside, key=lambda row: -row["error"])
            ]
        )
    return lines


def render(found: Mapping[str, Any]) -> str:
    """The whole page; of the confusion matrix only what is wrong."""
    healthy = f"healthy kernels without a finding above note ({found['healthy']})"
    wrong = [row for row in found["verdicts"] if not row["right"]]
    loud = [row for row in found["verdicts"] if row["expect"] == "quiet" and row["above_note"]]
    hint = found["ncu_top_hint"]
    lines = [
        f"{found['kernels']} kernels with a known cause: {found['corpus']}",
        *table(
            [
                ("verdict right (top 1)", figure(found["top1"])),
                ("right among verdict and next finding (top 2)", figure(found["top2"])),
                ("verdict is the first-named one", figure(found["top1_strict"])),
                ("class right", figure(found["class"])),
                *(
                    (f"verdict right where its confidence is {level} ({row['kernels']})", figure(row["top1"]))
                    for level, row in found["confidence"].items()
                ),
                (healthy, figure(found["quiet_on_healthy"])),
                ("ncu's own top suggestion, same measure", f"{figure(hint['top1'])} of {hint['kernels']}"),
                ("  only its estimates for the whole kernel", figure(hint["top1_global"])),
            ]
        ),
        "",
        "Wrong verdicts:" if wrong else "No wrong verdict.",
        *table(
            [("kernel", "expected", "got", "class", "next finding")]
            + [(r["kernel"], r["expect"], r["got"], r["class"], r["second"] or "-") for r in wrong]
            if wrong
            else []
        ),
    ]
    if loud:
        lines += ["", "Healthy kernels with a finding above note:"]
        lines += table([(row["kernel"], ", ".join(row["above_note"])) for row in loud])
    lines += _gain(found["gain"])
    lines += ["", "Rule by rule:"]
    lines += table(
        [("rule", "verdicts", "precision", "expected", "recall")]
        + [
            (r["rule"], str(r["verdicts"]), figure(r["precision"]), str(r["expected"]), figure(r["recall"]))
            for r in found["per_rule"]
        ]
    )
    if found["held_out"]:
        held = found["held_out"]
        lines += [
            "",
            f"Held out ({held['kernels']} kernels): top 1 {figure(held['top1'])}, class {figure(held['class'])}",
        ]
    if found["not_recorded"]:
        lines += [
            "",
            f"Without a report, so not counted: {len(found['not_recorded'])} kernels (--format json names them)",
        ]
    return "\n".join(lines) + "\n"
