"""A worker of `diagnose static`: reads orders, one JSON line each; writes a line a kernel and one at the end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from diagnose.errors import DiagnoseError
from diagnose.sass import binary
from diagnose.static import Asked, error_parts, read_part


def main() -> int:
    """Works until standard input ends."""
    opened: dict[str, binary.Binary] = {}

    def send(answer: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()

    for line in sys.stdin:
        order = json.loads(line)
        try:
            path = order.pop("path")
            if path not in opened:
                opened[path] = binary.open_binary(Path(path))
            parts = read_part(
                opened[path], order["image"], order["part"], order["parts"], order["kernel"], order["arch"],
                order["timeout_s"], Asked(**{**order["asked"], "packs": tuple(order["asked"]["packs"])}),
            )  # fmt: skip
            for kernel in parts:
                send({"kernel": kernel})
        except DiagnoseError as error:
            send({"error": error_parts(error)})
        send({"end": True})
    return 0


if __name__ == "__main__":
    sys.exit(main())
