"""What only one table may have: where its files lie, and what its catalog calls it.

Two descriptions that share any of it are not two tables. The second finds each batch committed
already, and its rows vanish; or upkeep of one deletes files that only the other knows.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from rookery.store.open import as_url, name_of, store_traits
from rookery.tables.port import TableSpec

Key = tuple[str, ...]
"""May hold what is secret: for comparing alone."""


def identities(spec: TableSpec) -> dict[Key, str]:
    """Return what no other table may have, and words for each that may be shown."""
    if spec.format == "topic":
        return {_topic(spec): f"the topic {spec.location!r}"}
    address, endpoint = _where(spec.location)
    if spec.format == "duckdb":
        name = spec.name or Path(address).stem
        return {("duckdb", address, name): f"the table {name!r} of {address}"}
    found: dict[Key, str] = {("folder", address, endpoint): f"the folder {address}"}
    if spec.format == "iceberg":
        name = iceberg_name(spec)
        found["iceberg", iceberg_catalog(spec), name] = f"the table {name!r} of a catalog"
    return found


def iceberg_name(spec: TableSpec) -> str:
    """Return what an Iceberg table is called in its catalog."""
    plain = urlsplit(name_of(as_url(spec.location))).path.rstrip("/")
    return f"{spec.options.get('namespace', 'default')}.{spec.name or Path(plain).name}"


def iceberg_catalog(spec: TableSpec) -> str:
    """Return an Iceberg table's catalog: by default a file beside it, none if that cannot be."""
    chosen, path = spec.options.get("catalog", ""), store_traits(spec.location).path
    if chosen or path is None:
        return chosen
    return f"sqlite:///{path.parent / 'catalog.db'}"


def _topic(spec: TableSpec) -> Key:
    given = spec.options
    places = [_where(given[one]) if one in given else ("", "") for one in ("store", "data")]
    cluster, namespace = given.get("cluster", ""), given.get("namespace", "default")
    return ("topic", spec.location, cluster, namespace, *places[0], *places[1])


def _where(location: str) -> tuple[str, str]:
    """Return a location without options, links and a slash behind it, and whose store it is in."""
    url = as_url(location)
    if (path := store_traits(url).path) is not None:
        return str(path.resolve()), ""
    # A bucket of the same name may be at another provider's.
    return name_of(url).rstrip("/"), parse_qs(urlsplit(url).query).get("endpoint", [""])[0]
