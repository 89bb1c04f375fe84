"""HTTP/1.1 as a client speaks it, without I/O: `h11`, driven through one request and its answer.

`h11` knows the grammar, finds the end of a body, and tells when a connection may be used again.
Added here are limits, and the refusal of what it would mend or choose between: an answer whose end
or fields another reader could see differently (RFC 9112, sections 2.2, 5.2, 6.1 and 11.2).

Sockets and timers stay ours (`connection.py`, `address.py`), because no client library offers all
that the appliance promises. That is four timers that fire by the clock, an abort that drops what
is unsent, the knowledge that a connection was a reused one, and patience with a Unix socket whose
backlog is full (EAGAIN).

Left out on purpose: redirects, cookies, compression, proxies, TLS, HTTP/2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import h11

MAX_HEAD_BYTES = 32 * 1024
"""Of all heads of one answer together, interim ones included."""
_STRICT_HEAD = re.compile(rb"(?:[^\s\0][^\r\n\f\v\0]*+\r\n)++\r\n")
"""Lines that end in CRLF and nowhere else, none folded. `h11` would take a bare LF for an end."""
_STEP_BYTES = 2 * 1024
"""Given to `h11` at a time, and the longest chunk line or trailer that may stay incomplete. Its
patterns for those take quadratic time: 30 ms for two steps of blanks, 800 ms for ten."""


class BadHttp(Exception):
    """The peer does not speak HTTP/1.1 unambiguously. Holds none of what it sent."""


@dataclass(frozen=True)
class Request:
    """A POST, checked: `head` is fit to be sent with exactly `body`."""

    head: h11.Request
    body: bytes


@dataclass(frozen=True)
class Head:
    """Status and header fields of a response; names in lower case, repeated fields joined."""

    status: int
    headers: Mapping[str, str]


def post(target: str, host: str, headers: Iterable[tuple[str, str]], body: bytes) -> Request:
    """Raises `ValueError` for a line break or anything else in a value that could end it early or
    add another header, and for what is not ASCII."""
    fields = [("Host", host), ("Content-Length", str(len(body))), *headers]
    try:
        return Request(h11.Request(method="POST", target=target, headers=fields), body)
    except (h11.LocalProtocolError, UnicodeEncodeError):
        raise ValueError("a request header holds what no header may hold") from None


class Cycle:
    """One request and its answer: `send`, then `head` until there is one, then `feed`."""

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_STEP_BYTES)
        self._head_bytes_left = MAX_HEAD_BYTES
        self.done = False
        """The last byte of the answer has been fed, and none behind it."""

    @property
    def keep_alive(self) -> bool:
        """Whether both sides would use the connection again. Known once the head is."""
        return self._h11.our_state is h11.DONE

    def send(self, request: Request) -> tuple[bytes, bytes]:
        """Head and body as they go over the wire."""
        head = self._h11.send(request.head)
        body = self._h11.send(h11.Data(data=request.body))
        self._h11.send(h11.EndOfMessage())
        return head, body

    def head(self, data: bytes) -> Head | None:
        """Read one head, up to and with its blank line. None for an interim one (1xx).
        Raises `BadHttp`, also for a head that leaves the end of the body in doubt."""
        self._head_bytes_left -= len(data)
        if self._head_bytes_left < 0:
            raise BadHttp("response heads without an end")
        if _STRICT_HEAD.fullmatch(data) is None:
            raise BadHttp("a response head with loose line ends")
        self._h11.receive_data(data)
        event = self._next_event()
        if not isinstance(event, h11.Response):
            return None
        head = Head(event.status_code, _joined(event.headers))
        _refuse_doubt(event.http_version, head.headers)
        self._content()  # an empty body ends with its head
        return head

    def feed(self, data: bytes) -> bytes:
        """Take some bytes of the body off the wire, give those of its content.
        Raises `BadHttp`, also for bytes behind the end."""
        content = bytearray()
        for at in range(0, len(data), _STEP_BYTES):
            self._h11.receive_data(data[at : at + _STEP_BYTES])
            content += self._content()
        return bytes(content)

    def end(self) -> bool:
        """The peer has closed before `done`: whether that was a proper end."""
        self._h11.receive_data(b"")
        try:
            return isinstance(self._h11.next_event(), h11.EndOfMessage)
        except h11.RemoteProtocolError:
            return False

    def _content(self) -> bytes:
        self.done = False  # whatever is raised: it must not look like an end
        pieces = []
        while isinstance(event := self._next_event(), h11.Data):
            pieces.append(event.data)
        ended = isinstance(event, h11.EndOfMessage)
        if event is h11.PAUSED or (ended and self._h11.trailing_data[0]):
            raise BadHttp("bytes behind the end of the answer")
        self.done = ended
        return b"".join(pieces)

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError:  # its message repeats what the peer sent
            raise BadHttp("an answer that breaks HTTP/1.1") from None


def _joined(fields: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _refuse_doubt(version: bytes, headers: Mapping[str, str]) -> None:
    """Where `h11` would choose one reading of a head, take none."""
    if version not in (b"1.0", b"1.1"):
        raise BadHttp("no HTTP/1 answer")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise BadHttp("a compressed body that nobody asked for")
    if "transfer-encoding" in headers and (version == b"1.0" or "content-length" in headers):
        raise BadHttp("a transfer coding that leaves the end in doubt")
