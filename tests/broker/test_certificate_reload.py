"""A broker whose certificate is replaced while clients are connected."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from rookery.broker.process.observe import Observer
from rookery.client.client import Client
from rookery.client.settings import Sasl
from rookery.testing.certificates import Certificates
from rookery.testing.wait import wait_until
from tests.broker.secured import HOST, PASSWORD, USER, SecuredBroker, serve_secured


def served_certificate(broker: SecuredBroker, listener: str) -> str:
    """Return the certificate that a new client receives."""
    host, _, port = broker.address(listener).rpartition(":")
    return ssl.get_server_certificate((host, int(port)))


async def test_replaced_certificate_is_served_to_new_clients(tmp_path: Path) -> None:
    others = Certificates.make(tmp_path / "others", HOST)
    with serve_secured(tmp_path) as broker:
        before = served_certificate(broker, "ssl")
        async with Client(broker.client("sasl_ssl", Sasl("PLAIN", USER, PASSWORD))) as client:
            await client.admin.describe_cluster()
            broker.files.server.write_bytes(others.server.read_bytes())
            for listener in ("ssl", "sasl_ssl"):
                wait_until(
                    lambda name=listener: served_certificate(broker, name) != before,  # type: ignore[misc]  # a default binds the name
                    "the new certificate is served",
                )
            # The connection of the old certificate stays usable.
            await client.admin.describe_cluster()


def test_bad_certificate_keeps_the_old_one_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve_secured(tmp_path) as broker:
        before = served_certificate(broker, "ssl")
        good = broker.files.server.read_bytes()
        warning = Observer(broker.broker).warnings()["certificates"]
        assert warning() == ""

        broker.files.server.write_text("not a certificate")
        wait_until(lambda: "tls.certificate_file" in warning(), "health reports the file")
        assert "stays in use" in warning()
        assert served_certificate(broker, "ssl") == before

        broker.files.server.write_bytes(good)
        wait_until(lambda: warning() == "", "health reports no problem")
    lines = [line for line in caplog.messages if line.startswith("reload of certificates fails")]
    assert len(lines) == 1
