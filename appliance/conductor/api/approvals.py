"""What waits for a person's approval, for administrators on their socket.

    GET  /v1/approvals          what waits: names, labels and hashes
    GET  /v1/approvals/ID       the very bytes that would be sent, to be read before signing
    POST /v1/approvals          {token}: an approver's signature over one of them

The bytes are shown on this socket alone, which only the appliance's own user can open; they stand
in memory, and go when the request that they wait for expires. Who was shown them, and who approved
or tried to, is on record before it is answered, and before it counts.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict
from typing import Literal, Protocol

import orjson
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from conductor.active import Active
from conductor.api.envelope import json_response
from conductor.api.peer import uid_of
from conductor.declassify.approvals import ApprovalBook, Signed, keys_of
from conductor.declassify.approved import Approval, ApprovalRefused, named_in
from conductor.errors import AuditError, AuditUnavailable, BadRequest, NotFound
from conductor.run.aside import aside

_NONE = Approval("", "", "", "", "")


class Recorder(Protocol):
    """An audit log."""

    async def append(self, event: str, **fields: object) -> None:
        """Return once the record is durable. Raises `AuditError`."""


class ApprovalsHandler:
    """The three endpoints."""

    def __init__(self, book: ApprovalBook, active: Active, audit: Recorder) -> None:
        self._book = book
        self._active = active
        self._audit = audit

    async def list(self, request: web.Request) -> web.Response:
        """What nobody has approved yet, oldest first."""
        waiting = [asdict(approval) for approval in self._book.waiting()]
        return json_response(request, {"object": "list", "data": waiting})

    async def body(self, request: web.Request) -> web.Response:
        """The bytes of one request. Raises `NotFound`, `AuditUnavailable`."""
        found = self._book.find(request.match_info["id"])
        body = None if found is None else self._book.show(found)
        if found is None or body is None:
            raise NotFound("Nothing waits for approval under this id, any more or at all.")
        await self._record(request, "read", found)
        return await aside(len(body), _shown, request, found, body)

    async def accept(self, request: web.Request) -> web.Response:
        """Take a signature in. Raises `BadRequest` with the reason when it does not count, and
        `AuditUnavailable` when it cannot be recorded: then it does not count either."""
        token = await _token(request)
        try:
            signed = self._book.check(token, self._approvers(token))
            await self._record(request, "accepted", signed.approval, signed.approver)
            self._book.accept(signed)
        except ApprovalRefused as refused:
            waiting, approver = self._named(token)
            await self._record(request, "refused", waiting, approver, refused.reason)
            raise BadRequest(f"The approval does not count: {refused.reason}.") from None
        return _accepted(request, signed)

    def _approvers(self, token: str) -> dict[str, Ed25519PublicKey]:
        """The keys of those whom the declassifier of what is approved names. Raises
        `ApprovalRefused`."""
        policy = self._active.site.policy
        waiting = self._book.find(named_in(token)[0])
        if waiting is None:
            raise ApprovalRefused("unknown")
        declassifier = policy.declassifiers.get(waiting.declassifier)
        keys = keys_of(policy.approvers, () if declassifier is None else declassifier.approvers)
        return {name: Ed25519PublicKey.from_public_bytes(key) for name, key in keys.items()}

    def _named(self, token: str) -> tuple[Approval, str]:
        """What a token that does not count is about, and whose it says to be: told only of what
        waits and of approvers that there are, since anything may stand in it."""
        try:
            request, approver = named_in(token)
        except ApprovalRefused:
            return _NONE, ""
        known = {one.id for one in self._active.site.policy.approvers}
        return self._book.find(request) or _NONE, approver if approver in known else ""

    async def _record(
        self,
        request: web.Request,
        action: Literal["read", "accepted", "refused"],
        approval: Approval,
        approver: str = "",
        reason: str = "",
    ) -> None:
        facts = {
            "approval": approval.request,
            "declassifier": approval.declassifier,
            "destination": approval.destination,
            "label": approval.label,
        }
        who = {"approver": approver, "uid": uid_of(request)}
        try:
            await self._audit.append("approval", action=action, **facts, **who, reason=reason)
        except AuditError:
            raise AuditUnavailable(
                "The appliance cannot record this, and so does not do it. The operator must look "
                "at the audit log."
            ) from None


async def _token(request: web.Request) -> str:
    try:
        return str(orjson.loads(await request.read())["token"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise BadRequest("Send {token: ...}.") from None


def _shown(request: web.Request, found: Approval, body: bytes) -> web.Response:
    encoded = b64encode(body).decode("ascii")
    return json_response(request, {**asdict(found), "body_base64": encoded})


def _accepted(request: web.Request, signed: Signed) -> web.Response:
    facts = asdict(signed.approval)
    return json_response(request, {"object": "conductor.approval", **facts})
