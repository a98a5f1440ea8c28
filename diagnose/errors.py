"""The one exception that a user sees: an `error:` line, a `hint:` line and an exit code."""

from __future__ import annotations

# Exit codes of the contract.
EXIT_OK = 0
EXIT_GATE = 1
EXIT_USAGE = 2
EXIT_NOTHING_MEASURED = 3
EXIT_INTERRUPTED = 130


class DiagnoseError(Exception):
    """A failure that the user can act on.

    `message` says what failed with the value seen; `hint` names the command to run next;
    `exit_code` is one of the constants above.
    """

    def __init__(self, message: str, hint: str, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
