"""SCRAM credentials: keys, bounds and secrecy."""

from __future__ import annotations

import base64

import pytest

from rookery.security.credential import HASHES, MAX_ITERATIONS, ScramCredential

_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


@pytest.mark.parametrize("mechanism", HASHES)
def test_only_the_right_password_matches(mechanism: str) -> None:
    credential = ScramCredential.from_password(mechanism, "pencil", _SALT, 4096)

    assert credential.matches("pencil")
    assert not credential.matches("Pencil")
    assert not credential.matches("")


def test_keys_match_rfc_7677() -> None:
    credential = ScramCredential.from_password("SCRAM-SHA-256", "pencil", _SALT, 4096)

    # The form in which other SCRAM servers, too, keep that RFC's user.
    assert (
        base64.b64encode(credential.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    )
    assert (
        base64.b64encode(credential.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )


def test_secrets_are_not_shown() -> None:
    text = repr(ScramCredential.from_password("SCRAM-SHA-256", "pencil", _SALT))

    assert text == "ScramCredential(mechanism='SCRAM-SHA-256', iterations=4096)"


@pytest.mark.parametrize("iterations", [-1, 0, 4095, MAX_ITERATIONS + 1, 2**31])
def test_iterations_have_bounds(iterations: int) -> None:
    with pytest.raises(ValueError, match="iterations must be"):
        ScramCredential.from_password("SCRAM-SHA-256", "pencil", _SALT, iterations)
    with pytest.raises(ValueError, match="iterations must be"):
        ScramCredential("SCRAM-SHA-256", _SALT, iterations, bytes(32), bytes(32))


@pytest.mark.parametrize(
    ("mechanism", "salt", "size"),
    [("SCRAM-SHA-256", b"", 32), ("SCRAM-SHA-256", _SALT, 64), ("SCRAM-SHA-1", _SALT, 20)],
)
def test_parts_must_fit_the_mechanism(mechanism: str, salt: bytes, size: int) -> None:
    with pytest.raises(ValueError, match=r"salt|keys|is not one of"):
        ScramCredential(mechanism, salt, 4096, bytes(size), bytes(size))
