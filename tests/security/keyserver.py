"""An https server on loopback with the keys of an issuer, correct or faulty."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rookery.testing.certificates import Certificates
from rookery.testing.ports import HOST

Answer = Callable[[BaseHTTPRequestHandler], None]


class KeyServer:
    """Answers every request with one body, until a test sets another answer."""

    def __init__(self, server: ThreadingHTTPServer, authority: Path) -> None:
        self._server = server
        self.authority = authority
        """The certificate that clients must trust."""
        self.requests = 0
        """The number of requests so far."""
        self.answer: Answer = lambda handler: send(handler, b"")

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self._server.server_address[1]}/keys"

    def publish(self, keys: dict[str, Any]) -> None:
        """Answer with a JWK set."""
        body = json.dumps(keys).encode()
        self.answer = lambda handler: send(handler, body)


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    """Send an answer."""
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def serve_keys(folder: Path) -> Iterator[KeyServer]:
    """Run a server whose certificate is of an authority of its own."""
    files = Certificates.make(folder / "keyserver", HOST)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.requests += 1
            keys.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = _QuietServer((HOST, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    keys = KeyServer(server, files.ca)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield keys
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _QuietServer(ThreadingHTTPServer):
    """Keeps quiet about clients that hang up, or do not trust its certificate."""

    def handle_error(self, *_: object) -> None:
        pass

    def get_request(self) -> tuple[Any, Any]:
        # A failed handshake is an error of the listening socket, which ends nothing.
        try:
            return super().get_request()
        except ssl.SSLError as error:
            raise OSError(str(error)) from error
