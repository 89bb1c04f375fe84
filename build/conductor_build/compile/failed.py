"""A kernel that the compiler does not take."""

from __future__ import annotations

from conductor.errors import ConductorError


class CompileFailed(ConductorError):
    """The message names kernel and architecture; `details` is what the compiler said."""

    def __init__(self, message: str, details: str) -> None:
        super().__init__(message, details)  # both, so that it crosses processes whole
        self.details = details

    def __str__(self) -> str:
        return str(self.args[0])
