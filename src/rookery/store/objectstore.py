"""Objects in a cloud's object store, or in a compatible one: S3, GCS, Azure Blob.

An object is created by one conditional PUT. Multipart uploads are not used, because the client
library does not support conditions for them. An attempt without a response may still have created
the object. If a later attempt finds that the key exists, the stored bytes are compared with the
bytes sent. A key is never used for two contents, so equal bytes are our own.
"""

from __future__ import annotations

import atexit
import time
from builtins import list as List  # noqa: N812 (the port has a method of that name)
from collections.abc import AsyncIterator, Sequence
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store

from rookery.errors import Conflict, Unavailable
from rookery.store.address import StoreAddress
from rookery.store.clienterror import lacks_bucket, status_of
from rookery.store.port import Buffer, NotFound, StoredObject, check_key, check_range
from rookery.store.retry import InconclusiveResponse, StoreRetrier

if TYPE_CHECKING:  # The library has these names for type checkers alone.
    from obstore import GetOptions, ObjectMeta, PutMode, PutResult, UpdateVersion

Client = S3Store | GCSStore | AzureStore
VersionName = Literal["e_tag", "version"]

MAX_OBJECT_BYTES: Final = 4 * 1024**3
"""The largest PUT that all of the stores accept, as a round number."""

# The library's threads deliver a response and then release it, for which they need the interpreter.
# A thread that requests the interpreter after its end aborts the process. This is the time they
# get.
_LAST_SECONDS: Final = 0.05

_COMPARED: Final = 8 * 1024 * 1024
_PAGE: Final = 1000


class ObjectStore:
    """A store in a bucket, or below a prefix in one."""

    def __init__(
        self, address: StoreAddress, client: Client, version_name: VersionName = "e_tag"
    ) -> None:
        """Set the client; `version_name` is the field that its store compares before a replace."""
        self._name = address.name
        self._client = client
        self._version_name: VersionName = version_name
        self._retrier = StoreRetrier(address)
        self._limit = address.patience.limit
        _end_in_peace()

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Put a new object without copying its parts, which must not change meanwhile."""
        check_key(key)
        size = sum(memoryview(part).nbytes for part in parts)
        if size > MAX_OBJECT_BYTES:
            raise ValueError(f"object {key!r}: {size} bytes; at most {MAX_OBJECT_BYTES}")

        async def attempt(failed: int) -> None:
            try:
                await self._put(key, parts, "create")
            except AlreadyExistsError as error:
                # 412 is unambiguous. 409 may also mean concurrent writes without an object yet.
                if failed or status_of(error) == HTTPStatus.CONFLICT:
                    await self._settle(key, parts, failed)
                else:
                    raise Conflict(f"object {key!r} exists already") from None

        await self._retrier.run("create", key, attempt)

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Return a range of an object."""
        return bytes(await self.view(key, start, size))

    async def view(self, key: str, start: int = 0, size: int | None = None) -> Buffer:
        """Return a range of an object as the client library received it."""
        check_key(key)
        check_range(key, start, size)

        async def attempt(_: int) -> Buffer:
            return await self._get(key, start, size)

        return await self._retrier.run("read", key, attempt)

    async def size(self, key: str) -> int | None:
        """Return an object's size, None if there is none."""
        check_key(key)

        async def attempt(_: int) -> int | None:
            return await self._head(key)

        return await self._retrier.run("size", key, attempt)

    async def list(self, prefix: str = "") -> List[StoredObject]:
        """Return the objects whose keys begin with the prefix."""
        # The client supports only whole parts of a path.
        whole, slash, _ = prefix.rpartition("/")
        if slash:
            check_key(whole)

        async def attempt(_: int) -> List[StoredObject]:
            listed = [stored async for stored in self._pages(whole)]
            return sorted(stored for stored in listed if stored.key.startswith(prefix))

        return await self._retrier.run("list", prefix, attempt)

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        """Return an object and its version, None if there is none."""
        check_key(key)

        async def attempt(_: int) -> tuple[bytes, str] | None:
            try:
                data, meta = await self._fetch(key, None)
            except FileNotFoundError as error:
                if lacks_bucket(error):
                    raise
                return None
            return bytes(data), self._version(key, meta)

        return await self._retrier.run("read", key, attempt)

    async def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace an object that still has that version."""
        check_key(key)

        async def attempt(failed: int) -> str:
            try:
                result = await self._put(key, [data], self._is_version(version))
            except (PreconditionError, FileNotFoundError) as error:
                if lacks_bucket(error):
                    raise
                if failed:
                    return await self._settle_replaced(key, data)
                raise Conflict(f"object {key!r} is no longer version {version!r}") from None
            except AlreadyExistsError as error:
                raise InconclusiveResponse(f"others are at it: {error}") from None
            return self._version(key, result)

        return await self._retrier.run("replace", key, attempt)

    async def delete(self, key: str) -> None:
        """Delete an object, if it exists."""
        check_key(key)

        async def attempt(_: int) -> None:
            try:
                async with self._limit():
                    await obstore.delete_async(self._client, key)
            except FileNotFoundError as error:
                if lacks_bucket(error):
                    raise

        await self._retrier.run("delete", key, attempt)

    async def close(self) -> None:
        """Do nothing: connections close with the client, when it is no longer referenced."""

    async def _put(self, key: str, parts: Sequence[Buffer], mode: PutMode) -> PutResult:
        async with self._limit(sum(memoryview(part).nbytes for part in parts)):
            return await obstore.put_async(self._client, key, list(parts), mode=mode)

    async def _fetch(self, key: str, options: GetOptions | None) -> tuple[Buffer, ObjectMeta]:
        async with self._limit():
            result = await obstore.get_async(self._client, key, options=options)
        start, end = result.range
        async with self._limit(end - start):
            return memoryview(await result.bytes_async()), result.meta

    async def _get(self, key: str, start: int, size: int | None) -> Buffer:
        if size == 0:
            return _nothing(key, start, size, await self._head(key))
        end = None if size is None else start + size
        options = _range(start, end)
        try:
            return (await self._fetch(key, options))[0]
        except FileNotFoundError as error:
            if lacks_bucket(error):
                raise
            raise NotFound(key) from None
        except GenericError:
            if options is None:
                raise
            # Every store reports an error for a range that begins at the end or after it.
            total = await self._head(key)
            if total is not None and start < total:
                raise
            return _nothing(key, start, size, total)

    async def _head(self, key: str) -> int | None:
        try:
            async with self._limit():
                return (await obstore.head_async(self._client, key))["size"]
        except FileNotFoundError as error:
            if lacks_bucket(error):
                raise
            return None

    async def _pages(self, folder: str) -> AsyncIterator[StoredObject]:
        pages = aiter(obstore.list(self._client, folder or None, chunk_size=_PAGE))
        while True:
            # Each page gets the time of a request: a large bucket has thousands of pages.
            async with self._limit():
                try:
                    page = await anext(pages)
                except StopAsyncIteration:
                    return
            for meta in page:
                yield StoredObject(meta["path"], meta["size"])

    async def _settle(self, key: str, parts: Sequence[Buffer], failed: int) -> None:
        """Return if the object with that key has the bytes sent, else raise the matching error."""
        size, is_ours = await self.size(key), False
        try:
            if size is not None and failed:
                is_ours = await self._holds(key, size, parts)
        except NotFound:
            size = None
        if size is None:
            raise InconclusiveResponse(
                f"object {key!r} exists according to the store, but it cannot be read"
            )
        if not is_ours:
            raise Conflict(f"object {key!r} exists already")

    async def _holds(self, key: str, size: int, parts: Sequence[Buffer]) -> bool:
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        if size != sum(map(len, views)):
            return False
        start, stored = 0, memoryview(b"")
        for whole in views:
            view = whole
            while view:
                if not stored:
                    stored = memoryview(await self.read(key, start, _COMPARED))
                    start += len(stored)
                common = min(len(view), len(stored))
                if not common or view[:common] != stored[:common]:
                    return False
                view, stored = view[common:], stored[common:]
        return True

    async def _settle_replaced(self, key: str, data: bytes) -> str:
        current = await self.read_version(key)
        if current is not None and current[0] == data:
            return current[1]
        # An earlier attempt may have succeeded, and another writer may have followed.
        raise Unavailable(
            f"store {self._name}: it is not known whether {key!r} was replaced: read it again"
        )

    def _version(self, key: str, meta: ObjectMeta | PutResult) -> str:
        version = meta[self._version_name]
        if version is None:
            raise Unavailable(f"store {self._name}: it reports no version of {key!r}")
        return version

    def _is_version(self, version: str) -> UpdateVersion:
        return {"e_tag": version} if self._version_name == "e_tag" else {"version": version}


def _nothing(key: str, start: int, size: int | None, total: int | None) -> bytes:
    """Return the empty range that was requested, if an object of that size has it."""
    if total is None:
        raise NotFound(key)
    check_range(key, start, size, total)
    return b""


def _range(start: int, end: int | None) -> GetOptions | None:
    if end is not None:
        return {"range": (start, end)}
    return {"range": {"offset": start}} if start else None


@cache
def _end_in_peace() -> None:
    """Make this process wait for the library's threads before it exits."""
    atexit.register(time.sleep, _LAST_SECONDS)
