"""Options for tests of filters: one set without effect, and one with it.

A filter of another package has no row here; the contract tries it without options.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rookery.proxy.filterapi import Filter
from rookery.proxy.filterload import filter_types, load_filters
from rookery.proxy.settings import FilterSettings, VirtualClusterSettings

NOTHING = ["topics-that-do-not-exist"]


class Sample(NamedTuple):
    """Options of one type of filter."""

    idle: Mapping[str, Any] | None
    """It applies to nothing then; None if there are no such options."""
    busy: Mapping[str, Any]
    """It applies to as much as possible."""


def samples(folder: Path) -> dict[str, Sample]:
    """Return the options of each type, with files in a folder."""
    keys, rules, schema = folder / "keys.toml", folder / "rules.json", folder / "schema.sql"
    keys.touch(mode=0o600)
    keys.write_text(f'active = "k"\n[keys]\nk = "{base64.b64encode(bytes(32)).decode()}"\n')
    rules.write_text(json.dumps([]))
    schema.write_text("id bigint")
    check = {"format": "json", "schema_file": str(schema)}
    listed = {"rules_file": str(rules)}
    known = {
        "access_rules": Sample({**listed, "super_users": ["User:ANONYMOUS"]}, listed),
        "audit": Sample({"file": str(folder / "audit.log")}, {"file": str(folder / "audit.log")}),
        "deny": Sample({"topics": NOTHING}, {"topics": [".*"], "apis": ["ListGroups"]}),
        "encryption": Sample({"keys_file": str(keys), "topics": NOTHING}, {"keys_file": str(keys)}),
        "headers": Sample(
            {"headers": {"a": "b"}, "topics": NOTHING}, {"headers": {"a": "$principal"}}
        ),
        "rate_limit": Sample({"requests": 1e9, "bytes": 1e12}, {"requests": 0.001, "bytes": 1}),
        "record_schema": Sample({**check, "topics": NOTHING}, check),
        "topic_prefix": Sample(None, {"prefix": "p.", "groups": True, "transactional_ids": True}),
        "topic_rename": Sample({"topics": {NOTHING[0]: "x"}}, {"topics": {"a": "b"}}),
    }
    return known | {name: Sample({}, {}) for name in filter_types() if name not in known}


def make(kind: str, options: Mapping[str, Any]) -> Filter:
    """Create a filter as the configuration does."""
    settings = VirtualClusterSettings(filters=("tried",))
    [made] = load_filters(settings, {"tried": FilterSettings(kind, dict(options))})
    return made
