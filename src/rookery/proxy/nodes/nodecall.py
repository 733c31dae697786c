"""One request to the brokers of the upstream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

from rookery.errors import ErrorCode
from rookery.net.callqueue import CallOptions
from rookery.proxy.edits.surplus import check_surplus
from rookery.proxy.nodes.backends import Backend
from rookery.proxy.passage import Passage
from rookery.wire.codec import read_response, request_frame
from rookery.wire.frame import PREFIX_BYTES, Frame
from rookery.wire.message import Api, Message


@dataclass(frozen=True, slots=True)
class NodeCall:
    """A decoded request with its API, its version and the means to send it."""

    passage: Passage
    client_id: str | None
    request: Any

    @property
    def api(self) -> Api[Any, Any]:
        """The API of the request."""
        return self.passage.api

    @property
    def version(self) -> int:
        """The version of the request, and of all its parts."""
        return self.passage.version

    def send(self, backend: Backend, part: Message, options: CallOptions) -> asyncio.Future[Any]:
        """Send the request, or a part of it; return its response, decoded.

        It fails with `ProtocolError` if the response cannot be decoded, or has items that
        were not asked for.
        """
        api, version = self.api, self.version
        parts = request_frame(api, version, 0, self.client_id, part)
        read = partial(_read, api, version, part) if options.is_answered else _nothing
        return backend.submit([memoryview(parts[0])[PREFIX_BYTES:], *parts[1:]], read, options)

    def refuse(self, part: Message, code: ErrorCode) -> Message:
        """Return the refusal of each item of a part."""
        refusal: Message = self.api.refuse_items(part, code)
        return refusal


def _read(api: Api[Any, Any], version: int, part: Message, frame: Frame) -> Message:
    response: Message = read_response(api, version, frame)
    check_surplus(api, version, part, response)
    return response


def _nothing(_: object) -> None:
    """Return no response, for a request without one."""
