"""An issuer of tokens: its keys, its JWK set, and tokens with any claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER, AUDIENCE = "https://issuer.example", "rookery"


class Issuer:
    """Signs tokens with an elliptic key and an RSA key."""

    def __init__(self, now_ms: int, prefix: str = "") -> None:
        """Create the keys; their ids are the prefix and the algorithm."""
        self._now = now_ms // 1000
        self._prefix = prefix
        self._keys: dict[str, Any] = {
            "ES256": ec.generate_private_key(ec.SECP256R1()),
            "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        }

    def jwks(self, *, declares: bool = True) -> dict[str, Any]:
        """Return the public keys; `declares` if each has its algorithm."""
        rows = []
        for name, key in self._keys.items():
            kind = jwt.algorithms.get_default_algorithms()[name]
            row = json.loads(kind.to_jwk(key.public_key())) | {"use": "sig"}
            row["kid"] = self._prefix + name
            rows.append(row | ({"alg": name} if declares else {}))
        return {"keys": rows}

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(self.jwks()))
        return path

    def token(self, algorithm: str = "ES256", *, key_id: str | None = "", **claims: Any) -> str:
        """Sign a token of alice; claims that are None are left out."""
        values = {
            "sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": self._now + 600, **claims,
        }  # fmt: skip
        values = {name: value for name, value in values.items() if value is not None}
        header = {"kid": self._prefix + algorithm if key_id == "" else key_id}
        headers = {} if key_id is None else header
        text: str = jwt.encode(values, self._keys[algorithm], algorithm, headers=headers)
        return text
