#!/bin/bash
# On a machine with a GPU: measures its ceilings as a user would, into $1: h200.json is the form that the project ships
# (diagnose/gpus/measured/), ceilings.json what the command prints. Needs PyYAML, typer, rich and platformdirs, and nvcc.
#
#     bash tests/gpu/ceilings.sh OUT
set -u
cd "$(dirname "$0")/../.." || exit 2
out=$(mkdir -p "$1" && cd "$1" && pwd)
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 XDG_DATA_HOME="$out/data"
# The cuBLASLt that a Python package brings, where the loader has none.
library=$(ls /opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib/libcublasLt.so.* 2>/dev/null | tail -1)
[ -n "$library" ] && export DIAGNOSE_CUBLASLT="${DIAGNOSE_CUBLASLT:-$library}"
SECONDS=0
${PYTHON:-python3} -m diagnose \
    ceilings --export "$out/h200.json" --format json >"$out/ceilings.json"
code=$?
echo "exit code $code after $SECONDS s"
[ $code -eq 0 ] && ${PYTHON:-python3} - "$out/ceilings.json" <<'TABLE'
import json, sys
document = json.load(open(sys.argv[1]))
for one in document["ceilings"]:
    print(f"{one['resource']:52} {one['value']:12.5g} {one['unit']:9} {one['spread']:7.2%} {one['clock_mhz'] or 0:7.0f} MHz")
print(len(document["ceilings"]), "taken,", len(document["refused"]), "refused")
TABLE
exit $code
