"""As little of S3 as a broker needs, in the memory of one process: no disk, no keys, no checks.

    python bench/objectparts/s3stub.py --put-ms 50 --get-ms 20

It is there to see the limits of a broker where a real server would hide them: it costs a tenth of
the CPU of one. It knows conditional PUT, GET of a range, HEAD, LIST (version 2) and the deletion of
several at once, and answers with a given delay. A line on its standard input is answered with a
line of JSON: how many requests there were, by kind. It ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from email.utils import formatdate
from typing import Final, NamedTuple, cast
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from rookery.net.loop import run_loop
from rookery.testing.ports import HOST, free_port

_MAX_HEAD: Final = 65_536
_MAX_BODY: Final = 1 << 30
_KEY: Final = re.compile(r"<Key>([^<]*)</Key>")
_WHEN: Final = "2026-01-01T00:00:00.000Z"


class Entity(NamedTuple):
    """An object."""

    data: bytearray
    tag: str


class Answer(NamedTuple):
    """What a request is answered with."""

    status: str
    headers: dict[str, str]
    body: bytes | memoryview = b""
    length: int | None = None
    """What HEAD says of a body that is not sent."""


class Bucket:
    """All objects; the bucket's own name is a part of their keys."""

    def __init__(self) -> None:
        self._entities: dict[str, Entity] = {}
        self._keys: list[str] | None = None
        self._puts = 0

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytearray) -> Answer:
        """Do what a request asks for."""
        parts = urlsplit(target)
        key = unquote(parts.path).lstrip("/")
        if method == "PUT":
            return self._put(key, headers, body)
        if method == "POST" and "delete" in parts.query:
            return self._delete(key, body)
        if method == "GET" and "list-type=2" in parts.query:
            return self._list(key, parse_qs(parts.query))
        if method in {"GET", "HEAD"}:
            return self._get(key, headers, is_head=method == "HEAD")
        return _refusal("501 Not Implemented", "NotImplemented")

    def _put(self, key: str, headers: dict[str, str], body: bytearray) -> Answer:
        old = self._entities.get(key)
        if old is not None and headers.get("if-none-match") == "*":
            return _refusal("412 Precondition Failed", "PreconditionFailed")
        wanted = headers.get("if-match")
        if wanted is not None and (old is None or old.tag != wanted):
            return _refusal("412 Precondition Failed", "PreconditionFailed")
        # A number instead of the body's digest: a version, and no work.
        self._puts += 1
        tag = f'"{hashlib.md5(str(self._puts).encode(), usedforsecurity=False).hexdigest()}"'
        if old is None:
            self._keys = None
        self._entities[key] = Entity(body, tag)
        return Answer("200 OK", {"ETag": tag})

    def _delete(self, bucket: str, body: bytearray) -> Answer:
        keys = [unescape(key) for key in _KEY.findall(body.decode())]
        for key in keys:
            if self._entities.pop(f"{bucket.rstrip('/')}/{key}", None) is not None:
                self._keys = None
        rows = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        text = f"<DeleteResult>{rows}</DeleteResult>"
        return Answer("200 OK", {"Content-Type": "application/xml"}, text.encode())

    def _get(self, key: str, headers: dict[str, str], *, is_head: bool) -> Answer:
        entity = self._entities.get(key)
        if entity is None:
            return _refusal("404 Not Found", "NoSuchKey", is_head=is_head)
        total = len(entity.data)
        told = {"ETag": entity.tag, "Last-Modified": formatdate(1_767_225_600, usegmt=True)}
        if is_head:
            return Answer("200 OK", told, b"", total)
        view = memoryview(entity.data)
        first, dash, last = headers.get("range", "").removeprefix("bytes=").partition("-")
        if not dash:
            return Answer("200 OK", told, view)
        start, stop = int(first), min(int(last) + 1 if last else total, total)
        if start >= total:
            return _refusal("416 Range Not Satisfiable", "InvalidRange")
        told["Content-Range"] = f"bytes {start}-{stop - 1}/{total}"
        return Answer("206 Partial Content", told, view[start:stop])

    def _list(self, bucket: str, query: dict[str, list[str]]) -> Answer:
        if self._keys is None:
            self._keys = sorted(self._entities)
        root = bucket.rstrip("/") + "/"
        prefix = root + query.get("prefix", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        begin = bisect_left(self._keys, prefix)
        if after:
            begin = max(begin, bisect_right(self._keys, root + after))
        most = int(query.get("max-keys", ["1000"])[0])
        keys = [key for key in self._keys[begin : begin + most + 1] if key.startswith(prefix)]
        page, is_cut = keys[:most], len(keys) > most
        rows = "".join(
            f"<Contents><Key>{escape(key[len(root) :])}</Key><LastModified>{_WHEN}</LastModified>"
            f"<ETag>{escape(self._entities[key].tag)}</ETag>"
            f"<Size>{len(self._entities[key].data)}</Size></Contents>"
            for key in page
        )
        more = escape(page[-1][len(root) :]) if is_cut else ""
        text = (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
            f"<IsTruncated>{str(is_cut).lower()}</IsTruncated><KeyCount>{len(page)}</KeyCount>"
            + (f"<NextContinuationToken>{more}</NextContinuationToken>" if is_cut else "")
            + f"{rows}</ListBucketResult>"
        )
        return Answer("200 OK", {"Content-Type": "application/xml"}, text.encode())


def _refusal(status: str, code: str, *, is_head: bool = False) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{status}</Message></Error>".encode()
    return Answer(status, {"Content-Type": "application/xml"}, b"" if is_head else body)


class Server:
    """The bucket, and how late it answers."""

    def __init__(self, put_ms: float, get_ms: float) -> None:
        self.bucket = Bucket()
        self.requests: Counter[str] = Counter()
        self._put_ms = put_ms
        self._get_ms = get_ms

    def delay(self, method: str, target: str) -> float:
        """Count a request, and return how many seconds later it is answered."""
        self.requests["LIST" if method == "GET" and "list-type=" in target else method] += 1
        return (self._put_ms if method == "PUT" else self._get_ms) / 1000


class Connection(asyncio.BufferedProtocol):
    """A client's connection; its next request comes after the answer to the last."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._inbox = bytearray(_MAX_HEAD)
        self._filled = 0
        self._request: tuple[str, str, dict[str, str]] | None = None
        self._body = bytearray()
        self._got = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (we know better)
        """Have bodies received where they stay."""
        if self._request is not None:
            return memoryview(self._body)[self._got :]
        return memoryview(self._inbox)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come."""
        if self._request is not None:
            self._got += nbytes
        else:
            self._filled += nbytes
            self._take_head()
        if self._request is not None and self._got == len(self._body):
            self._serve(*self._request)

    def _take_head(self) -> None:
        head, end, rest = bytes(self._inbox[: self._filled]).partition(b"\r\n\r\n")
        if not end:
            if self._filled == _MAX_HEAD:
                self._transport.abort()
            return
        self._filled = 0
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        length = int(headers.get("content-length", "0"))
        if length > _MAX_BODY or len(rest) > length:
            self._transport.abort()
            return
        self._body = bytearray(length)
        self._body[: len(rest)] = rest
        self._got = len(rest)
        self._request = (method, target, headers)

    def _serve(self, method: str, target: str, headers: dict[str, str]) -> None:
        body, self._body, self._request = self._body, bytearray(), None
        delay = self._server.delay(method, target)
        answer = self._server.bucket.answer(method, target, headers, body)
        self._loop.call_later(delay, self._send, answer)

    def _send(self, answer: Answer) -> None:
        if self._transport.is_closing():
            return
        length = len(answer.body) if answer.length is None else answer.length
        told = {**answer.headers, "Content-Length": str(length)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self._transport.write(f"HTTP/1.1 {answer.status}\r\n{lines}\r\n".encode())
        if len(answer.body):
            self._transport.write(answer.body)


async def tell_counts(requests: Counter[str]) -> None:
    """Answer every line of the standard input with the counts, until it ends."""
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(requests), flush=True)


async def _serve(put_ms: float, get_ms: float) -> None:
    server = Server(put_ms, get_ms)
    port = free_port()
    listening = await asyncio.get_running_loop().create_server(
        lambda: Connection(server), HOST, port
    )
    print(json.dumps({"endpoint": f"http://{HOST}:{port}"}), flush=True)
    await tell_counts(server.requests)
    listening.close()


def main() -> None:
    """Serve until the standard input ends."""
    parser = argparse.ArgumentParser(description="A stub of S3 in memory, for benchmarks.")
    parser.add_argument("--put-ms", type=float, default=0.0)
    parser.add_argument("--get-ms", type=float, default=0.0)
    arguments = parser.parse_args()
    run_loop(_serve(arguments.put_ms, arguments.get_ms))


if __name__ == "__main__":
    main()
