"""SCRAM against the RFC's vector, other clients, itself, and dishonest peers."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable

import pytest
from aiokafka.conn import ScramAuthenticator
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.net.sasl.scram import (
    ScramClient as KafkaPythonScram,
)

from rookery.errors import ApiError, ConfigError, ErrorCode, ProtocolError
from rookery.security.credential import (
    ScramCredential,
    client_key,
    digest,
    salted_password,
    sign,
)
from rookery.security.mechanisms.scram import NAMES, ScramClient, ScramServer
from rookery.security.sasl import MAX_MESSAGE_BYTES, AcceptedToken, Login, TokenCredential, refusal
from rookery.testing.accounts import MemoryAccounts

_SHA_256 = "SCRAM-SHA-256"
_ACCOUNTS = MemoryAccounts({"alice": "pencil", "a=b,c": "sécret,=\u00a0", "bob": "other"})


def _client(username: str = "alice", password: str = "pencil") -> ScramClient:  # noqa: S107
    return ScramClient(_SHA_256, Login(username, password, "client-nonce"))


def _server(mechanism: str = _SHA_256) -> ScramServer:
    return ScramServer(mechanism, _ACCOUNTS, "server-nonce")


class _Rfc7677Accounts:
    """The account of RFC 7677, section 3."""

    def scram(self, mechanism: str, username: str) -> ScramCredential | None:
        salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
        return ScramCredential.from_password(mechanism, "pencil", salt, 4096)

    def decoy(self, mechanism: str, username: str, *, is_token: bool) -> ScramCredential:
        return ScramCredential.from_password(mechanism, "unused", b"unused", 4096)

    def has_password(self, username: str, password: str) -> bool:
        return False

    def delegation_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        return None

    def check_token(self, token: str) -> AcceptedToken:
        raise refusal()


_RFC_MESSAGES = [
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ),
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
]


def test_client_messages_match_rfc_7677() -> None:
    client = ScramClient(_SHA_256, Login("user", "pencil", "rOprNGfwEbeRWgbNEkqO"))

    said = [client.first(), client.respond(_RFC_MESSAGES[1])]

    assert said == [_RFC_MESSAGES[0], _RFC_MESSAGES[2]]
    assert not client.is_done
    assert client.respond(_RFC_MESSAGES[3]) == b""
    assert client.is_done


def test_server_messages_match_rfc_7677() -> None:
    server = ScramServer(_SHA_256, _Rfc7677Accounts(), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")

    said = [server.respond(_RFC_MESSAGES[0]), server.respond(_RFC_MESSAGES[2])]

    assert said == [_RFC_MESSAGES[1], _RFC_MESSAGES[3]]
    assert (server.is_done, server.username) == (True, "user")


@pytest.mark.parametrize("mechanism", NAMES)
@pytest.mark.parametrize(
    ("username", "password"), [("alice", "pencil"), ("a=b,c", "sécret,=\u00a0")]
)
def test_client_and_server_complete_the_exchange(
    mechanism: str, username: str, password: str
) -> None:
    client = ScramClient(mechanism, Login(username, password, "client-nonce"))
    server = _server(mechanism)

    last = client.respond(server.respond(client.respond(server.respond(client.first()))))

    assert (last, client.is_done, server.is_done, server.username) == (b"", True, True, username)


_names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


@settings(max_examples=50, deadline=None)
@given(username=_names, password=_names, mechanism=st.sampled_from(NAMES))
def test_any_name_and_password_is_supported(username: str, password: str, mechanism: str) -> None:
    client = ScramClient(mechanism, Login(username, password, "client-nonce"))
    server = ScramServer(mechanism, MemoryAccounts({username: password}), "server-nonce")

    client.respond(server.respond(client.respond(server.respond(client.first()))))

    assert client.is_done
    assert server.username == username


@pytest.mark.parametrize("mechanism", NAMES)
def test_kafka_python_can_log_in(mechanism: str) -> None:
    client = KafkaPythonScram("alice", "pencil", mechanism)
    server = _server(mechanism)

    client.process_server_first_message(server.respond(client.first_message()))
    client.process_server_final_message(server.respond(client.final_message()))

    assert server.username == "alice"


@pytest.mark.parametrize("mechanism", NAMES)
def test_aiokafka_can_log_in(mechanism: str) -> None:
    client = ScramAuthenticator(
        loop=None,
        sasl_plain_username="a=b,c",
        sasl_plain_password="sécret,=\u00a0",  # noqa: S106
        sasl_mechanism=mechanism,
    )
    server = _server(mechanism)

    client.process_server_first_message(server.respond(client.first_message().encode()).decode())
    client.process_server_final_message(server.respond(client.final_message().encode()).decode())

    assert server.username == "a=b,c"


@pytest.mark.parametrize(("username", "password"), [("alice", "wrong"), ("nobody", "pencil")])
def test_wrong_password_and_unknown_user_are_indistinguishable(
    username: str, password: str
) -> None:
    client, server = _client(username, password), _server()
    final = client.respond(server.respond(client.first()))

    with pytest.raises(ApiError) as caught:
        server.respond(final)

    assert str(caught.value) == "SASL_AUTHENTICATION_FAILED: invalid credentials"
    assert not server.is_done


def test_unknown_user_has_a_stable_salt() -> None:
    def salt(username: str, mechanism: str = _SHA_256) -> bytes:
        first = f"n,,n={username},r=client-nonce".encode()
        return _server(mechanism).respond(first).split(b",")[1]

    assert salt("nobody") == salt("nobody") != salt("noone")
    assert salt("nobody") != salt("nobody", "SCRAM-SHA-512")
    assert len(salt("nobody")) == len(salt("alice"))


def test_stored_keys_of_an_unknown_user_are_useless() -> None:
    """Even who guesses the server's secret cannot log in as a user that does not exist."""
    server = _server()
    server.respond(b"n,,n=nobody,r=client-nonce")
    server._credential = ScramCredential.from_password(_SHA_256, "known", b"salt" * 4)
    nonce = "client-nonceserver-nonce"
    client = _client("nobody", "known")
    final = client.respond(f"r={nonce},s={base64.b64encode(b'salt' * 4).decode()},i=4096".encode())
    server._server_first = f"r={nonce},s={base64.b64encode(b'salt' * 4).decode()},i=4096"

    with pytest.raises(ApiError, match="invalid credentials"):
        server.respond(final)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=client-nonce",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=with space",
        b"n,,n=al=2calice,r=client-nonce",
        b"n,,n=al=alice,r=client-nonce",
        b"n,,n=alice=,r=client-nonce",
        b"n,,r=client-nonce,n=alice",
        b"n,,m=ext,n=alice,r=client-nonce",
        b"n,,n=alice,r=client-nonce,m=ext",
        b"n,,n=alice,r=client-nonce,",
        b"n,,n=alice,r=client-nonce\n",
        b"n,,n=al\0ice,r=client-nonce",
        b"n,a=bob,n=alice,r=client-nonce",
        b"n,a=,n=alice,r=client-nonce",
        b"n,a=ali=ce,n=alice,r=client-nonce",
        b"p=tls-unique,,n=alice,r=client-nonce",
        b"x,,n=alice,r=client-nonce",
        b"n,,n=\xff,r=client-nonce",
        b"n,,n=alice,r=" + b"x" * 1025,
        b"n,,n=" + b"x" * MAX_MESSAGE_BYTES + b",r=client-nonce",
    ],
)
def test_the_server_refuses_bad_first_messages(message: bytes) -> None:
    server = _server()

    with pytest.raises(ApiError) as caught:
        server.respond(message)

    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(ApiError, match="over"):
        server.respond(b"n,,n=alice,r=client-nonce")


@pytest.mark.parametrize(
    "message",
    [
        b"n,a=alice,n=alice,r=client-nonce",
        b"y,,n=alice,r=client-nonce",
        b"n,,n=alice,r=client-nonce,x=1,tokenauth=false",
        b"n,,n=alice,r=client-nonce,tokenauth=true",
        b"n,,n=alice,r=client-nonce,x=1,tokenauth=TRUE",
        b"n,,n=alice,r=c",
    ],
)
def test_the_server_accepts_what_the_rfc_allows(message: bytes) -> None:
    assert _server().respond(message).startswith(b"r=c")


def _tamper(change: Callable[[str], str]) -> None:
    client, server = _client(), _server()
    final = client.respond(server.respond(client.first())).decode()
    changed = change(final)
    assert changed != final

    with pytest.raises(ApiError) as caught:
        server.respond(changed.encode())

    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not server.is_done
    with pytest.raises(RuntimeError, match="not proved"):
        _ = server.username


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace("c=biws", "c=eSws"),
        lambda final: final.replace("server-nonce", "other-nonce!"),
        lambda final: final.replace("client-nonceserver-nonce", "client-nonce"),
        lambda final: final.replace(",p=", ",x=1,p="),
        lambda final: final.replace(",p=", ",m=1,p="),
        lambda final: final[: final.index(",p=")],
        lambda final: final[: final.index(",p=")] + ",p=",
        lambda final: final[: final.index(",p=")] + ",p=AAAA",
        lambda final: final[: final.index(",p=")] + ",p=A",
        lambda final: final[: final.index(",p=")] + ",p=" + "A" * 43 + "=",
        lambda final: final + ",x=1",
        lambda final: final + "\n",
        # The same proof, but for the two spare bits of its last letter.
        lambda final: final[:-2] + chr(ord(final[-2]) + 1) + "=",
        lambda final: "",
    ],
)
def test_a_tampered_final_message_is_refused(change: Callable[[str], str]) -> None:
    _tamper(change)


@settings(deadline=None)
@given(st.data())
def test_any_changed_letter_of_the_final_message_is_refused(data: st.DataObject) -> None:
    letters = st.characters(min_codepoint=33, max_codepoint=126)

    def change(final: str) -> str:
        place = data.draw(st.integers(0, len(final) - 1))
        letter = data.draw(letters.filter(lambda letter: letter != final[place]))
        return f"{final[:place]}{letter}{final[place + 1 :]}"

    _tamper(change)


def _signed(server_first: str, binding: str, nonce: str) -> bytes:
    """Make a final message with a right proof over whatever it says."""
    salt = base64.b64decode(server_first.split(",")[1][2:])
    key = client_key(_SHA_256, salted_password(_SHA_256, "pencil", salt, 4096))
    final = f"c={binding},r={nonce}"
    transcript = f"n=alice,r=client-nonce,{server_first},{final}".encode()
    signature = sign(_SHA_256, digest(_SHA_256, key), transcript)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{final},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(
    ("binding", "nonce", "is_right"),
    [
        ("biws", "client-nonceserver-nonce", True),
        ("biws", "client-nonceother-nonce", False),
        ("biws", "client-nonce", False),
        ("eSws", "client-nonceserver-nonce", False),
        ("cD10bHMtdW5pcXVlLCw=", "client-nonceserver-nonce", False),
    ],
)
def test_final_message_must_match_this_exchange(binding: str, nonce: str, is_right: bool) -> None:
    server = _server()
    server_first = server.respond(_client().first()).decode()

    with contextlib.nullcontext() if is_right else pytest.raises(ApiError):
        server.respond(_signed(server_first, binding, nonce))

    assert server.is_done is is_right


def test_a_recorded_exchange_cannot_be_replayed() -> None:
    client, server = _client(), _server()
    final = client.respond(server.respond(client.first()))
    server.respond(final)
    later = ScramServer(_SHA_256, _ACCOUNTS, "another-nonce")
    later.respond(client.first())

    with pytest.raises(ApiError, match="invalid credentials"):
        later.respond(final)
    with pytest.raises(ApiError, match="over"):
        server.respond(final)


def _first_answer(change: Callable[[str], str]) -> bytes:
    return change(_server().respond(_client().first()).decode()).encode()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda first: "", "malformed"),
        (lambda first: first.replace("i=4096", "i=4095"), "iterations must be"),
        (lambda first: first.replace("i=4096", "i=1000001"), "iterations must be"),
        (lambda first: first.replace("i=4096", "i=2147483647"), "iterations must be"),
        (lambda first: first.replace("i=4096", "i=" + "9" * 5000), "malformed"),
        (lambda first: first.replace("i=4096", "i=-1"), "malformed"),
        (lambda first: first.replace("i=4096", "i=٤٠٩٦"), "malformed"),
        (lambda first: first.replace("client-nonce", "clienT-nonce"), "does not extend ours"),
        (lambda first: first.replace("server-nonce", ""), "does not extend ours"),
        (lambda first: first.replace("s=", "s=*"), "malformed"),
        (lambda first: first.replace(",s=", ",s=A"), "malformed base64"),
        (lambda first: f"m=1,{first}", "malformed"),
        (lambda first: f"{first},m=1", "extension"),
        (lambda first: first.replace("s=", "S="), "malformed"),
        (lambda first: first + "x" * MAX_MESSAGE_BYTES, "too long"),
    ],
)
def test_client_refuses_bad_first_answers(change: Callable[[str], str], reason: str) -> None:
    client = _client()
    answer = _first_answer(change)

    with pytest.raises(ProtocolError, match=reason):
        client.respond(answer)

    with pytest.raises(ProtocolError, match="over"):
        client.respond(_first_answer(str))


def test_excessive_iterations_are_refused_before_they_are_computed() -> None:
    # They would take a quarter of an hour.
    answer = _first_answer(lambda first: first.replace("i=4096", "i=2147483647"))

    with pytest.raises(ProtocolError, match="iteration"):
        _client().respond(answer)


def test_client_refuses_bytes_that_are_not_utf8() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        _client().respond(b"\xff\xfe")


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (b"", ProtocolError, "malformed"),
        (b"v=", ProtocolError, "malformed"),
        (b"v=A", ProtocolError, "base64"),
        (b"v=AAAA", ApiError, "could not prove"),
        (b"v=" + base64.b64encode(bytes(32)), ApiError, "could not prove"),
        (b"e=other-error", ApiError, "other-error"),
        (b"x=1", ProtocolError, "malformed"),
        (b"\xff", ProtocolError, "UTF-8"),
    ],
)
def test_the_client_refuses_a_server_without_proof(
    answer: bytes, error: type[Exception], reason: str
) -> None:
    client, server = _client(), _server()
    client.respond(server.respond(client.first()))

    with pytest.raises(error, match=reason):
        client.respond(answer)

    assert not client.is_done


def test_server_can_refuse_immediately() -> None:
    with pytest.raises(ApiError, match="unknown-user"):
        _client().respond(b"e=unknown-user")


def test_exchange_is_not_complete_before_the_proof() -> None:
    client, server = _client(), _server()
    client.respond(server.respond(client.first()))

    assert (client.is_done, server.is_done) == (False, False)


def test_completed_exchange_refuses_further_messages() -> None:
    client, server = _client(), _server()
    last = server.respond(client.respond(server.respond(client.first())))
    client.respond(last)

    with pytest.raises(ProtocolError, match="over"):
        client.respond(last)


@pytest.mark.parametrize(
    ("username", "password"),
    [("", "x"), ("x", ""), ("a\0b", "x"), ("\ud800", "x"), ("x", "\udfff")],
)
def test_login_that_cannot_be_encoded_is_a_config_error(username: str, password: str) -> None:
    with pytest.raises(ConfigError, match=r"^sasl\.(username|password): SCRAM-SHA-256"):
        _client(username, password)


@pytest.mark.parametrize("nonce", ["", "short", "with,comma", "with space", "é" * 10, "x" * 1025])
def test_invalid_nonces_are_refused(nonce: str) -> None:
    with pytest.raises(ValueError, match="nonce"):
        ScramClient(_SHA_256, Login("alice", "pencil", nonce))
    with pytest.raises(ValueError, match="nonce"):
        ScramServer(_SHA_256, _ACCOUNTS, nonce)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_any_bytes_are_answered_or_refused(messages: list[bytes]) -> None:
    client, server = _client(), _server()

    for message in messages:
        for side in (client, server):
            with contextlib.suppress(ApiError, ProtocolError):
                side.respond(message)

    assert not client.is_done
    assert not server.is_done
