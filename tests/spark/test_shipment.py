"""The configuration that is sent to the hosts of a Spark cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.errors import ConfigError
from rookery.spark.environment.shipment import archive_setting, shipment


def test_config_file_is_shipped_under_the_name_executors_expect(tmp_path: Path) -> None:
    file = tmp_path / "prod.toml"
    file.write_text("[clusters.prod]\nstore = 's3://bucket/log'\n")
    made = shipment({"ROOKERY_CONFIG": str(file)}, {"spark.files": "/mine.txt"})

    mine, sent = made["spark.files"].split(",")
    assert mine == "/mine.txt"
    assert Path(sent).name == "rookery.toml"
    assert Path(sent).read_text() == file.read_text()
    assert Path(sent).parent.stat().st_mode & 0o077 == 0


def test_cluster_variables_are_shipped_and_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    made = shipment({"ROOKERY_CLUSTERS_PROD_STORE": "s3://bucket/log", "HOME": "/root"}, {})
    assert made.pop("spark.redaction.regex").endswith("|rookery_clusters")
    assert made == {"spark.executorEnv.ROOKERY_CLUSTERS_PROD_STORE": "s3://bucket/log"}


def test_without_configuration_nothing_is_shipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipment({}, {"spark.files": "/mine.txt"}) == {}


def test_archive_is_added_to_those_of_the_user() -> None:
    archive = Path("/my cache/a,b.tar.gz")
    sent = "file:///my%20cache/a%2Cb.tar.gz#environment"

    assert archive_setting(archive, {}) == {"spark.archives": sent}
    assert archive_setting(archive, {"spark.archives": "x.zip#x"}) == {
        "spark.archives": f"x.zip#x,{sent}"
    }


def test_conflicting_environment_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="#environment is Rookery's own"):
        archive_setting(Path("/a.tar.gz"), {"spark.archives": "b.zip#b, c.zip#environment"})
