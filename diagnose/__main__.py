"""The entry of `diagnose` and `python -m diagnose`: an interrupt while the rest is being imported ends as any other."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line; returns the exit code."""
    try:
        from diagnose.cli import main as command  # late: it takes a fifth of a second

        return command()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\nhint: run the same command again\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
