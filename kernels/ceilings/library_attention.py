"""The library's time for an attention forward pass as declared: the faster of PyTorch's cuDNN and FlashAttention.

library_attention.py BATCH HEADS KV_HEADS QUERIES KEYS DIM bf16|fp16 0|1

Prints one JSON line, as the ceilings' programs do. Needs a Python with PyTorch: diagnose runs the program's own.
"""

import json
import statistics
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

REPEATS = 33
BURST = 3  # launches between two rests: a profiler's passes rest as well, and a long run sinks to a lower clock


def timed(call):
    """Seconds of each of REPEATS launches, by events."""
    for _ in range(5):
        call()
    seconds = []
    for repeat in range(REPEATS):
        if repeat % BURST == 0:
            torch.cuda.synchronize()
            time.sleep(0.02)
            call()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e-3)
    return sorted(seconds)


def main():
    batch, heads, kv_heads, queries, keys, dim = map(int, sys.argv[1:7])
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[sys.argv[7]]
    causal = sys.argv[8] == "1"

    def random(count, length):
        return (torch.rand(batch, count, length, dim, device="cuda") * 2 - 1).to(dtype)

    q, k, v = random(heads, queries), random(kv_heads, keys), random(kv_heads, keys)
    best = None
    for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("FlashAttention", SDPBackend.FLASH_ATTENTION)):
        try:
            with sdpa_kernel(backend):
                seconds = timed(
                    lambda: scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv_heads != heads)
                )
        except RuntimeError as error:  # this backend does not take the shape
            print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        if best is None or statistics.median(seconds) < statistics.median(best):
            best = seconds
    if best is None:
        sys.exit("no kernel of the library takes this shape")
    middle = statistics.median(best)
    spread = (best[len(best) * 3 // 4] - best[len(best) // 4]) / middle
    line = {"key": "library:attention", "value": middle, "unit": "s", "repeats": len(best), "spread": spread}
    print(json.dumps({**line, "clock_mhz": None}))


if __name__ == "__main__":
    main()
