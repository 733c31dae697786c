"""Generates docs/acls.md from the routes: `python -m rookery.broker.pages.acldocs docs/acls.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rookery.broker.call import Route, routes
from rookery.security.access import Access, AccessScope, AclResource, Denial

_HEAD: Final = """\
# Permissions of each API

Made from the routes by `scripts/docs`; do not edit. A broker checks these permissions if it runs
with `--authorizer acls`; with `--authorizer log` it only logs what it would deny. A client needs
all rows of an API that apply to its request. APIs that are not listed here need no permission:
ApiVersions, the login, client metrics, and the renewal and expiry of a delegation token, which its
owner and its renewers can request. Super users can do everything.

The decision is that of Kafka's StandardAuthorizer: a DENY wins over every ALLOW. Rules name
resources literally, by a prefix, or all of them (`*`). ALLOW of READ, WRITE, DELETE or ALTER also
allows DESCRIBE, and ALLOW of ALTER_CONFIGS also allows DESCRIBE_CONFIGS.

A topic that a client may not describe gets TOPIC_AUTHORIZATION_FAILED, whether it exists or not.

| API | resource | operation | applies to | if it is denied |
|---|---|---|---|---|
"""
_RESOURCES: Final = {
    AclResource.TOPIC: "topic",
    AclResource.GROUP: "group",
    AclResource.CLUSTER: "cluster",
    AclResource.TRANSACTIONAL_ID: "transactional id",
    AclResource.DELEGATION_TOKEN: "delegation token",
    AclResource.USER: "user",
}
_SCOPES: Final = {
    AccessScope.NAMED: "each one named",
    AccessScope.LISTED: "each one in the answer",
    AccessScope.ANY: "any one",
    AccessScope.WHOLE: "the request",
}
_DENIALS: Final = {
    Denial.REFUSE: "an error for it; the others are served",
    Denial.REFUSE_REQUEST: "an error for the whole request",
    Denial.OMIT: "it is omitted",
    Denial.REDACT: "details are hidden",
}


def page() -> str:
    """Return the text of the page."""
    return _HEAD + "".join(line for route in routes().values() for line in _lines(route))


def _lines(route: Route) -> Iterator[str]:
    for row in route.touches:
        operation = row.operation.name
        if row.or_on_cluster is not None:
            operation += f", or {row.or_on_cluster.name} on the cluster"
        if row.or_on_owner is not None:
            operation += f", or {row.or_on_owner.name} on its owner"
        scope = ", ".join(filter(None, [_SCOPES[row.scope], _condition(row)]))
        yield (
            f"| {route.api.name} | {_RESOURCES[row.resource]} | {operation} | {scope} "
            f"| {_DENIALS[row.denial]} |\n"
        )


def _condition(row: Access) -> str:
    words = []
    if row.versions is not None:
        words.append(f"versions {row.versions.start} to {row.versions.stop - 1}")
    if row.when is not None:
        text = (row.when.__doc__ or "").strip().rstrip(".")
        words.append(f"if {text[:1].lower()}{text[1:]}")
    if row.is_own_exempt:
        is_user = row.resource is AclResource.USER
        words.append(f"unless the client {'is the user' if is_user else 'owns or renews it'}")
    return ", ".join(words)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
