"""HTTP/1.1 as a client speaks it, without I/O (RFC 9112): one request head, one response.

A client of our own, because four things that the appliance promises are out of reach behind a
general one: to know whether a connection was a reused one, to abort an upload at once, to let each
of four timers fire by the clock, and to connect to a Unix socket whose backlog is full.

Left out on purpose: redirects, cookies, compression, proxies, TLS, HTTP/2. Whatever is ambiguous
about where an answer ends is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

MAX_HEAD_BYTES = 32 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?\Z")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)\Z")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\n]*)?\r\n")
_MAX_CHUNK_LINE = 4096


class BadHttp(Exception):
    """The peer does not speak HTTP/1.1. Holds none of what it sent."""


@dataclass(frozen=True)
class Head:
    """Status and header fields of a response; names in lower case."""

    status: int
    headers: Mapping[str, str]
    keep_alive: bool


class Body(Protocol):
    """Finds the end of a body. `feed` takes bytes off the wire, gives those of the content."""

    done: bool
    """The last byte has been fed."""

    def feed(self, data: bytes) -> bytes:
        """Raises `BadHttp`, also for bytes behind the end."""

    def end(self) -> bool:
        """The peer has closed: whether that was a proper end."""


def request_head(target: str, host: str, length: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """The head of a POST with `length` bytes of body. Raises `ValueError` for a line break or
    anything else outside visible ASCII in a value: a header must not be able to add another."""
    lines = [f"POST {target} HTTP/1.1", f"Host: {host}", f"Content-Length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if any(not (line.isascii() and line.isprintable()) for line in lines) or " " in target:
        raise ValueError("a request header holds what no header may hold")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def parse_head(data: bytes | bytearray) -> Head:
    """Read a response head, up to and with its blank line."""
    status_line, *fields = bytes(data).removesuffix(b"\r\n\r\n").split(b"\r\n")
    found = _STATUS_LINE.match(status_line)
    if found is None:
        raise BadHttp("no HTTP/1 status line")
    headers: dict[str, str] = {}
    for field in fields:
        pair = _FIELD.match(field)
        if pair is None:
            raise BadHttp("a broken header field")
        name, value = pair[1].decode("ascii").lower(), pair[2].decode("latin-1").strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    options = headers.get("connection", "").lower()
    keep_alive = "close" not in options if found[1] == b"1" else "keep-alive" in options
    return Head(int(found[2]), headers, keep_alive)


def body_of(head: Head) -> Body:
    """Which framing the answer to a POST has (RFC 9112, section 6.3)."""
    coding = head.headers.get("transfer-encoding")
    length = head.headers.get("content-length")
    if head.headers.get("content-encoding", "identity").lower() != "identity":
        raise BadHttp("a compressed body that nobody asked for")
    if coding is not None:
        if length is not None or coding.lower() != "chunked":
            raise BadHttp("a transfer coding that leaves the end in doubt")
        return ChunkedBody()
    if head.status in (204, 304):
        return FixedBody(0)
    if length is None:
        return OpenBody()
    if not (length.isascii() and length.isdigit() and len(length) <= 15):
        raise BadHttp("a broken content length")
    return FixedBody(int(length))


class FixedBody:
    """Ends after a stated number of bytes."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def feed(self, data: bytes) -> bytes:
        if len(data) > self._left:
            raise BadHttp("more bytes than were announced")
        self._left -= len(data)
        self.done = self._left == 0
        return data

    def end(self) -> bool:
        return self.done


class OpenBody:
    """Ends when the peer closes, so it cannot tell an end from a cut."""

    done = False

    def feed(self, data: bytes) -> bytes:
        return data

    def end(self) -> bool:
        return True


class ChunkedBody:
    """Chunked transfer coding (RFC 9112, section 7.1); extensions and trailers are dropped."""

    def __init__(self) -> None:
        self.done = False
        self._buffer = bytearray()
        self._left = 0
        self._state = self._size_line

    def feed(self, data: bytes) -> bytes:
        self._buffer += data
        content = bytearray()
        while not self.done and self._state(content):
            pass
        if self.done and self._buffer:
            raise BadHttp("bytes behind the last chunk")
        if self._state != self._data and len(self._buffer) > _MAX_CHUNK_LINE:
            raise BadHttp("a chunk line or trailer without an end")
        return bytes(content)

    def end(self) -> bool:
        return self.done

    def _size_line(self, content: bytearray) -> bool:
        if b"\n" not in self._buffer:
            return False
        found = _CHUNK_SIZE.match(self._buffer)
        if found is None:
            raise BadHttp("a broken chunk size")
        self._left = int(found[1], 16)
        del self._buffer[: found.end()]
        self._state = self._data if self._left else self._trailer
        return True

    def _data(self, content: bytearray) -> bool:
        piece = self._buffer[: self._left]
        content += piece
        del self._buffer[: len(piece)]
        self._left -= len(piece)
        if self._left == 0:
            self._state = self._data_end
        return self._left == 0

    def _data_end(self, content: bytearray) -> bool:
        if len(self._buffer) < 2:
            return False
        if not self._buffer.startswith(b"\r\n"):
            raise BadHttp("a chunk longer than announced")
        del self._buffer[:2]
        self._state = self._size_line
        return True

    def _trailer(self, content: bytearray) -> bool:
        line, found, rest = self._buffer.partition(b"\n")
        if found:
            self._buffer = rest
            self.done = line.rstrip(b"\r") == b""
        return bool(found)
