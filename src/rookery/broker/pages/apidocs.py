"""Generates docs/apis.md from the routes: `python -m rookery.broker.pages.apidocs docs/apis.md`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from rookery.broker.call import Route, routes

_HEAD: Final = """\
# APIs of the broker

Generated from the routes by `scripts/docs`; do not edit. APIs that are not listed are neither
served nor advertised in ApiVersions. As in Kafka, Produce is advertised from version 0 on, since
some old clients would not compress otherwise; versions 0 to 2 are refused.

The fourth column states whether a request can change the cluster's state or the log. A broker that
is started with `--read-only` does not serve the APIs marked "hidden" there. It keeps the changes of
the others in memory, and refuses Produce.

| key | API | versions | changes state | what the broker does |
|---:|---|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    return _HEAD + "".join(_row(key, route) for key, route in routes().items())


def _row(key: int, route: Route) -> str:
    first, last = route.versions.start, route.versions.stop - 1
    versions = str(first) if first == last else f"{first}–{last}"  # noqa: RUF001 (a range's dash)
    changes = "yes" if route.mutates else "no"
    if not route.is_served_read_only:
        changes += ", hidden"
    summary = (route.handle.__doc__ or "").strip().splitlines()[0]
    return f"| {key} | {route.api.name} | {versions} | {changes} | {summary} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
