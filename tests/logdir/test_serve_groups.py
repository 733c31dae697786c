"""Settings of groups on a Kafka data directory: kept in its metadata log, as Kafka keeps them."""

from __future__ import annotations

from pathlib import Path

from rookery.cluster.resources import GROUP_RESOURCE
from rookery.errors import ErrorCode
from rookery.logdir.directory import LogDirectory
from rookery.testing.servedbroker import ask
from rookery.wire.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from rookery.wire.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.logdir.made import make_directory
from tests.logdir.test_serve_upkeep import serving

KEY = "consumer.session.timeout.ms"


def test_settings_of_a_group_survive_a_restart_under_its_name(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"t": [[b"record"]]})
    change = AlterableConfig(name=KEY, config_operation=0, value="60000")
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name="g", configs=[change]
    )
    with serving(folder) as broker:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        [answer] = ask(broker.bootstrap, INCREMENTAL_ALTER_CONFIGS, 1, request).responses
        assert answer.error_code is ErrorCode.NONE

    configs = LogDirectory.open([folder]).image.configs
    assert configs[GROUP_RESOURCE, "g"] == {KEY: "60000"}
    asked = DescribeConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name="g", configuration_keys=[KEY]
    )
    with serving(folder) as broker:
        described = ask(
            broker.bootstrap, DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[asked])
        )
    assert [config.value for config in described.results[0].configs] == ["60000"]
