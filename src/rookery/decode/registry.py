"""A client for schema registries with Confluent's HTTP API.

    registry = SchemaRegistry(RegistrySettings("http://localhost:8081"))
    schema = registry.schema(17)            # cached: an id never changes its meaning

The handle can be pickled: only its settings are sent, not its cache.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final, cast

from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.errors import ConfigError, Error, Unavailable
from rookery.security.tls import ClientTls, client_context

_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_MAX_SCHEMAS: Final = 10_000
_MAX_REFERENCES: Final = 256
_UNKNOWN_MS: Final = 30_000
"""How long an id counts as unknown before it is requested again: it may be registered later."""


class UnknownSchema(Error):  # noqa: N818 (the name says what happened; the base says it is an error)
    """The registry has no such schema: the rows that name it are bad."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The address of a schema registry, and the connection settings."""

    url: str
    """Its address, such as `https://registry:8081`."""

    username: str | None = None
    """For HTTP basic authentication."""

    password: str | None = field(default=None, repr=False)
    """For HTTP basic authentication."""

    tls: ClientTls | None = None
    """How to verify an `https` server; None: with the operating system's authorities."""

    timeout_ms: int = 10_000
    """The timeout of one request."""

    attempts: int = 4
    """The number of attempts before the registry counts as unreachable."""

    backoff_ms: int = 200
    """The wait before the second attempt; it doubles with each further attempt."""

    max_response_bytes: int = 8 << 20
    """The maximum size of a response."""

    def __post_init__(self) -> None:
        """Move user name and password out of the address, because messages show it."""
        try:
            parts = urllib.parse.urlsplit(self.url)
        except ValueError:
            raise ConfigError("schema registry: its address is not a URL") from None
        user, at, host = parts.netloc.rpartition("@")
        if not at:
            return
        name, _, password = user.partition(":")
        object.__setattr__(self, "url", parts._replace(netloc=host).geturl())
        if self.username is None:
            object.__setattr__(self, "username", urllib.parse.unquote(name))
            object.__setattr__(self, "password", urllib.parse.unquote(password))


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another schema uses, and the name by which it is used."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as stored in the registry."""

    schema_id: int
    kind: str
    """AVRO, JSON or PROTOBUF."""

    text: str
    references: tuple[Reference, ...] = ()
    version: int | None = None
    """The version of its subject, if it was requested by version."""


class SchemaRegistry:
    """A schema registry: schemas by id and by subject. Safe to use from several threads."""

    def __init__(
        self,
        settings: RegistrySettings | str,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.settings = RegistrySettings(settings) if isinstance(settings, str) else settings
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._lock = threading.Lock()
        self._schemas: dict[tuple[int, str], RegisteredSchema] = {}
        self._versions: dict[tuple[str, int, str], RegisteredSchema] = {}
        self._unknown: dict[int, int] = {}
        self._opener = _opener(self.settings)
        self.requests = 0
        """The number of HTTP requests so far."""

    def __reduce__(self) -> tuple[type[SchemaRegistry], tuple[RegistrySettings]]:
        return SchemaRegistry, (self.settings,)

    def schema(self, schema_id: int, form: str = "") -> RegisteredSchema:
        """Return the schema of an id; `form` is one that the registry offers (`serialized`).

        Raises:
            UnknownSchema: the schema does not exist.
            Unavailable: the registry cannot be reached.
        """
        with self._lock:
            schema = self._schemas.get((schema_id, form))
            if schema is not None:
                return schema
            self._refuse_unknown(schema_id)
            answer = self._get(f"/schemas/ids/{schema_id}" + _query(form))
            if answer is None:
                _make_room(self._unknown)
                self._unknown[schema_id] = self._clock.monotonic_ms()
                raise UnknownSchema(f"the registry has no schema {schema_id}")
            _make_room(self._schemas)
            schema = self._schemas[schema_id, form] = _schema(answer, schema_id)
            return schema

    def latest(self, subject: str, version: int | None = None, form: str = "") -> RegisteredSchema:
        """Return a version of a subject; by default the newest, which is requested each time.

        Raises:
            UnknownSchema: the schema does not exist.
            Unavailable: the registry cannot be reached.
        """
        with self._lock:
            if version is not None and (subject, version, form) in self._versions:
                return self._versions[subject, version, form]
            name = urllib.parse.quote(subject, safe="")
            answer = self._get(f"/subjects/{name}/versions/{version or 'latest'}" + _query(form))
            if answer is None:
                what = f"version {version} of " if version else ""
                raise UnknownSchema(f"the registry has no {what}subject {subject!r}")
            schema = _schema(answer, None)
            if version is not None:
                _make_room(self._versions)
                self._versions[subject, version, form] = schema
            return schema

    def references(self, schema: RegisteredSchema, form: str = "") -> dict[str, RegisteredSchema]:
        """Return all schemas that a schema uses, directly or indirectly, by their names.

        Dependencies come before the schemas that use them.

        Raises:
            UnknownSchema: one of them is missing, or there are too many.
            Unavailable: the registry cannot be reached.
        """
        schemas: dict[str, RegisteredSchema] = {}
        self._follow(schema, schemas, (), form)
        return schemas

    def _follow(
        self,
        schema: RegisteredSchema,
        schemas: dict[str, RegisteredSchema],
        above: tuple[Reference, ...],
        form: str,
    ) -> None:
        for reference in schema.references:
            if reference.name in schemas:
                continue
            if reference in above or len(schemas) + len(above) >= _MAX_REFERENCES:
                raise UnknownSchema(
                    f"schema {schema.schema_id}: its references run in circles or are too many"
                )
            used = self.latest(reference.subject, reference.version, form)
            self._follow(used, schemas, (*above, reference), form)
            schemas[reference.name] = used

    def _refuse_unknown(self, schema_id: int) -> None:
        since = self._unknown.get(schema_id)
        if since is None:
            return
        if self._clock.monotonic_ms() - since < _UNKNOWN_MS:
            raise UnknownSchema(f"the registry has no schema {schema_id}")
        del self._unknown[schema_id]

    def _get(self, path: str) -> dict[str, Any] | None:
        """Send a request, with retries where useful; None if the resource does not exist."""
        wait_ms, problem = float(self.settings.backoff_ms), ""
        for attempt in range(max(self.settings.attempts, 1)):
            if attempt:
                time.sleep(self._random.jitter(wait_ms, 0.5) / 1000)
                wait_ms *= 2
            status, body = self._ask(path)
            if status == 200:
                return _object(body, self.settings.url + path)
            if status == 404:
                return None
            problem = body.decode(errors="replace")[:200] if status is None else f"HTTP {status}"
            if status in {401, 403}:
                raise ConfigError(
                    f"schema registry {self.settings.url}: {problem}; check username and password"
                )
            if status is not None and status not in {408, 429} and status < 500:
                break
        raise Unavailable(f"schema registry {self.settings.url}{path}: {problem}")

    def _ask(self, path: str) -> tuple[int | None, bytes]:
        """Send one request; return the status (None: no response) and the body, or the error."""
        self.requests += 1
        url = self.settings.url.rstrip("/") + path
        request = urllib.request.Request(url, headers=_headers(self.settings))  # noqa: S310 (checked)
        limit = self.settings.max_response_bytes
        try:
            with self._opener.open(request, timeout=self.settings.timeout_ms / 1000) as answer:
                body = answer.read(limit + 1)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, b""
        except (OSError, HTTPException, ValueError) as error:
            return None, str(error).encode()
        if len(body) > limit:
            raise Unavailable(f"schema registry {url}: the answer exceeds {limit} bytes")
        return 200, body


def _opener(settings: RegistrySettings) -> urllib.request.OpenerDirector:
    scheme = urllib.parse.urlsplit(settings.url).scheme
    if scheme not in {"http", "https"}:
        raise ConfigError(f"schema registry {settings.url!r}: write http://host:port or https://…")
    context = client_context(settings.tls) if settings.tls else ssl.create_default_context()
    # No proxies from the environment and no redirects: credentials go only to the named host.
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=context),
        _NoRedirects(),
    )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _headers(settings: RegistrySettings) -> dict[str, str]:
    headers = {"Accept": _ACCEPT}
    if settings.username is not None:
        pair = f"{settings.username}:{settings.password or ''}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
    return headers


def _object(body: bytes, url: str) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable(f"schema registry {url}: the answer is not a JSON object")
    return answer


def _schema(answer: dict[str, Any], schema_id: int | None) -> RegisteredSchema:
    try:
        return RegisteredSchema(
            int(answer["id"]) if schema_id is None else schema_id,
            str(answer.get("schemaType") or "AVRO"),
            cast("str", answer["schema"]) + "",
            tuple(
                Reference(
                    str(reference["name"]), str(reference["subject"]), int(reference["version"])
                )
                for reference in answer.get("references") or ()
            ),
            int(answer["version"]) if schema_id is None else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable(f"schema registry: an answer lacks what it must have: {error}") from None


def _query(form: str) -> str:
    return f"?format={form}" if form else ""


def _make_room(kept: dict[Any, Any]) -> None:
    if len(kept) >= _MAX_SCHEMAS:
        del kept[next(iter(kept))]
