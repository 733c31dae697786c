"""Users of an etcd for tests."""

from __future__ import annotations

import base64

from rookery.testing.etcd import EtcdMember

WORDS = "correct horse"


def guard(member: EtcdMember) -> None:
    """Let `writer` use the log `allowed`, and no user anything else."""
    member.call("auth/role/add", name="rookery")
    prefix = {"key": _text(b"allowed/"), "range_end": _text(b"allowed0")}
    member.call("auth/role/grant", name="rookery", perm={"permType": "READWRITE", **prefix})
    for user, role in (("root", "root"), ("writer", "rookery")):
        member.call("auth/user/add", name=user, password=WORDS)
        member.call("auth/user/grant", user=user, role=role)
    member.call("auth/enable")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
