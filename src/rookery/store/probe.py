"""Find out, before anything depends on it, whether a store keeps the promises of the port.

Some servers that speak S3 take a conditional PUT and ignore its condition. On one of those two
brokers would overwrite each other's entries without a word.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from rookery.clock import Random, SystemRandom
from rookery.errors import ConfigError, Conflict, Error
from rookery.store.port import Store

PROBES: Final = "_rookery/probe/"
"""Where the probe's objects lie; what a killed probe has left there means nothing."""
_RACERS: Final = 4


async def probe(store: Store, name: str, random: Random | None = None) -> None:
    """Create, race, replace and list an object that is deleted in the end.

    Args:
        store: the store to try.
        name: what the error calls it: its URL without the secrets.
        random: where the object's name comes from.

    Raises:
        ConfigError: the store does not do what it must; the text says what.
        Unavailable: the store is out of reach.
    """
    key = f"{PROBES}{(random or SystemRandom()).token(16).hex()}"
    try:
        await _probe_create(store, name, key)
        await _probe_replace(store, name, key)
    except Error:
        # What went wrong first is what the caller needs to know.
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
    found = await store.read_version(key)
    if found is None:
        raise _ignores(name, "does not return what was just stored")
    await store.replace(key, b"replaced", found[1])
    try:
        await store.replace(key, b"overwritten", found[1])
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
