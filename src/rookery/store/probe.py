"""Tests whether a store provides the guarantees of the port, before it is used.

Some S3-compatible servers accept a conditional PUT and ignore its condition. On such a server two
brokers would silently overwrite each other's entries.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from rookery.clock import Random, SystemRandom
from rookery.errors import ConfigError, Conflict, Error
from rookery.store.port import Store

PROBES: Final = "_rookery/probe/"
"""The prefix of the probe's objects; objects left by a killed probe have no meaning."""
_RACERS: Final = 4


async def probe(store: Store, name: str, random: Random | None = None) -> None:
    """Create, race, replace and list an object, and delete it at the end.

    Args:
        store: the store to test.
        name: its name for errors: the URL without the secrets.
        random: the source of the object's name.

    Raises:
        ConfigError: the store does not provide a guarantee; the text says which.
        Unavailable: the store cannot be reached.
    """
    key = f"{PROBES}{(random or SystemRandom()).token(16).hex()}"
    try:
        await _probe_create(store, name, key)
        await _probe_replace(store, name, key)
    except Error:
        # The caller needs the first error.
        with suppress(Error):
            await store.delete(key)
        raise
    await store.delete(key)


async def _probe_create(store: Store, name: str, key: str) -> None:
    wins = await asyncio.gather(*(_creates(store, key, b"%d" % n) for n in range(_RACERS)))
    if wins.count(True) != 1 or await _creates(store, key, b"late"):
        raise _ignores(name, "creates an object that exists (If-None-Match is ignored)")
    if await store.read(key) != b"%d" % wins.index(True):
        raise _ignores(name, "does not return what was just stored")
    if [stored.key for stored in await store.list(key)] != [key]:
        raise _ignores(name, "does not list what was just stored")


async def _probe_replace(store: Store, name: str, key: str) -> None:
    stored = await store.read_version(key)
    if stored is None:
        raise _ignores(name, "does not return what was just stored")
    await store.replace(key, b"replaced", stored[1])
    try:
        await store.replace(key, b"overwritten", stored[1])
    except Conflict:
        if await store.read(key) == b"replaced":
            return
    raise _ignores(name, "replaces an object of another version (If-Match is ignored)")


async def _creates(store: Store, key: str, data: bytes) -> bool:
    try:
        await store.create(key, [data])
    except Conflict:
        return False
    return True


def _ignores(name: str, what: str) -> ConfigError:
    return ConfigError(
        f"store {name}: it {what}, so brokers could lose data; use a store with conditional writes"
    )
