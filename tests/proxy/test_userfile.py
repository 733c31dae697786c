"""Users of a proxy's file, as logins see them."""

from __future__ import annotations

import base64
from pathlib import Path

from rookery.clock import SystemRandom
from rookery.proxy.access.userfile import UserFile
from rookery.security.credential import ScramCredential

MECHANISM = "SCRAM-SHA-256"


def test_unknown_users_look_like_those_of_the_file(tmp_path: Path) -> None:
    users = UserFile(_write(tmp_path, 8192), [MECHANISM], SystemRandom())
    decoy = users.decoy(MECHANISM, "nobody", is_token=False)
    assert (decoy.iterations, len(decoy.salt)) == (8192, 24)
    assert users.has_password("alice", "alice-secret")
    assert not users.has_password("nobody", "alice-secret")


def _write(folder: Path, iterations: int) -> str:
    path = folder / "users.toml"
    known = ScramCredential.from_password(MECHANISM, "alice-secret", bytes(range(24)), iterations)
    salt, stored, server = (
        base64.b64encode(each).decode() for each in (known.salt, known.stored_key, known.server_key)
    )
    fields = f"salt={salt},stored_key={stored},server_key={server},iterations={iterations}"
    path.write_text(f'[alice]\n{MECHANISM} = "{fields}"\n')
    path.chmod(0o600)
    return str(path)
