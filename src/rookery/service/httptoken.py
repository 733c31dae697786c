"""A bearer token for the HTTP pages of a server: `Authorization: Bearer TOKEN`."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError
from rookery.net.http import Route, Routes
from rookery.net.httptext import HttpRequest, Refusal, Response

_MIN_LENGTH: Final = 16


def read_token(path: str) -> str:
    """Return the token in the first line of a file.

    Raises:
        ConfigError: the file cannot be read, or the token is too short.
    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(error), name="http_token_file") from error
    token = lines[0].strip() if lines else ""
    if len(token) < _MIN_LENGTH:
        raise ConfigError(
            f"the token in {path} must have at least {_MIN_LENGTH} characters",
            name="http_token_file",
        )
    return token


def require_token(routes: Routes, token: str) -> Routes:
    """Return routes that answer only requests with the token."""
    return {name: _guard(route, f"Bearer {token}".encode()) for name, route in routes.items()}


def _guard(route: Route, expected: bytes) -> Route:
    async def answer(request: HttpRequest) -> Response:
        given = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, expected):
            raise Refusal(
                HTTPStatus.UNAUTHORIZED, "a token is needed", {"WWW-Authenticate": "Bearer"}
            )
        return await route(request)

    return answer
