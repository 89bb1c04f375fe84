"""Every error that leaves a room, in one tree.

    ConductorError
      ConfigError           a file is wrong; carries every fault with its position
      StartError            a process cannot start: its socket is taken, an engine is unknown
      SecretUnavailable     a secret is not where the configuration says
      PlanError             text that is no plan, or a plan that does not fit the pool
        EngineBusy          a language model has too many plans waiting (planner/lm_runner.py)
      RunnerFailed          a language model broke (planner/lm_runner.py)
        RunnerLost          and its device answers no more in this process
      PermitRefused         egress will not send
      ApprovalRefused       a person's approval does not count (declassify/approved.py)
      BundleError           a trained conductor on disk cannot be trusted, or not be written
      WorkerError           an attempt failed; `failure` says how
      AuditError            the decision cannot be recorded
      UpgradeError          a version cannot be put in force, or a copy not be made or put back
      ApiError              what a client sees: status, type, code, message
        BadRequest  InvalidKey  PolicyBlocked  ApprovalRequired  ModelNotAllowed  LabelNotAllowed
        CostWeightNotAllowed  ModelNotFound  NotFound  MethodNotAllowed  TooLarge  RateLimited
        BudgetExhausted  InternalError  UpstreamFailed  NoLocalBackend  Overloaded  ModelLoading
        UpstreamTimeout  AuditUnavailable  ClientGone

Messages say what to do next and never hold a prompt, a secret, an address of a back-end, or the
text of a foreign exception. Status, type and code follow the OpenAI API.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from conductor.core import Failure


class ConductorError(Exception):
    """Root of the tree."""


@dataclass(frozen=True, order=True)
class Fault:
    """One thing wrong in a file. Lines and columns count from 1."""

    file: str
    line: int
    column: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.code}: {self.message}"


class ConfigError(ConductorError):
    """A configuration cannot be used. `faults` lists everything wrong, in file order."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = sorted(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class StartError(ConductorError):
    """A process cannot start as asked; nothing was changed. The message says what to do."""


class SecretUnavailable(ConductorError):
    """A secret cannot be had. `reference` is how the configuration names it, never the secret."""

    def __init__(self, reference: str, reason: str) -> None:
        self.reference = reference
        super().__init__(f"{reference}: {reason}")


class PlanError(ConductorError):
    """Not a plan: `line` is the step's number; None when the whole text is at fault."""

    def __init__(self, message: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(message if line is None else f"step {line}: {message}")


class PermitRefused(ConductorError):
    """Egress will not send. `reason` is one word from a closed list, fit for metrics."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"permit refused: {reason}")


class BundleError(ConductorError):
    """A bundle is refused, or cannot be written. `reason` is one of `planner.manifest.Refusal`."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class UpgradeError(ConductorError):
    """A version cannot be put in force, or a copy of the box not be made or put back. The message
    says what is in force now."""


class AuditError(ConductorError):
    """The audit log cannot be written; nothing may be answered or sent."""


class WorkerError(ConductorError):
    """One attempt at a worker failed.

    `retry_after_s` is the worker's own statement, if it made one. `began` tells that content had
    already come. `detail` is for logs: a status, a timer's name; never upstream text. `window` is
    (context tokens, prompt tokens) for CONTEXT_LENGTH when known.
    """

    def __init__(
        self,
        failure: Failure,
        detail: str = "",
        *,
        retry_after_s: float | None = None,
        began: bool = False,
        window: tuple[int, int] | None = None,
    ) -> None:
        self.failure = failure
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.began = began
        self.window = window
        super().__init__(f"{failure}: {detail}" if detail else str(failure))


class ApiError(ConductorError):
    """An answer that is no answer. `headers` are sent with it."""

    status = 500
    type = "server_error"
    code: str | None = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))

    def envelope(self) -> dict[str, dict[str, str | None]]:
        """The OpenAI error body."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


class _Final(ApiError):
    """Refusals that no retry can change say so: official clients obey `x-should-retry`."""

    def __init__(self, message: str, **more: object) -> None:
        super().__init__(message, **more)  # type: ignore[arg-type]
        self.headers["x-should-retry"] = "false"


class BadRequest(ApiError):
    status, type, code = 400, "invalid_request_error", None


class InvalidKey(ApiError):
    status, type, code = 401, "invalid_request_error", "invalid_api_key"

    def __init__(self) -> None:
        super().__init__(
            "No valid API key was given: send 'Authorization: Bearer <key>' with a key of this "
            "appliance.",
            headers={"WWW-Authenticate": "Bearer"},
        )


class PolicyBlocked(_Final):
    status, type, code = 403, "policy_violation", "sensitivity_blocked"


class ApprovalRequired(PolicyBlocked):
    """It may go once a person has approved the exact bytes."""

    code = "approval_required"


class ModelNotAllowed(_Final):
    status, type, code = 403, "permission_error", "model_not_allowed"


class LabelNotAllowed(_Final):
    """A label was declared that cannot be honoured, and ignoring one could leak."""

    status, type, code = 403, "permission_error", "label_not_allowed"


class CostWeightNotAllowed(_Final):
    """A key says what quality is worth, and has no say in that."""

    status, type, code = 403, "permission_error", "cost_weight_not_allowed"


class ModelNotFound(ApiError):
    status, type, code = 404, "invalid_request_error", "model_not_found"


class NotFound(ApiError):
    status, type, code = 404, "invalid_request_error", "not_found"


class MethodNotAllowed(ApiError):
    status, type, code = 405, "invalid_request_error", "method_not_allowed"


class TooLarge(ApiError):
    status, type, code = 413, "invalid_request_error", "request_too_large"


class RateLimited(ApiError):
    status, type, code = 429, "requests", "rate_limit_exceeded"


class BudgetExhausted(_Final):
    status, type, code = 429, "insufficient_quota", "insufficient_quota"


class InternalError(ApiError):
    status, type, code = 500, "server_error", "internal_error"


class UpstreamFailed(ApiError):
    status, type, code = 502, "api_error", "upstream_error"


class NoLocalBackend(ApiError):
    status, type, code = 503, "server_error", "no_local_backend"


class Overloaded(ApiError):
    status, type, code = 503, "server_error", "overloaded"


class ModelLoading(ApiError):
    status, type, code = 503, "server_error", "model_loading"


class AuditUnavailable(ApiError):
    status, type, code = 503, "server_error", "audit_unavailable"


class UpstreamTimeout(ApiError):
    status, type, code = 504, "api_error", "upstream_timeout"


class ClientGone(ApiError):
    """Never sent: the client left. In logs and audit as 499."""

    status, type, code = 499, "client_closed_request", "client_closed_request"
