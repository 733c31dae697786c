"""The same conversations of a login, with Kafka and with Rookery: the answers are the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from rookery.clock import SystemClock
from rookery.errors import ErrorCode
from rookery.testing.kafka import KafkaServer
from rookery.testing.properties import KafkaSettings
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_response
from rookery.wire.message import Api
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from tests.broker.secured import PASSWORD, SASL_MECHANISMS, USER, SecuredBroker, serve_secured
from tests.security.tokens import AUDIENCE, ISSUER, Issuer
from tests.sweep.asking import Line, frame

Tails = tuple[list[object], list[object]]

ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
NUMBER: Final = 5
SESSION_MS: Final = 600_000
RIGHT: Final = f"\0{USER}\0{PASSWORD}".encode()
FIRST: Final = f"n,,n={USER},r=fyko+d2lbbFgONRv9qkxdawL".encode()
CLOSED: Final = "closed"


class Step(NamedTuple):
    """A frame that a client sends, and the API of its answer; None if that is a bare message."""

    sent: bytes
    api: Api[Any, Any] | None
    version: int = 0
    is_repeated: bool = False
    """Whether it is sent until it is accepted: Kafka accepts a second login after a second."""


def choose(mechanism: str = "PLAIN", version: int = 1) -> Step:
    request = SaslHandshakeRequest(mechanism=mechanism)
    return Step(frame(SASL_HANDSHAKE, version, NUMBER, request), SASL_HANDSHAKE, version)


def choose_again(mechanism: str = "PLAIN", version: int = 1) -> Step:
    return choose(mechanism, version)._replace(is_repeated=True)


def pass_on(message: bytes, version: int = 2) -> Step:
    request = SaslAuthenticateRequest(auth_bytes=message)
    sent = frame(SASL_AUTHENTICATE, version, NUMBER, request)
    return Step(sent, SASL_AUTHENTICATE, version)


def bare(message: bytes) -> Step:
    return Step(len(message).to_bytes(4, "big") + message, None)


def versions(version: int = 3) -> Step:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    return Step(frame(API_VERSIONS, version, NUMBER, request), API_VERSIONS, version)


def unknown_versions() -> Step:
    """Ask in a version that does not exist; the answer is of version 0."""
    sent = bytearray(versions().sent)
    sent[6:8] = (99).to_bytes(2, "big")
    return Step(bytes(sent), API_VERSIONS, 0)


OTHER: Final = Step(frame(DESCRIBE_CLUSTER, 0, NUMBER, DescribeClusterRequest()), DESCRIBE_CLUSTER)
"""A request of another API."""
LOGIN: Final = [choose(), pass_on(RIGHT)]
PLAIN_MESSAGES: Final = {
    "right": RIGHT,
    "wrong password": f"\0{USER}\0wrong".encode(),
    "unknown user": b"\0nobody\0wrong",
    "own authorization id": f"{USER}\0{USER}\0{PASSWORD}".encode(),
    "foreign authorization id": f"{ADMIN}\0{USER}\0{PASSWORD}".encode(),
    "empty": b"",
    "no password": f"\0{USER}".encode(),
    "empty password": f"\0{USER}\0".encode(),
    "empty user": b"\0\0secret",
    "four parts": f"\0{USER}\0{PASSWORD}\0".encode(),
    "not UTF-8": b"\0\xff\xfe\0secret",
}
SCRAM_FIRST: Final = {
    "right": FIRST,
    "channel binding not used": b"y" + FIRST[1:],
    "channel binding": b"p=tls-unique" + FIRST[1:],
    "own authorization id": b"n,a=alice," + FIRST[3:],
    "foreign authorization id": b"n,a=admin," + FIRST[3:],
    "mandatory extension": b"n,,m=x," + FIRST[3:],
    "extension": FIRST + b",x=y",
    "no nonce": b"n,,n=alice",
    "empty nonce": b"n,,n=alice,r=",
    "empty name": b"n,,n=,r=abc",
    "comma in the name": b"n,,n=a=2Cb,r=abc",
    "wrong escape": b"n,,n=a=2Db,r=abc",
    "empty": b"",
    "no header": FIRST[3:],
}
SCRAM_FINAL: Final = {
    "other nonce": b"c=biws,r=abc,p=AAAA",
    "no proof": b"c=biws,r=abc",
    "no header": b"r=abc,p=AAAA",
    "empty": b"",
    "first again": FIRST,
}
BEARER: Final = {
    "no token": b"n,,\x01\x01",
    "another scheme": b"n,,\x01auth=Basic x\x01\x01",
    "text": b"hello",
    "empty": b"",
    "foreign authorization id": b"n,a=admin,\x01auth=Bearer a.b.c\x01\x01",
}

CONVERSATIONS: Final[dict[str, list[Step]]] = {
    **{
        f"handshake {first}, token {second}": [choose(version=first), pass_on(RIGHT, second), OTHER]
        for first in (0, 1)
        for second in (0, 1, 2)
    },
    **{f"PLAIN, {name}": [choose(), pass_on(text), OTHER] for name, text in PLAIN_MESSAGES.items()},
    **{
        f"bare PLAIN, {name}": [choose(version=0), bare(text), OTHER]
        for name, text in PLAIN_MESSAGES.items()
    },
    **{
        f"{mechanism}, {name}": [choose(mechanism), pass_on(text)]
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for name, text in SCRAM_FIRST.items()
    },
    **{
        f"SCRAM, then {name}": [choose("SCRAM-SHA-256"), pass_on(FIRST), pass_on(text), OTHER]
        for name, text in SCRAM_FINAL.items()
    },
    **{
        f"bare SCRAM, then {name}": [choose("SCRAM-SHA-256", 0), bare(FIRST), bare(text), OTHER]
        for name, text in SCRAM_FINAL.items()
    },
    **{
        f"OAUTHBEARER, {name}": [choose("OAUTHBEARER"), pass_on(text), pass_on(b"\x01"), OTHER]
        for name, text in BEARER.items()
    },
    "unknown mechanism": [choose("GSSAPI"), choose(), pass_on(RIGHT)],
    "unknown mechanism, bare": [choose("GSSAPI", 0), bare(RIGHT)],
    "mechanism in lower case": [choose("plain"), pass_on(RIGHT)],
    "no mechanism": [choose(""), pass_on(RIGHT)],
    "no handshake": [pass_on(RIGHT), OTHER],
    "bare at once": [bare(RIGHT), OTHER],
    "another API first": [OTHER],
    "another API in a login": [choose(), OTHER, OTHER],
    "another API after a failure": [choose(), pass_on(b"\0alice\0wrong"), OTHER],
    "another API between two messages": [choose("SCRAM-SHA-256"), pass_on(FIRST), OTHER, OTHER],
    "two handshakes": [choose(), choose(), pass_on(RIGHT)],
    "handshake between two messages": [choose("SCRAM-SHA-256"), pass_on(FIRST), choose(), OTHER],
    "versions first": [versions(), *LOGIN, OTHER],
    "versions twice": [versions(), versions(), *LOGIN, OTHER],
    "versions in a login": [choose(), versions(), pass_on(RIGHT), OTHER],
    "versions between two messages": [choose("SCRAM-SHA-256"), pass_on(FIRST), versions(), OTHER],
    "versions after a login": [*LOGIN, versions(), OTHER],
    "unknown versions first": [unknown_versions(), versions(), *LOGIN, OTHER],
    "unknown versions twice": [unknown_versions(), unknown_versions(), *LOGIN, OTHER],
    "bare message after a handshake of version 1": [choose(), bare(RIGHT), OTHER],
    "again": [*LOGIN, OTHER, choose_again(), pass_on(RIGHT), OTHER],
    "again as another user": [
        *LOGIN, choose_again(), pass_on(f"\0{ADMIN}\0{ADMIN_PASSWORD}".encode()), OTHER,
    ],
    "again with another mechanism": [*LOGIN, choose_again("SCRAM-SHA-256"), pass_on(FIRST), OTHER],
    "again with a wrong password": [*LOGIN, choose_again(), pass_on(b"\0alice\0wrong"), OTHER],
    "again with an unknown mechanism": [*LOGIN, choose_again("GSSAPI"), OTHER],
    "again without a handshake": [*LOGIN, pass_on(RIGHT), OTHER],
    "again with bare messages": [*LOGIN, choose(version=0), OTHER],
    "another API while logging in again": [*LOGIN, choose_again(), OTHER, OTHER],
    "versions while logging in again": [*LOGIN, choose_again(), versions(), pass_on(RIGHT), OTHER],
    "long message": [choose(), pass_on(b"\0alice\0" + b"x" * 520_000), OTHER],
    "longer frame than allowed": [choose(), bare(bytes(525_000))],
}  # fmt: skip
OFFERED: Final = ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
CHALLENGE: Final = ("NONE", "r,s,i", 0)
REFUSED: Final = ("SASL_AUTHENTICATION_FAILED", "", 0)
ADMITTED: Final = ("NONE", "", SESSION_MS)
SERVED: Final = ("DescribeCluster", "NONE")
VERSIONS: Final = ("ApiVersions", "NONE")
SCRAM_DIFFERENCES: Final[dict[str, Tails]] = {
    "channel binding not used": ([CHALLENGE], [REFUSED]),
    "mandatory extension": ([REFUSED], [CHALLENGE]),
    # An unknown user is refused later.
    "comma in the name": ([CHALLENGE], [REFUSED]),
}
DIFFERENT: Final[dict[str, Tails]] = {
    **{
        f"{mechanism}, {name}": tails
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for name, tails in SCRAM_DIFFERENCES.items()
    },
    "OAUTHBEARER, another scheme": ([REFUSED, CLOSED], [CLOSED]),
    "no handshake": ([("ILLEGAL_SASL_STATE", "", 0), CLOSED], [CLOSED]),
    **{
        f"another API {place}": ([CLOSED], [("DescribeCluster", "ILLEGAL_SASL_STATE"), CLOSED])
        for place in ("in a login", "between two messages")
    },
    "another API while logging in again": (
        [SERVED, SERVED], [("DescribeCluster", "ILLEGAL_SASL_STATE"), CLOSED],
    ),
    "versions twice": ([VERSIONS, ("NONE", OFFERED), ADMITTED, SERVED], [CLOSED]),
    "versions between two messages": (
        [VERSIONS, CLOSED], [("ApiVersions", "ILLEGAL_SASL_STATE"), CLOSED],
    ),
    **{
        f"versions {place}": (
            [VERSIONS, ADMITTED, SERVED], [("ApiVersions", "ILLEGAL_SASL_STATE"), CLOSED],
        )
        for place in ("in a login", "while logging in again")
    },
    "again with another mechanism": (
        [("UNSUPPORTED_SASL_MECHANISM", OFFERED), CLOSED], [("NONE", OFFERED), CLOSED],
    ),
    "again with an unknown mechanism": (
        [("UNSUPPORTED_SASL_MECHANISM", OFFERED), CLOSED], [CLOSED],
    ),
    "again with bare messages": (
        [("ILLEGAL_SASL_STATE", []), SERVED], [("NONE", OFFERED), CLOSED],
    ),
}  # fmt: skip
"""Our answers and Kafka's from the first difference on; docs/differences.md has the reasons."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder: Path = tmp_path_factory.mktemp("secured")
    settings = {
        "mechanisms": ",".join((*SASL_MECHANISMS, "OAUTHBEARER")),
        "oauth_jwks": str(Issuer(SystemClock().now_ms()).write(folder / "jwks.json")),
        "oauth_issuer": ISSUER,
        "oauth_audience": AUDIENCE,
    }
    with serve_secured(folder, max_session_ms=SESSION_MS, **settings) as broker:
        broker.add_user(ADMIN, ADMIN_PASSWORD)
        yield broker


@pytest.fixture(scope="module")
def theirs(own_kafka: None) -> Iterator[KafkaServer]:
    settings = KafkaSettings(
        listeners=("SASL_PLAINTEXT",),
        users={USER: PASSWORD, ADMIN: ADMIN_PASSWORD},
        properties={"connections.max.reauth.ms": str(SESSION_MS)},
    )
    with KafkaServer(settings) as kafka:
        yield kafka


def converse(address: str, steps: list[Step]) -> list[object]:
    """Send each frame after the answer to the one before it; return the answers."""
    heard: list[object] = []
    with Line(int(address.rpartition(":")[2])) as line:
        for step in steps:
            answer = wait_until(
                lambda step=step: say(line, step),  # type: ignore[misc] # a default binds it
                accepts=is_accepted if step.is_repeated else lambda _: True,
            )
            heard.append(answer)
            if answer == CLOSED:
                break
    return heard


def tails(mine: list[object], other: list[object]) -> Tails:
    """Return the answers from the first difference on."""
    pairs = zip(mine, other, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return mine[same:], other[same:]


def say(line: Line, step: Step) -> object:
    """Send a frame; return the answer."""
    try:
        line.send(step.sent)
    except ConnectionError:
        return CLOSED
    answer = line.read()
    return CLOSED if answer is None else summarise(step, answer)


def is_accepted(answer: object) -> bool:
    """Return whether a second login may begin; Kafka refuses it within the first second."""
    return answer != (ErrorCode.ILLEGAL_SASL_STATE.name, [])


def summarise(step: Step, answer: bytes) -> object:
    """Return what both servers must say alike: codes, mechanisms, and kinds of messages."""
    if step.api is None:
        return kind(answer)
    response: Any = read_response(step.api, step.version, answer)
    code = getattr(response, "error_code", ErrorCode.NONE)
    if step.api is SASL_HANDSHAKE:
        return code.name, sorted(response.mechanisms)
    if step.api is SASL_AUTHENTICATE:
        return code.name, kind(response.auth_bytes), response.session_lifetime_ms
    return step.api.name, code.name


def kind(message: bytes) -> str:
    """Return what a message of a mechanism is, apart from nonces and salts."""
    text = bytes(message).decode()
    if text.startswith("{"):
        return "object"
    return ",".join(part.partition("=")[0] for part in text.split(","))


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_login_is_that_of_kafka(secured: SecuredBroker, theirs: KafkaServer, name: str) -> None:
    mine, other = (
        converse(address, CONVERSATIONS[name])
        for address in (
            secured.address("sasl_plaintext"), theirs.address("SASL_PLAINTEXT"),
        )
    )  # fmt: skip

    assert tails(mine, other) == DIFFERENT.get(name, ([], []))


@pytest.mark.parametrize(
    "steps", [[choose()], [choose(version=0)], [pass_on(RIGHT)], [choose("GSSAPI"), OTHER]]
)
def test_listener_without_logins_is_that_of_kafka(
    secured: SecuredBroker, theirs: KafkaServer, steps: list[Step]
) -> None:
    mine, other = (
        converse(address, [*steps, OTHER])
        for address in (secured.address("plaintext"), theirs.bootstrap)
    )

    assert mine == other
