"""docs/designs/0011-seams.md names what exists, and its proxy works."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import rookery
from rookery.client import Client
from rookery.errors import ErrorCode
from rookery.metrics import Registry
from rookery.model.address import Address
from rookery.net import callqueue, connection, listener, outbox, upstream
from rookery.service import meter
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedbroker import ServedBroker
from rookery.wire import catalog, codec, endpoints, frame, message
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from rookery.wire.messages.produce import PRODUCE
from tests.broker.raw import TIMEOUT_MS, Raw, batch, produce_request

ROOT = Path(__file__).parents[2]
SOURCE = Path(rookery.__file__).parent
PAGE = (ROOT / "docs/designs/0011-seams.md").read_text("utf-8")
[CODE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TEXT = PAGE.replace(CODE, "")
MODULES = (
    callqueue,
    catalog,
    codec,
    connection,
    endpoints,
    frame,
    message,
    meter,
    outbox,
    upstream,
)


class Handler(Protocol):
    """The class on the page."""

    def __init__(self, broker: Address, advertised: Address) -> None: ...

    def __call__(
        self, connection: connection.Connection, frame: frame.Frame
    ) -> Awaitable[outbox.Answer]: ...


def pass_through(registry: Registry) -> type[Handler]:
    """Return the class on the page, made from public names of the layers below a server."""
    scope: dict[str, Any] = {"Any": Any, "Awaitable": Awaitable, "asyncio": asyncio}
    scope |= {"partial": partial, "Address": Address}
    scope["REQUESTS"] = meter.RequestMetrics("passthrough", registry)
    for module in MODULES:
        scope |= {name: value for name, value in vars(module).items() if name in CODE}
    exec(compile(f"from __future__ import annotations\n{CODE}", "0011-seams.md", "exec"), scope)  # noqa: S102 (our own page)
    made: type[Handler] = scope["PassThrough"]
    return made


def exists(name: str) -> bool:
    """Return whether there is such a file, folder or module, or such a name in its module."""
    if "/" in name:
        places = (ROOT / name, SOURCE / name, SOURCE / f"{name}.py")
        return any(place.exists() for place in places)
    *module, last = name.split(".")
    path = SOURCE.joinpath(*module)
    if path.is_dir():
        return (path / f"{last}.py").exists()
    text = path.with_suffix(".py").read_text("utf-8") if path.with_suffix(".py").exists() else ""
    return (
        re.search(rf"^(?:async def|def|class) {last}\b|^{last}\b", text, re.MULTILINE) is not None
    )


def test_files_and_names_of_the_page_exist() -> None:
    roots = {"tests", *(path.name for path in SOURCE.iterdir() if path.is_dir())}
    parts = re.findall(r"`((\w+)[./][\w./]*)`", TEXT)
    names = sorted({name for name, first in parts if first in roots})

    assert len(names) > 15
    assert [name for name in names if not exists(name)] == []


async def test_proxy_of_the_page_serves_clients(tmp_path: Path) -> None:
    registry, port = Registry(), free_port()
    with ServedBroker(tmp_path) as broker:
        proxy = pass_through(registry)(Address(HOST, broker.port), Address(HOST, port))
        door = listener.Listener(proxy, listener.ListenerSettings(host=HOST, port=port))
        await door.start()
        try:
            await use(port)
        finally:
            await door.stop()
    seen = registry.expose()
    assert 'rookery_passthrough_request_seconds_count{api="Produce"} 2' in seen


async def use(port: int) -> None:
    """Produce and consume, and see that the proxy stands for the broker."""
    async with Client(f"{HOST}:{port}") as client:
        await client.create_topic("birds", partitions=1)
        await client.produce("birds", value=b"tchack", partition=0)
        line = Raw(await upstream.connect(HOST, port))
        metadata = await line.ask(METADATA, 12, MetadataRequest(topics=None))
        assert [node.port for node in metadata.brokers] == [port]
        # The broker does not answer this one, and the next answer is that of the next request.
        silent = produce_request("birds", {0: batch(b"kek")}, acks=0)
        await line.upstream.tell(PRODUCE, 9, silent, TIMEOUT_MS)
        assert (await line.fetch("birds", 0)).error_code is ErrorCode.NONE
        line.upstream.close()
        values = [record.value async for record in client.read("birds", 0)]
        assert values == [b"tchack", b"kek"]
