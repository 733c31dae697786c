"""Properties that must be unique to a table: the location of its files and its catalog name.

Two descriptions that share one of these are the same table. The second would find each batch
already committed, so its rows would be lost. Or upkeep of one would delete files that only the
other references.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from rookery.store.open import as_url, name_of, store_traits
from rookery.tables.port import TableSpec

Key = tuple[str, ...]
"""Can contain secrets; use it only for comparison."""


def identities(spec: TableSpec) -> dict[Key, str]:
    """Return the keys that must be unique to a table, each with a description without secrets."""
    if spec.format == "topic":
        return {_topic(spec): f"the topic {spec.location!r}"}
    address, endpoint = _where(spec.location)
    if spec.format == "duckdb":
        name = spec.name or Path(address).stem
        return {("duckdb", address, name): f"the table {name!r} of {address}"}
    keys: dict[Key, str] = {("folder", address, endpoint): f"the folder {address}"}
    if spec.format == "iceberg":
        name = iceberg_name(spec)
        keys["iceberg", iceberg_catalog(spec), name] = f"the table {name!r} of a catalog"
    return keys


def iceberg_name(spec: TableSpec) -> str:
    """Return the name of an Iceberg table in its catalog."""
    plain = urlsplit(name_of(as_url(spec.location))).path.rstrip("/")
    return f"{spec.options.get('namespace', 'default')}.{spec.name or Path(plain).name}"


def iceberg_catalog(spec: TableSpec) -> str:
    """Return an Iceberg table's catalog: by default a file next to it, empty if not possible."""
    chosen, path = spec.options.get("catalog", ""), store_traits(spec.location).path
    if chosen or path is None:
        return chosen
    return f"sqlite:///{path.parent / 'catalog.db'}"


def _topic(spec: TableSpec) -> Key:
    given = spec.options
    places = [
        _where(given[option]) if option in given else ("", "") for option in ("store", "data")
    ]
    cluster, namespace = given.get("cluster", ""), given.get("namespace", "default")
    return ("topic", spec.location, cluster, namespace, *places[0], *places[1])


def _where(location: str) -> tuple[str, str]:
    """Return a location without options, links and trailing slash, and the store's endpoint."""
    url = as_url(location)
    if (path := store_traits(url).path) is not None:
        return str(path.resolve()), ""
    # Another provider can have a bucket with the same name.
    return name_of(url).rstrip("/"), parse_qs(urlsplit(url).query).get("endpoint", [""])[0]
