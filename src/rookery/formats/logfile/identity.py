"""Identity files of a directory: `meta.properties`, `partition.metadata`, clean shutdown."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Final, NamedTuple

from rookery.errors import Corrupt
from rookery.formats.logfile.properties import format_properties, parse_properties
from rookery.model.uuid import uuid_text

_META_VERSION: Final = "1"


class MetaProperties(NamedTuple):
    """The broker and the cluster that a log directory belongs to."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None = None
    """The directory's own id (KIP-858); older directories have none."""


def parse_meta(text: str, name: str) -> MetaProperties:
    """Read a `meta.properties`; version 0, with a `broker.id`, is supported too.

    Raises:
        Corrupt: a value is missing or not a number; the text begins with the name.
    """
    values = parse_properties(text, name)
    version = values.get("version", "0")
    if version not in {"0", _META_VERSION}:
        raise Corrupt(f"version {version[:20]!r} is not known", name=name)
    node = values.get("node.id", values.get("broker.id", ""))
    if not node.isascii() or not node.isdigit() or int(node) >= 1 << 31:
        raise Corrupt(f"node.id is {node[:20]!r}, not the number of a broker", name=name)
    cluster = values.get("cluster.id", "")
    if not cluster:
        raise Corrupt("cluster.id is missing", name=name)
    directory = values.get("directory.id")
    directory_id = None if directory is None else _read_id(directory, name, "directory.id")
    return MetaProperties(cluster, int(node), directory_id)


def format_meta(meta: MetaProperties, comment: str = "") -> str:
    """Write a `meta.properties`."""
    values = {"node.id": str(meta.node_id)}
    if meta.directory_id is not None:
        values["directory.id"] = uuid_text(meta.directory_id)
    values |= {"version": _META_VERSION, "cluster.id": meta.cluster_id}
    return format_properties(values, comment)


def parse_partition_metadata(text: str, name: str) -> bytes:
    """Read the topic's id out of a `partition.metadata`.

    Raises:
        Corrupt: it is damaged, or of a newer version; the text begins with the name.
    """
    lines = [line.partition(":") for line in text.splitlines() if line.strip()]
    values = {key.strip(): value.strip() for key, _, value in lines}
    version = values.get("version", "")
    if version != "0":
        raise Corrupt(f"version {version[:20]!r}; only 0 is known", name=name)
    return _read_id(values.get("topic_id", ""), name, "topic_id")


def format_partition_metadata(topic_id: bytes) -> str:
    """Write a `partition.metadata`."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}"


def parse_clean_shutdown(text: str) -> int | None:
    """Read the broker epoch from a `.kafka_cleanshutdown`; None if it does not contain one."""
    # Only the existence of the file matters; older versions of Kafka leave it empty.
    try:
        value = json.loads(text)["brokerEpoch"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return value if isinstance(value, int) and value >= 0 else None


def format_clean_shutdown(broker_epoch: int) -> str:
    """Write a `.kafka_cleanshutdown`."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'


def _read_id(text: str, name: str, field: str) -> bytes:
    # Kafka writes URL-safe base64 without padding; other writers pad it or use the other alphabet.
    plain = text.rstrip("=").replace("+", "-").replace("/", "_")
    try:
        value = base64.b64decode(f"{plain}==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if len(plain) != 22 or len(value) != 16:
        raise Corrupt(f"{field} is {text[:40]!r}, not an id of 22 letters", name=name)
    return value
