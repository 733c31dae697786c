"""`rookery certs`, in this process."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest

from rookery.cli.main import main


def test_an_authority_issues_certificates_that_tls_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "certs"
    assert main(["certs", "init", str(folder), "--name", "Bird CA", "--json"]) == 0
    authority = json.loads(capsys.readouterr().out)
    hosts = ["--host", "kafka-1", "--host", "127.0.0.1"]
    assert main(["certs", "issue", "broker-1", *hosts, "--folder", str(folder), "--json"]) == 0
    issued = json.loads(capsys.readouterr().out)
    assert main(["certs", "issue", "alice", "--client", "--folder", str(folder)]) == 0
    capsys.readouterr()

    assert main(["certs", "show", issued["identity"], str(folder / "alice.pem"), "--json"]) == 0
    broker, alice = json.loads(capsys.readouterr().out)

    context = ssl.create_default_context(cafile=authority["certificate"])
    context.load_cert_chain(issued["identity"])
    assert (broker["subject"], broker["names"]) == ("CN=kafka-1", ["kafka-1", "127.0.0.1"])
    assert (alice["subject"], alice["issuer"]) == ("CN=alice", "CN=Bird CA")
    assert 390 < broker["days_left"] < 398
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_an_authority_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", "init", str(tmp_path)]) == 0
    key = (tmp_path / "ca-key.pem").read_bytes()

    assert main(["certs", "init", str(tmp_path)]) == 2
    assert main(["certs", "issue", "ca-key", "--client", "--folder", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "ca-key.pem").read_bytes() == key


@pytest.mark.parametrize(
    "words",
    [
        ["issue", "broker-1"],
        ["issue", "broker-1", "--client", "--host", "kafka-1"],
        ["issue", "../broker-1", "--client"],
        ["show", "ca-missing.pem"],
    ],
)
def test_unusable_arguments_are_refused(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["certs", "init"]) == 0

    assert main(["certs", *words]) == 2


def test_certificates_are_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", "init", str(tmp_path)]) == 0
    capsys.readouterr()

    assert main(["certs", "show", str(tmp_path / "ca.pem")]) == 0

    text = capsys.readouterr().out
    assert "CN=Rookery CA (an authority)" in text
    assert "fingerprint" in text
