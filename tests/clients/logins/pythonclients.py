"""The Python clients: each produces, consumes, and reports a refused login in its own way."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaError, Producer
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaTokenProvider

from rookery.testing.wait import wait_until
from tests.clients.logins.loginway import Credentials
from tests.kafkapython import KafkaConsumer, KafkaProducer
from tests.tidyloop import run_tidily

PATIENCE = 60


class ConfluentClient:
    """confluent-kafka, that is librdkafka."""

    def produce(self, login: Credentials, topic: str, value: str) -> None:
        errors: list[object] = []
        producer = Producer(self._settings(login))
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(PATIENCE) == 0
        assert errors == [None]

    def consume(self, login: Credentials, topic: str) -> str:
        group = {"group.id": topic, "auto.offset.reset": "earliest"}
        consumer = Consumer(self._settings(login) | group)
        consumer.subscribe([topic])
        try:
            message = consumer.poll(PATIENCE)
        finally:
            consumer.close()
        assert message is not None
        return str((message.value() or b"").decode())

    def refusal(self, login: Credentials, topic: str) -> str:
        """Return the error that the client reports without being asked."""
        errors: list[KafkaError] = []
        producer = Producer(self._settings(login) | {"error_cb": errors.append})
        producer.produce(topic, b"x")

        def causes() -> list[str]:
            producer.poll(0.1)
            return [
                f"{error.name()}: {error.str()}"
                for error in errors
                if error.code() != KafkaError._ALL_BROKERS_DOWN
            ]

        wait_until(causes, "librdkafka reports an error")
        producer.purge()
        producer.flush(PATIENCE)
        return causes()[0]

    @staticmethod
    def _settings(login: Credentials) -> dict[str, Any]:
        way = login.way
        settings: dict[str, Any] = {
            "bootstrap.servers": login.address,
            "security.protocol": way.listener,
        }
        if way.has_tls:
            settings["ssl.ca.location"] = str(login.authority)
        if way.has_certificate:
            own = str(login.certificate)
            settings |= {"ssl.certificate.location": own, "ssl.key.location": own}
        if way.mechanism:
            settings["sasl.mechanism"] = way.mechanism
        if way.mechanism == "OAUTHBEARER":
            settings["oauth_cb"] = lambda _: (login.token, time.time() + 300)
        elif way.mechanism:
            settings |= {"sasl.username": login.user, "sasl.password": login.password}
        return settings


class KafkaPythonClient:
    """kafka-python; it logs why a login failed, tries again, and raises a general error."""

    def produce(self, login: Credentials, topic: str, value: str) -> None:
        producer = KafkaProducer(**self._settings(login))
        try:
            producer.send(topic, value.encode()).get(PATIENCE)
        finally:
            producer.close()

    def consume(self, login: Credentials, topic: str) -> str:
        group = {"group_id": topic, "auto_offset_reset": "earliest"}
        consumer = KafkaConsumer(topic, **group, **self._settings(login))
        try:
            value: bytes = next(consumer).value
        finally:
            consumer.close()
        return value.decode()

    def refusal(self, login: Credentials, topic: str) -> str:
        # With a version, it is created without a connection, so that it can be closed.
        producer = KafkaProducer(api_version=(2, 8), max_block_ms=1_500, **self._settings(login))
        try:
            with logged("kafka") as lines, pytest.raises(KafkaPythonError):
                producer.send(topic, b"x").get(PATIENCE)
        finally:
            producer.close(0)
        return "\n".join(line for line in lines if "KafkaTimeoutError" not in line)

    @staticmethod
    def _settings(login: Credentials) -> dict[str, Any]:
        class Provider(KafkaTokenProvider):  # type: ignore[misc]  # it has no types
            def token(self) -> str:
                return login.token

        way = login.way
        settings: dict[str, Any] = {
            "bootstrap_servers": login.address,
            "security_protocol": way.listener.upper(),
        }
        if way.has_tls:
            settings["ssl_cafile"] = str(login.authority)
        if way.has_certificate:
            own = str(login.certificate)
            settings |= {"ssl_certfile": own, "ssl_keyfile": own}
        if way.mechanism:
            settings |= {
                "sasl_mechanism": way.mechanism,
                "sasl_plain_username": login.user,
                "sasl_plain_password": login.password,
            }
        if way.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = Provider()
        return settings


class AiokafkaClient:
    """aiokafka; it logs why it could not connect, and raises a general error."""

    def produce(self, login: Credentials, topic: str, value: str) -> None:
        run_tidily(self._produce(login, topic, value))

    async def _produce(self, login: Credentials, topic: str, value: str) -> None:
        producer = AIOKafkaProducer(**self._settings(login))
        try:
            await producer.start()
            await producer.send_and_wait(topic, value.encode())
        finally:
            await producer.stop()

    def consume(self, login: Credentials, topic: str) -> str:
        return run_tidily(self._consume(login, topic))

    async def _consume(self, login: Credentials, topic: str) -> str:
        group = {"group_id": topic, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(topic, **group, **self._settings(login)) as consumer:
            value: bytes = (await asyncio.wait_for(consumer.getone(), PATIENCE)).value
            return value.decode()

    def refusal(self, login: Credentials, topic: str) -> str:
        with logged("aiokafka") as lines, pytest.raises(KafkaConnectionError):
            self.produce(login, topic, "x")
        return "\n".join(lines)

    @staticmethod
    def _settings(login: Credentials) -> dict[str, Any]:
        class Provider(AbstractTokenProvider):  # type: ignore[misc]  # it has no types
            async def token(self) -> str:
                return login.token

        way = login.way
        settings: dict[str, Any] = {
            "bootstrap_servers": login.address,
            "security_protocol": way.listener.upper(),
        }
        if way.has_tls:
            context = ssl.create_default_context(cafile=str(login.authority))
            if way.has_certificate:
                context.load_cert_chain(login.certificate)
            settings["ssl_context"] = context
        if way.mechanism:
            settings |= {
                "sasl_mechanism": way.mechanism,
                "sasl_plain_username": login.user,
                "sasl_plain_password": login.password,
            }
        if way.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = Provider()
        return settings


@contextmanager
def logged(name: str) -> Iterator[list[str]]:
    """Collect the log lines of a library."""
    lines: list[str] = []
    handler = _LineHandler(lines)
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


class _LineHandler(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())
