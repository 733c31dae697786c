"""`rookery demo --secure`: a broker rejects an unknown client and admits a user by rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rookery.broker.process.firstuser import ADMIN, read_password
from rookery.broker.process.securefolder import SecureFolder
from rookery.cli.command import print_json
from rookery.cli.demo.childbroker import ChildBroker
from rookery.cli.demo.demofolder import DemoFolder, run_in_folder
from rookery.client.acls import exact_filter
from rookery.client.client import Client
from rookery.client.settings import ClientSettings, Sasl
from rookery.clock import SystemRandom
from rookery.errors import ApiError, ErrorCode
from rookery.model.acl import WILDCARD, PatternType
from rookery.net.loop import run_loop
from rookery.records.recordcodec import Record
from rookery.security.access import AclResource, Operation
from rookery.security.acl import AclBinding, PermissionType
from rookery.security.tls import ClientTls

_TOPIC: Final = "birds"
_USER: Final = "alice"
_MECHANISM: Final = "SCRAM-SHA-512"
_SECONDS: Final = 20
_AUDIT_FILE: Final = "audit.log"
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One expectation, and whether it was met."""

    expectation: str
    is_met: bool
    observation: str


def run_secure_demo(*, as_json: bool) -> int:
    """Run the demo; return 0 if every step went as expected."""

    def run(folder: DemoFolder) -> list[DemoStep]:
        flags = ["--secure", "--audit-file", str(folder.path / _AUDIT_FILE)]
        broker = folder.add(ChildBroker(folder.path, "os", flags))
        steps = run_loop(_run(broker, str(folder.path / "data")))
        # The broker has stopped, so that the file is complete.
        return [*steps, _audit_line(folder.path / _AUDIT_FILE)]

    steps = run_in_folder(run)
    if as_json:
        print_json([asdict(step) for step in steps])
    else:
        for step in steps:
            print(f"{'ok    ' if step.is_met else 'FAILED'}  {step.expectation}")
            print(f"        {step.observation}")
    return 0 if all(step.is_met for step in steps) else 1


async def _run(broker: ChildBroker, data: str) -> list[DemoStep]:
    try:
        await broker.start()
        admin = _settings(broker, data, Sasl(_MECHANISM, ADMIN, read_password(data)))
        user = Sasl(_MECHANISM, _USER, SystemRandom().token(16).hex())
        async with Client(admin) as client:
            await client.create_topic(_TOPIC)
            await client.users.set_password(_USER, user.password)
            return await _steps(client, _settings(broker, data, user))
    finally:
        broker.stop()


def _settings(broker: ChildBroker, data: str, sasl: Sasl) -> ClientSettings:
    authority = str(SecureFolder(data).authority)
    return ClientSettings(
        bootstrap=broker.bootstrap,
        sasl=sasl,
        tls=ClientTls(ca_file=authority),
        call_timeout_ms=_SECONDS * 1000,
    )


async def _steps(admin: Client, user: ClientSettings) -> list[DemoStep]:
    stranger = ClientSettings(
        bootstrap=user.bootstrap,
        sasl=Sasl(_MECHANISM, _USER, "a guess"),
        tls=user.tls,
        call_timeout_ms=user.call_timeout_ms,
    )
    steps = [
        await _refusal(
            "a stranger with a wrong password is refused",
            stranger,
            ErrorCode.SASL_AUTHENTICATION_FAILED,
        ),
        await _refusal("a user without rules may not write", user, _DENIED),
    ]
    rules = [_rule(Operation.READ), _rule(Operation.WRITE)]
    await admin.acls.create(rules)
    async with Client(user) as client:
        records = client.read(_TOPIC, 0, follow=True)
        await client.produce(_TOPIC, b"jackdaw")
        record = await anext(records)
        steps.append(
            DemoStep(
                "a user with rules writes and reads",
                record.value == b"jackdaw",
                f"read {record.value!r} at offset {record.offset}; {rules[0]}",
            )
        )
        await admin.acls.delete([exact_filter(rules[0])])
        # A fetch that waits for records was allowed when it began; a record ends it.
        await client.produce(_TOPIC, b"rook")
        steps.append(await _end_of(records))
    return steps


async def _refusal(expectation: str, settings: ClientSettings, code: ErrorCode) -> DemoStep:
    try:
        async with Client(settings) as client:
            location = await client.produce(_TOPIC, b"magpie")
    except ApiError as error:
        return DemoStep(expectation, is_met=error.code is code, observation=str(error))
    return DemoStep(expectation, is_met=False, observation=f"stored at offset {location.offset}")


async def _end_of(records: AsyncGenerator[Record, None]) -> DemoStep:
    expectation = "a reader stops when its rule is removed"
    try:
        async with asyncio.timeout(_SECONDS):
            async for _ in records:
                pass
    except TimeoutError:
        return DemoStep(expectation, is_met=False, observation="it still reads")
    except ApiError as error:
        return DemoStep(expectation, is_met=error.code is _DENIED, observation=str(error))
    return DemoStep(expectation, is_met=False, observation="it ended without an error")


def _audit_line(path: Path) -> DemoStep:
    """Find the record of the user that had no rules."""
    expectation = "the audit file names the user that was refused, its address and the topic"
    denied = {
        "kind": "access",
        "principal": f"User:{_USER}",
        "host": "127.0.0.1",
        "resource": {"type": AclResource.TOPIC.name, "name": _TOPIC},
        "decision": "denied",
    }
    for line in path.read_text("utf-8").splitlines():
        if denied.items() <= json.loads(line).items():
            return DemoStep(expectation, is_met=True, observation=line)
    return DemoStep(expectation, is_met=False, observation="there is no such line")


def _rule(operation: Operation) -> AclBinding:
    return AclBinding(
        AclResource.TOPIC,
        PatternType.LITERAL,
        _TOPIC,
        f"User:{_USER}",
        WILDCARD,
        operation,
        PermissionType.ALLOW,
    )
