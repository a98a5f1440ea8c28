#!/bin/bash
# What was added to the kernels last, on a machine with a GPU (sm_90a), in about four minutes: checks, the sparse metadata, decode
# beside what it was, the comparisons, times, sanitizers, reports.
#
#   tests/gpu/new_kernels.sh OUT      logs, results.json, and the reports in OUT/kernels.tgz
set -u
out=$1; here=$(cd "$(dirname "$0")/../.." && pwd); cd "$here"
work=/tmp/new; mkdir -p $work "$out"
flags="-O3 -lineinfo -std=c++17 -gencode=arch=compute_90a,code=sm_90a"
new='gemm/sparse$|gemm/pruned-dense|gemm/shape|attention/decode|attention/tma|attention/specialised|faults/plates'
SECONDS=0
nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader

# Everything that has to be compiled, side by side.
nvcc $flags tests/gpu/sparse_probe.cu -o $work/probe 2>/dev/null &
nvcc $flags kernels/attention/decode.cu -o $work/decode &
nvcc $flags kernels/reduction/cub.cu -o $work/cub &
[ -f kernels/attention/decode_before.cu ] && nvcc $flags kernels/attention/decode_before.cu -o $work/before &
for kernel in tma specialised; do nvcc $flags -DDIAGNOSE_TIMELINE kernels/attention/$kernel.cu -o $work/timeline_$kernel & done
python3 tests/gpu/corpus.py --out $work/corpus --only "$new" --stage build > $work/build.log 2>&1 &
wait
cat $work/build.log; echo "# built at $SECONDS s"

echo "## sparse metadata"; timeout 20 $work/probe; echo "exit $?"

echo "## decode: what it was, and units of tiles"
for round in 1 2; do
    timeout 20 $work/cub
    for shape in "--b 1 --h 32 --kv_heads 8 --s 131072" "--b 16 --h 32 --kv_heads 8 --s 16384"; do
        [ -x $work/before ] && echo "$(timeout 20 $work/before $shape | tail -1) | before $shape"
        for unit in 1 2 4; do echo "$(timeout 20 $work/decode $shape --unit $unit | tail -1) | unit $unit $shape"; done
    done
done
echo "# decode done at $SECONDS s"

echo "## corpus"
python3 tests/gpu/corpus.py --out $work/corpus --only "$new" --stage time --resume
cp $work/corpus/results.json "$out/results.json"
echo "# timed at $SECONDS s"
echo "## GEMM"
python3 tests/gpu/ladder_gemm.py --only 'gemm/(sparse|shape)$' --stage check,compare --folder $work/ladder --out "$out/sparse_and_shapes.json" --budget 60
echo "# compared at $SECONDS s"
echo "## decode on small shapes, then its rows of the ladder"
python3 tests/gpu/ladder_attention.py --only attention/decode --no-torch --build $work/attention --deadline 45 --json "$out/decode_shared.json"
echo "# ladder at $SECONDS s"
echo "## sanitizers"
python3 tests/gpu/corpus.py --out $work/corpus --only "$new" --stage sanitize --resume --budget 45
echo "# sanitized at $SECONDS s"
echo "## reports"
python3 tests/gpu/corpus.py --out $work/corpus --only "${new/|attention\/tma|attention\/specialised/}" --stage profile --resume --budget 75
cp $work/corpus/results.json "$out/results.json"
(cd $work/corpus && tar czf "$out/kernels.tgz" ./*.xz)
echo "# profiled at $SECONDS s"
echo "## time lines"
for kernel in tma specialised; do
    DIAGNOSE_TIMELINE_FILE="$out/timeline-attention-$kernel.json" timeout 20 $work/timeline_$kernel --causal 1 --repeats 0
done
echo "# $SECONDS s in all"
