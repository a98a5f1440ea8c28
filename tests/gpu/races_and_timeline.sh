#!/bin/bash
# On a machine with a GPU: the time lines of two bundled kernels and of one program outside them, and check-races on a planted race,
# its fixed twin and a kernel with mbarriers. Files go to $1; ends with 1 when one differs from what is expected.
#
#     bash tests/gpu/races_and_timeline.sh OUT
set -u
cd "$(dirname "$0")/../.." || exit 2
out=$(mkdir -p "$1" && cd "$1" && pwd)
work=$(mktemp -d)
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
failed=0

diagnose() { ${PYTHON:-python3} -m diagnose "$@"; }
expect() {  # expect CODE NAME COMMAND...: runs it and compares its exit code
    local wanted=$1 name=$2 start=$SECONDS
    shift 2
    "$@"
    local code=$?
    if [ $code -eq "$wanted" ]; then echo "PASS $name ($((SECONDS - start)) s)"
    else echo "FAIL $name: exit code $code, not $wanted ($((SECONDS - start)) s)"; failed=1; fi
}
flags=(-O3 -lineinfo -std=c++17 -gencode=arch=compute_90,code=sm_90)
nvcc "${flags[@]}" -o "$work/race" kernels/faults/race.cu &
nvcc "${flags[@]}" -DDIAGNOSE_TIMELINE -Ikernels/common -o "$work/user" tests/gpu/user_timeline.cu &
wait

expect 0 "time line of gemm/specialised" \
    diagnose kernels run gemm/specialised,m=8192,n=8192,k=3072 --timeline --block 700 -o "$out/specialised.html"
expect 0 "time line of gemm/persistent" diagnose kernels run gemm/persistent,m=4096,n=4096,k=4096 --timeline -o "$out/persistent.html"
export DIAGNOSE_TIMELINE_FILE="$out/user.json" DIAGNOSE_TIMELINE_BLOCK=100
expect 0 "a program outside the project" "$work/user"
expect 0 "its time line" diagnose kernels run "$out/user.json" --timeline -o "$out/user.html"
found() {  # a traceback exits with 1 as well: the race must be named with its line
    diagnose check-races "$work/race" --variant fault --repeats 0 | tee "$work/said"
    local code=${PIPESTATUS[0]}
    grep -q 'error racecheck: race: .*race\.cu:' "$work/said" || return 99
    return "$code"
}
expect 1 "the planted race is found" found
expect 0 "its fixed twin is clean" diagnose check-races "$work/race" --variant fix --repeats 0
beside() {  # the hazards stand at addresses of the profiled code, in the JSON and in the page
    diagnose check-races --format json "$work/race" --variant fault --repeats 0 > "$out/races.json"
    [ $? -eq 1 ] || return 98
    diagnose --races "$out/races.json" -o "$out/race.html" --json "$out/race.json" "$work/race" --variant fault --repeats 0 || return
    ${PYTHON:-python3} - "$out/race.json" <<'CHECK'
import json, sys
kernels = json.load(open(sys.argv[1]))["kernels"]
places = [p for k in kernels for h in k.get("hazards", ()) for p in h["places"]]
sys.exit(0 if places and all(p["at"] and p["line"] for p in places) else 1)
CHECK
}
expect 0 "hazards beside the profile's lines" beside
# Said, not judged: what the tools make of mbarriers, TMA and wgmma.
diagnose check-races --timeout 60 kernel:gemm/specialised,m=256,n=512,k=512
echo "gemm/specialised under the sanitizers: exit code $?"
# What the sanitizer itself writes, for the tests: the log as it is.
compute-sanitizer --tool racecheck --strip-paths no --log-file "$out/racecheck.log" "$work/race" --variant fault --repeats 0
ls -l "$out"
exit $failed
