"""The two brokers, each with a plaintext and a SASL_SSL listener, and their clients."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from objectparts.figures import Figures

from rookery.testing.broker import BrokerProcess
from rookery.testing.certificates import Certificates
from rookery.testing.java import FullJava, Java
from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST, free_port
from rookery.testing.properties import KafkaSettings

USER = "bench"
PASSWORD = "bench-secret"  # noqa: S105 (of a broker that lives for a benchmark)
MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 4096
PARTITIONS = 4
CLIENTS = Path(__file__).with_name("clients.py")
_TOML = """
[broker]
durability = "os"
partitions = {partitions}
authorizer = "acls"
super_users = "User:ANONYMOUS"
allow_everyone_if_no_acl = true
[broker.security]
certificate_file = {certificate}
[broker.listeners.plaintext]
listen = "{plaintext}"
[broker.listeners.secure]
listen = "sasl_ssl://{secure}"
"""
"""As the test kit's Kafka has it: rules are asked, but there are none."""


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much is measured."""

    rounds: int = 3
    records: int = 500_000
    rules: int = 10_000
    seconds: float = 12.0
    """Of small produces, and of the logins at the same time."""
    logins_per_second: int = 200
    clients: int = 1_000
    """That connect at once."""

    @classmethod
    def quick(cls) -> Extent:
        """Return an extent that shows whether it works; the counts of the goals stay."""
        return cls(rounds=1, records=50_000, seconds=5.0)


@dataclass(frozen=True)
class Served:
    """A broker that runs."""

    name: str
    plaintext: str
    secure: str
    authority: Path
    pid: int

    def config(self) -> dict[str, object]:
        """Return librdkafka's settings for a user."""
        return {
            "bootstrap.servers": self.secure,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }

    def admin(self) -> AdminClient:
        """Return a client with all rights; its calls fail when it is no longer referenced."""
        return AdminClient({"bootstrap.servers": self.plaintext, "log_level": 0})

    def make_topic(self, name: str) -> None:
        """Make a topic and wait for it."""
        admin = self.admin()
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            made.result(60)

    def begin(self, kind: str, **arguments: object) -> subprocess.Popen[str]:
        """Start a client of `clients.py` in a process of its own."""
        task = {"kind": kind, "config": self.config(), **arguments}
        return subprocess.Popen(
            [sys.executable, str(CLIENTS), json.dumps(task)], stdout=subprocess.PIPE, text=True
        )

    def run(self, kind: str, **arguments: object) -> dict[str, float]:
        """Run a client and return its figures."""
        return finish(self.begin(kind, **arguments))


def finish(process: subprocess.Popen[str]) -> dict[str, float]:
    """Wait for a client and return its figures."""
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a client ended with {process.returncode}")
    figures: dict[str, float] = json.loads(output.splitlines()[-1])
    return figures


class SecuredProcess(BrokerProcess):
    """`rookery broker` with two listeners from a file."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        super().__init__(folder / "data")
        self.secure = f"{HOST}:{free_port()}"
        self.config = folder / "bench.toml"
        text = _TOML.format(
            partitions=PARTITIONS,
            certificate=json.dumps(str(certificates.server)),
            plaintext=self.bootstrap,
            secure=self.secure,
        )
        self.config.write_text(text, "utf-8")

    def command(self) -> list[str]:
        """Return the command line; the listeners are in the file."""
        return [
            *(sys.executable, "-m", "rookery.cli.main", "broker", "--json"),
            *("--config", str(self.config), "--data", str(self.folder)),
            *("--http-listen", f"{HOST}:0"),
        ]


@contextmanager
def serve_rookery() -> Iterator[Served]:
    """Run Rookery, with the user."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        certificates = Certificates.make(folder / "tls", HOST, "localhost")
        with SecuredProcess(folder, certificates) as broker:
            served = Served("rookery", broker.bootstrap, broker.secure, certificates.ca, broker.pid)
            add_user(served)
            yield served
            broker.stop()


@contextmanager
def serve_kafka() -> Iterator[Served]:
    """Run Kafka as in production, with the user."""
    machine_java = Java.find()
    settings = KafkaSettings(
        listeners=("SASL_SSL",),
        users={USER: PASSWORD},
        properties={"num.partitions": str(PARTITIONS)},
        heap_mb=1024,
    )
    with KafkaServer(settings, java=FullJava(machine_java.program, machine_java.libs)) as server:
        yield Served(
            "kafka", server.bootstrap, server.address("SASL_SSL"), server.certificates.ca,
            server.pid,
        )  # fmt: skip


def add_user(served: Served) -> None:
    """Create the user, with Kafka's least number of iterations, as its format tool does."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin = served.admin()
    for made in admin.alter_user_scram_credentials([change]).values():
        made.result(60)


class Scene:
    """Everything that a part needs; the brokers start when the first part asks for them."""

    def __init__(self, figures: Figures, extent: Extent) -> None:
        self.figures = figures
        self.extent = extent
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @cached_property
    def brokers(self) -> tuple[Served, Served]:
        """Rookery, then Kafka; both run until the end."""
        self.figures.say("starting Rookery and Kafka")
        return (
            self._stack.enter_context(serve_rookery()),
            self._stack.enter_context(serve_kafka()),
        )
