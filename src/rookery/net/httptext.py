"""HTTP requests and responses, independent of their encoding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

MAX_FIELDS: Final = 100
"""The maximum number of headers, and of parameters in a query."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request with its headers and body, after parsing."""

    method: str
    path: str
    """The path without the query, percent-decoded."""
    query_text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers by lower-case name; repeated ones are joined by commas."""
    body: bytes = b""
    peer: str = ""
    """The client's address."""

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters; the last value of a name is used.

        Raises:
            Refusal: there are too many.
        """
        try:
            parsed = parse_qs(self.query_text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            raise Refusal(HTTPStatus.BAD_REQUEST, "too many parameters") from None
        return {name: values[-1] for name, values in parsed.items()}


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    body: bytes = b""
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


def as_text(body: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return a plain-text response."""
    return Response(body.encode(errors="replace"), status)


def as_json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return a JSON response."""
    return Response(json.dumps(value).encode() + b"\n", status, "application/json")


FAILED: Final = as_text("internal error\n", HTTPStatus.INTERNAL_SERVER_ERROR)
"""The response to an internal error, which reveals nothing else."""


class Refusal(Exception):  # noqa: N818 (it is an answer)
    """A request that is answered with an error; a route may also raise it."""

    def __init__(
        self, status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.response = Response(f"{reason}\n".encode(), status, headers=headers or {})
