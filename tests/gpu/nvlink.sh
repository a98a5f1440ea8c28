#!/bin/bash
# On a machine with two GPUs (nvidia-h200-x2): reads the peer's memory over NVLink, profiles it with the link's counters, and compares
# what `diagnose` says with what was read. Files go to $1; ends with 1 when one differs. Takes about two minutes.
#
#     bash tests/gpu/nvlink.sh OUT
set -u
cd "$(dirname "$0")/../.." || exit 2
out=$(mkdir -p "$1" && cd "$1" && pwd)
work=$(mktemp -d)
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
diagnose() { ${PYTHON:-python3} -m diagnose "$@"; }
nvcc -O3 -lineinfo -std=c++17 -gencode=arch=compute_90,code=sm_90 -o "$work/nvlink" tests/gpu/nvlink.cu || exit 1
nvidia-smi topo -m | head -8
"$work/nvlink" 1024 | tee "$out/rate.txt" || exit 1
# With the link's counters, as `--set full` has them; then as diagnose itself collects (misses of L2 for the peer's memory).
ncu --set full --import-source yes --clock-control none --launch-count 2 -f -o "$out/nvlink" "$work/nvlink" 1024 > "$out/ncu.txt" 2>&1 || tail -5 "$out/ncu.txt"
ncu --import "$out/nvlink.ncu-rep" --page raw | grep -E 'nvl(rx|tx)__bytes|nvlink__bandwidth|nvlink__count|aperture_peer_lookup_miss' | sort -u
diagnose "$out/nvlink.ncu-rep" --no-html --facts all --json "$out/full.json"
diagnose --no-html --facts all --max-launches 1 --json "$out/live.json" "$work/nvlink" 1024
${PYTHON:-python3} - "$out/full.json" "$out/live.json" <<'CHECK'
import json, sys
wanted, failed = 1024 << 20, 0
for path in sys.argv[1:]:
    kernel = json.load(open(path))["kernels"][0]
    limit = next((one for one in kernel["limits"] if one["resource"] == "nvlink"), None)
    if limit is None:
        print(f"FAIL {path}: no nvlink among the limits")
        failed = 1
        continue
    off = limit["work"] / wanted - 1
    print(f"{'PASS' if -0.02 < off < 0.15 else 'FAIL'} {path}: {limit['work'] / 1e9:.3f} GB over the link, {off:+.1%} of what was read, "
          f"{limit['utilization']:.0%} of {limit['ceiling'] / 1e9:.0f} GB/s; verdict {kernel['verdict']['rule']}")
    failed |= not -0.02 < off < 0.15
sys.exit(failed)
CHECK
