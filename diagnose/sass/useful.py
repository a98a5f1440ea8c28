"""Declared work beside what the Tensor instructions of the code can do: useful against issued operations. Pure.

How often a loop runs is not in the code, so `share_at_most` follows from the shape of one instruction: a dimension of
the problem is padded to a multiple of it. The larger of both ways to lay A and B is taken, so a kernel that swaps them
is not wronged; padding to the block's tile comes on top.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_GEMM = re.compile(r"\s*gemm:(\d+),(\d+),(\d+)")


@dataclass(frozen=True)
class Work:
    """`iterations` of the main loop by all warps (tcgen05: all blocks) that the useful operations need at least."""

    useful_flops: float
    issued_per_iteration: float | None
    iterations: float | None
    share_at_most: float | None


def padded_share(problem: tuple[int, int, int], shape: tuple[int, int, int]) -> float:
    """Useful part of the operations of a product M, N, K in instructions of m, n, k, at best."""

    def one(a: int, b: int) -> float:
        sizes = ((problem[0], a), (problem[1], b), (problem[2], shape[2]))
        return math.prod(size / (math.ceil(size / step) * step) for size, step in sizes)

    return max(one(shape[0], shape[1]), one(shape[1], shape[0]))


def work(
    useful_flops: float,
    problem: str | None,
    operations: Mapping[str, float | None],
    shapes: Iterable[tuple[int, int, int]],
) -> Work:
    """The reading for `useful_flops` declared operations. `operations` is what one iteration issues a warp (or a block,
    with tcgen05), by path and type; `shapes` are those of its instructions."""
    known = [value for value in operations.values() if value is not None]
    issued = sum(known) or None if len(known) == len(operations) else None
    match = _GEMM.match(problem or "")
    sizes = tuple(int(size) for size in match.groups()) if match else None
    found = list(shapes)
    share = None
    if sizes is not None and len(sizes) == 3 and found:
        share = max(padded_share((sizes[0], sizes[1], sizes[2]), shape) for shape in found)
    return Work(useful_flops, issued, useful_flops / issued if issued else None, share)
