"""Clients that are programs: kcat, franz-go and Kafka's Java tools."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rookery.testing.java import Java
from rookery.testing.tools import ToolHost
from tests.clients.logins.loginway import Credentials

PATIENCE = 60
_MODULES = "org.apache.kafka.common.security"


class KcatClient:
    """kcat, a program with librdkafka."""

    def __init__(self, program: str) -> None:
        self._program = program

    def produce(self, login: Credentials, topic: str, value: str) -> None:
        done = self._run(login, "-P", "-t", topic, text=value)
        assert done.returncode == 0, done.stderr

    def consume(self, login: Credentials, topic: str) -> str:
        done = self._run(
            login, "-G", topic, "-q", "-c", "1", topic, "-X", "auto.offset.reset=earliest"
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def refusal(self, login: Credentials, topic: str) -> str:
        # kcat has no record to deliver and gives up by itself; its errors come first.
        done = self._run(login, "-L", "-t", topic, "-m", "3")
        assert done.returncode != 0
        return done.stderr.partition("% ERROR: Failed to acquire metadata")[0]

    def can_log_in(self, login: Credentials, topic: str) -> bool:
        return self._run(login, "-L", "-t", topic, "-m", "3").returncode == 0

    def _run(
        self, login: Credentials, *args: str, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        settings = self._settings(login).items()
        options = [word for pair in settings for word in ("-X", "=".join(pair))]
        return subprocess.run(
            [self._program, "-b", login.address, *options, *args],
            input=text, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    @staticmethod
    def _settings(login: Credentials) -> dict[str, str]:
        way = login.way
        settings = {"security.protocol": way.listener}
        if way.has_tls:
            settings["ssl.ca.location"] = str(login.authority)
        if way.has_certificate:
            own = str(login.certificate)
            settings |= {"ssl.certificate.location": own, "ssl.key.location": own}
        if way.mechanism:
            settings["sasl.mechanism"] = way.mechanism
        if way.mechanism == "OAUTHBEARER":
            # kcat has no way to take a token; librdkafka can make an unsigned one.
            settings |= {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principal={login.user}",
            }
        elif way.mechanism:
            settings |= {"sasl.username": login.user, "sasl.password": login.password}
        return settings


class FranzClient:
    """A Go program with franz-go."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def produce(self, login: Credentials, topic: str, value: str) -> None:
        done = self._run(login, "-topic", topic, "-value", value)
        assert done.returncode == 0, done.stderr

    def consume(self, login: Credentials, topic: str) -> str:
        done = self._run(login, "-topic", topic)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def refusal(self, login: Credentials, topic: str) -> str:
        done = self._run(login, "-topic", topic)
        assert done.returncode != 0
        return done.stderr

    def run(self, bootstrap: str, topic: str, *args: str, text: str = "") -> str:
        """Run it without a login, with a text as its input; return what it prints."""
        command = [str(self._program), "-bootstrap", bootstrap, "-topic", topic, *args]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(self, login: Credentials, *args: str) -> subprocess.CompletedProcess[str]:
        way = login.way
        options = ["-bootstrap", login.address]
        if way.has_tls:
            options += ["-ca", str(login.authority)]
        if way.has_certificate:
            options += ["-certificate", str(login.certificate)]
        if way.mechanism:
            secret = login.token if way.mechanism == "OAUTHBEARER" else login.password
            options += ["-mechanism", way.mechanism, "-user", login.user, "-secret", secret]
        return subprocess.run(
            [self._program, *options, *args],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenJava(Java):
    """A Java that may read tokens from the files of one folder."""

    folder: Path = Path()

    def command(
        self,
        main: str,
        *args: str,
        heap_mb: int = 256,
        log: str = "error",
        classes: Path | None = None,
    ) -> list[str]:
        """Return the command line with the setting that allows the file."""
        program, *rest = Java.command(self, main, *args, heap_mb=heap_mb, log=log, classes=classes)
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token_url(self.folder)}"
        return [program, allowed, *rest]


def token_url(folder: Path) -> str:
    """Return the URL of the file from which Java reads its token."""
    return (folder / "token").as_uri()


class JavaClient:
    """Kafka's command line tools."""

    def __init__(self, tools: ToolHost, folder: Path) -> None:
        self._tools = tools
        self._folder = folder

    def produce(self, login: Credentials, topic: str, value: str) -> None:
        done = self._run(login, "kafka-console-producer", "--topic", topic, text=value)
        assert "ERROR" not in done.stderr, done.stderr

    def consume(self, login: Credentials, topic: str) -> str:
        options = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "1")
        done = self._run(login, "kafka-console-consumer", *options, "--timeout-ms", "30000")
        return done.stdout.strip()

    def refusal(self, login: Credentials, topic: str) -> str:
        done = self._run(login, "kafka-topics", "--describe", "--topic", topic)
        assert done.returncode != 0
        return done.stdout + done.stderr

    def _run(
        self, login: Credentials, name: str, *args: str, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        (self._folder / "token").write_text(login.token)
        path = self._folder / "client.properties"
        settings = java_settings(login, self._folder)
        path.write_text("".join(f"{key}={escape(value)}\n" for key, value in settings.items()))
        server = ("--bootstrap-server", login.address, "--command-config", str(path))
        return self._tools.tool(name, *server, *args, text=text)


def escape(value: str) -> str:
    """Return a value as a file of properties has it: Java reads those files as ISO-8859-1."""
    return "".join(sign if sign.isascii() else f"\\u{ord(sign):04x}" for sign in value)


def java_settings(login: Credentials, folder: Path) -> dict[str, str]:
    """Return the client.properties of a login; the token is in a file of the folder."""
    way = login.way
    settings = {"security.protocol": way.listener.upper()}
    if way.has_tls:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(login.authority)}
    if way.has_certificate:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(login.certificate)}
    if way.mechanism:
        settings |= {"sasl.mechanism": way.mechanism, "sasl.jaas.config": _jaas(login)}
    if way.mechanism == "OAUTHBEARER":
        package = f"{_MODULES}.oauthbearer"
        settings |= {
            "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": token_url(folder),
        }
    return settings


def _jaas(login: Credentials) -> str:
    if login.way.mechanism == "OAUTHBEARER":
        return f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
    kind = "plain.Plain" if login.way.mechanism == "PLAIN" else "scram.Scram"
    return (
        f"{_MODULES}.{kind}LoginModule required "
        f'username="{login.user}" password="{login.password}";'
    )


def build_franz(folder: Path, go: str) -> Path:
    """Build the Go program; Go fetches the modules that go.sum pins, once per machine."""
    program = folder / "franz"
    environment: Mapping[str, str] = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        [go, "build", "-mod=readonly", "-o", str(program), "."],
        cwd=Path(__file__).parent / "franz", env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return program
