"""A schema registry over HTTP, in this process, with the calls that Confluent's clients make."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from rookery.security.tls import KeyPair, ServerTls, server_context
from rookery.testing.ports import HOST


@dataclass
class RegistryServer:
    """Keeps schemas in memory; `failures` of its next answers are HTTP 503.

    It does not check compatibility, nor compile Protobuf: files are registered serialized.
    """

    username: str | None = None
    password: str = ""
    own: KeyPair | None = None
    failures: int = 0
    requests: list[str] = field(default_factory=list)
    """The paths of all requests so far."""

    def __post_init__(self) -> None:
        """Begin with no schemas."""
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self))
        self._server.daemon_threads = True
        if self.own is not None:
            context: ssl.SSLContext = server_context(ServerTls(self.own))
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http{'s' if self.own else ''}://localhost:{self._server.server_port}"

    def __enter__(self) -> RegistryServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def register(
        self,
        subject: str,
        schema: str,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Add a version to a subject; return the schema's id."""
        entry = {"schema": schema, "schemaType": kind, "references": references or []}
        with self._lock:
            known = next(
                (at for at, known_entry in self._schemas.items() if known_entry == entry), None
            )
            schema_id = known or len(self._schemas) + 1
            self._schemas[schema_id] = entry
            versions = self._subjects.setdefault(subject, [])
            if schema_id not in versions:
                versions.append(schema_id)
            return schema_id

    def is_allowed(self, header: str) -> bool:
        """Check the credentials of a request."""
        if self.username is None:
            return True
        pair = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return header == f"Basic {pair}"

    def answer(self, path: str, posted: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        """Answer a request: the status, and the body."""
        parts = [
            urllib.parse.unquote(part) for part in path.partition("?")[0].strip("/").split("/")
        ]
        match parts:
            case ["schemas", "ids", number]:
                entry = self._schemas.get(int(number))
                return (404, _error(40403)) if entry is None else (200, entry)
            case ["subjects", subject, "versions"] if posted:
                kind = posted.get("schemaType", "AVRO")
                made = self.register(subject, posted["schema"], kind, posted.get("references"))
                return 200, {"id": made}
            case ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case ["subjects", subject] if posted:
                return self._look_up(subject, posted["schema"])
            case _:
                return 404, _error(404)

    def _look_up(self, subject: str, schema: str) -> tuple[int, dict[str, Any]]:
        for version, schema_id in enumerate(self._subjects.get(subject, []), 1):
            if self._schemas[schema_id]["schema"] == schema:
                return self._version(subject, str(version))
        return 404, _error(40403)

    def _version(self, subject: str, version: str) -> tuple[int, dict[str, Any]]:
        versions = self._subjects.get(subject, [])
        number = len(versions) if version == "latest" else int(version)
        if not 1 <= number <= len(versions):
            return 404, _error(40402)
        schema_id = versions[number - 1]
        named = {"subject": subject, "version": number, "id": schema_id}
        return 200, {**named, **self._schemas[schema_id]}


def _error(code: int) -> dict[str, Any]:
    return {"error_code": code, "message": "not found"}


def _handler(registry: RegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Hands requests to the registry."""

        def do_GET(self) -> None:
            """Answer a GET request."""
            self._answer(None)

        def do_POST(self) -> None:
            """Register or look up a schema."""
            size = int(self.headers.get("Content-Length", 0))
            self._answer(json.loads(self.rfile.read(size)))

        def _answer(self, posted: dict[str, Any] | None) -> None:
            registry.requests.append(self.path)
            if not registry.is_allowed(self.headers.get("Authorization", "")):
                status, body = 401, _error(401)
            elif registry.failures > 0:
                registry.failures -= 1
                status, body = 503, _error(503)
            else:
                status, body = registry.answer(self.path, posted)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Write no log lines."""

    return Handler
