"""What HTTP clients ask and what they are answered, apart from its form in bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

MAX_FIELDS: Final = 100
"""The largest number of headers, and of parameters in a query."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What a client asks for."""

    method: str
    path: str
    """Without the query, percent-decoded."""
    query_text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name; repeated ones are joined by commas."""
    body: bytes = b""
    peer: str = ""
    """The client's address."""

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters; the last one of a name counts.

        Raises:
            Refusal: there are too many.
        """
        try:
            found = parse_qs(self.query_text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            raise Refusal(HTTPStatus.BAD_REQUEST, "too many parameters") from None
        return {name: values[-1] for name, values in found.items()}


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

    body: bytes = b""
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


def as_text(body: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Answer with plain text."""
    return Response(body.encode(errors="replace"), status)


def as_json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Answer with JSON."""
    return Response(json.dumps(value).encode() + b"\n", status, "application/json")


FAILED: Final = as_text("internal error\n", HTTPStatus.INTERNAL_SERVER_ERROR)
"""All that a client learns when something of ours breaks."""


class Refusal(Exception):  # noqa: N818 (it is an answer)
    """A request that is answered with an error; a route may raise it, too."""

    def __init__(
        self, status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.response = Response(f"{reason}\n".encode(), status, headers=headers or {})
