"""A certificate authority for one test run: what a TLS listener and its clients need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the trusted authority, the server's identity, a client's identity."""

    ca: Path
    server: Path
    client: Path

    @classmethod
    def make(cls, folder: Path, *hosts: str, client: str = "client") -> Certificates:
        """Write new certificates into a folder; the server's is good for the hosts."""
        folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        files = cls(folder / "ca.pem", folder / "server.pem", folder / "client.pem")
        authority.cert_pem.write_to_path(str(files.ca))
        _write(files.server, authority.issue_cert(*hosts))
        # Java refuses a certificate without a name in addition to its subject.
        _write(files.client, authority.issue_cert(f"{client}@localhost", common_name=client))
        return files


def _write(path: Path, identity: trustme.LeafCert) -> None:
    # Java reads private keys as PKCS #8 only, trustme writes the older form.
    key = serialization.load_pem_private_key(identity.private_key_pem.bytes(), password=None)
    parts = [
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        *(part.bytes() for part in identity.cert_chain_pems),
    ]
    path.write_bytes(b"".join(parts))
    path.chmod(0o600)
