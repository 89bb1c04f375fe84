"""What waits for a person's approval, for administrators on their socket.

    GET  /v1/approvals          what waits: names, labels and hashes
    GET  /v1/approvals/ID       the very bytes that would be sent, to be read before signing
    POST /v1/approvals          {token}: an approver's signature over one of them

The bytes are shown on this socket alone, which only the appliance's own user can open; they stand
in memory, and go when the request that they wait for expires.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict

import orjson
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from conductor.active import Active
from conductor.api.envelope import json_response
from conductor.declassify.approvals import ApprovalBook
from conductor.declassify.approved import ApprovalRefused
from conductor.errors import BadRequest, NotFound
from conductor.policy.document import Policy


class ApprovalsHandler:
    """The three endpoints."""

    def __init__(self, book: ApprovalBook, active: Active) -> None:
        self._book = book
        self._active = active

    async def list(self, request: web.Request) -> web.Response:
        """What nobody has approved yet, oldest first."""
        waiting = [asdict(approval) for approval in self._book.waiting()]
        return json_response(request, {"object": "list", "data": waiting})

    async def body(self, request: web.Request) -> web.Response:
        """The bytes of one request. Raises `NotFound`."""
        wanted = request.match_info["id"]
        body = self._book.body_of(wanted)
        found = next((one for one in self._book.waiting() if one.request == wanted), None)
        if body is None or found is None:
            raise NotFound("Nothing waits for approval under this id, any more or at all.")
        encoded = b64encode(body).decode("ascii")
        return json_response(request, {**asdict(found), "body_base64": encoded})

    async def accept(self, request: web.Request) -> web.Response:
        """Take a signature in. Raises `BadRequest` with the reason when it does not count."""
        try:
            token = str(orjson.loads(await request.read())["token"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise BadRequest("Send {token: ...}.") from None
        try:
            approval = self._book.accept(token, self._approvers(token))
        except ApprovalRefused as refused:
            raise BadRequest(f"The approval does not count: {refused.reason}.") from None
        return json_response(request, {"object": "conductor.approval", **asdict(approval)})

    def _approvers(self, token: str) -> dict[str, Ed25519PublicKey]:
        """The keys of those whom the declassifier of what is approved names."""
        policy = self._active.site.policy
        wanted = self._book.declassifier_of(token)
        declassifier = policy.declassifiers.get(wanted)
        return _keys(policy, declassifier.approvers if declassifier is not None else ())


def _keys(policy: Policy, ids: tuple[str, ...]) -> dict[str, Ed25519PublicKey]:
    return {
        one.id: Ed25519PublicKey.from_public_bytes(one.public_key)
        for one in policy.approvers
        if one.id in ids
    }
