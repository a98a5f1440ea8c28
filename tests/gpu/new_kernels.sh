#!/bin/bash
# What was added to the kernels last, on a machine with a GPU (sm_90a), in about three minutes: paths of reading, decode beside what it
# was, the sparse GEMM and the plates with their times, sanitizers and reports.
#
#   tests/gpu/new_kernels.sh OUT      logs, results.json, and the reports in OUT/kernels.tgz
set -u
out=$1; here=$(cd "$(dirname "$0")/../.." && pwd); cd "$here"
work=/tmp/new; mkdir -p $work "$out"
flags="-O3 -lineinfo -std=c++17 -gencode=arch=compute_90a,code=sm_90a"
new='gemm/sparse$|gemm/pruned-dense|attention/decode|faults/plates'
SECONDS=0
nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader
nvcc $flags tests/gpu/read_paths.cu -o $work/paths &
nvcc $flags kernels/attention/decode.cu -o $work/decode &
nvcc $flags kernels/reduction/cub.cu -o $work/cub &
[ -f kernels/attention/decode_before.cu ] && nvcc $flags kernels/attention/decode_before.cu -o $work/before &
python3 tests/gpu/corpus.py --out $work/corpus --only "$new" --stage build > $work/build.log 2>&1 &
wait
cat $work/build.log; echo "# built at $SECONDS s"
echo "## reading"; timeout 20 $work/paths
echo "## decode"
timeout 20 $work/cub
for shape in "--b 16 --h 32 --kv_heads 8 --s 16384" "--b 1 --h 32 --kv_heads 8 --s 131072"; do
    for l2 in 256 128 0; do
        [ -x $work/before ] && echo "$(timeout 20 $work/before $shape --l2 $l2 | tail -1) | before l2 $l2 $shape"
        echo "$(timeout 20 $work/decode $shape --l2 $l2 --unit 4 | tail -1) | unit 4 l2 $l2 $shape"
    done
    for unit in 8 16; do echo "$(timeout 20 $work/decode $shape --l2 128 --unit $unit | tail -1) | unit $unit l2 128 $shape"; done
done
timeout 20 $work/cub
echo "# decode done at $SECONDS s"
echo "## corpus"
python3 tests/gpu/corpus.py --out $work/corpus --only "$new" --stage time --resume
cp $work/corpus/results.json "$out/results.json"
echo "# timed at $SECONDS s"
python3 tests/gpu/ladder_gemm.py --only 'gemm/sparse$' --stage compare --folder $work/ladder --out "$out/sparse_and_shapes.json" --budget 40 | grep -v "not measured"
echo "# compared at $SECONDS s"
echo "## sanitizers"
python3 tests/gpu/corpus.py --out $work/corpus --only "$new" --stage sanitize --resume --budget 40
cd /src/diagnose/build
for run in "attention-decode --b 1 --h 8 --kv_heads 2 --s 1024" "gemm-sparse --dense 0 --m 512 --n 512 --k 512"; do
    compute-sanitizer --tool racecheck ./$run --repeats 0 2>&1 | cut -c1-300 | head -30
done
cd "$here"
echo "# sanitized at $SECONDS s"
echo "## reports"
python3 tests/gpu/corpus.py --out $work/corpus --only "$new" --stage profile --resume --budget 60
cp $work/corpus/results.json "$out/results.json"
cd /src/diagnose/build
for unit in 4 16; do
    ncu --set full --import-source yes --clock-control none -f -k regex:^attention_decode$ --launch-count 1 -o unit$unit ./attention-decode \
        --b 16 --h 32 --kv_heads 8 --s 16384 --d 128 --stages 3 --unit $unit --l2 128 --repeats 0 > /dev/null && xz -k -f unit$unit.ncu-rep && mv unit$unit.ncu-rep.xz $work/corpus/
done
(cd $work/corpus && tar czf "$out/kernels.tgz" ./*.xz)
echo "# $SECONDS s in all"
