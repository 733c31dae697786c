"""DescribeConfigs: the settings of topics, groups, brokers and client metrics, with sources."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.broker.call import Call, handles
from rookery.broker.config import configs
from rookery.broker.config.alteration import make_unserved_error, settings_of
from rookery.broker.config.configkeys import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    BrokerKey,
    ConfigKey,
)
from rookery.broker.config.configs import ALL_BROKERS, ConfigSource, Synonym
from rookery.broker.telemetry import clientmetrics
from rookery.broker.topics import check_name
from rookery.cluster.resources import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

Shown = dict[str, DescribeConfigsResourceResult]
"""Settings as reported to clients, by name."""


@handles(
    DESCRIBE_CONFIGS,
    versions=range(1, 5),
    mutates=False,
)
async def describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe the settings of each resource and their sources, or return an error for it."""
    await call.services.replica.barrier()
    page = _Page(call, request)
    return DescribeConfigsResponse(
        results=[page.describe(resource) for resource in request.resources]
    )


class _Page:
    """One response; topics that inherit a setting share its entry."""

    def __init__(self, call: Call, request: DescribeConfigsRequest) -> None:
        self._call = call
        self._request = request
        self._inherited: Shown = {}
        self._broker: Shown = {}

    def describe(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        try:
            shown = self._describe(resource)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.text
            return result
        wanted = resource.configuration_keys
        result.configs = [entry for name, entry in shown.items() if not wanted or name in wanted]
        return result

    def _describe(self, resource: DescribeConfigsResource) -> Shown:
        if resource.resource_type == TOPIC_RESOURCE:
            return self._topic(resource.resource_name)
        if resource.resource_type == GROUP_RESOURCE:
            return self._group(resource.resource_name)
        if resource.resource_type == CLIENT_METRICS_RESOURCE:
            return self._client_metrics(resource.resource_name)
        if resource.resource_type != BROKER_RESOURCE:
            raise make_unserved_error(resource.resource_type)
        if resource.resource_name == ALL_BROKERS:
            return self._all_brokers()
        return self._this_broker(resource.resource_name)

    def _topic(self, name: str) -> Shown:
        check_name(name)
        own = settings_of(self._call, TOPIC_RESOURCE, name)
        brokers = self._call.state.broker_configs
        if not self._inherited:
            self._inherited = {
                key.name: self._show(key, configs.synonyms(key, {}, brokers))
                for key in TOPIC_KEYS.values()
            }
        return self._inherited | {
            key: self._show(TOPIC_KEYS[key], configs.synonyms(TOPIC_KEYS[key], own, brokers))
            for key in own
            if key in TOPIC_KEYS
        }

    def _group(self, name: str) -> Shown:
        own = settings_of(self._call, GROUP_RESOURCE, name)
        settings = self._call.services.settings
        return {
            key.name: self._show(key, configs.group_synonyms(key, own, settings))
            for key in GROUP_KEYS.values()
        }

    def _client_metrics(self, name: str) -> Shown:
        if not name:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
            )
        own = settings_of(self._call, CLIENT_METRICS_RESOURCE, name)
        return {
            key.name: self._show(
                key,
                [Synonym(key.name, own[key.name], ConfigSource.CLIENT_METRICS)]
                if key.name in own
                else [Synonym("", key.default, ConfigSource.DEFAULT)],
            )
            for key in clientmetrics.KEYS.values()
        }

    def _all_brokers(self) -> Shown:
        made = settings_of(self._call, BROKER_RESOURCE, ALL_BROKERS)
        return {
            key: self._show(BROKER_KEYS[key], [Synonym(key, value, ConfigSource.ALL_BROKERS)])
            for key, value in sorted(made.items())
            if key in BROKER_KEYS
        }

    def _this_broker(self, name: str) -> Shown:
        services = self._call.services
        if name != str(services.node_id):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {services.node_id} or empty string, but received "
                f"{name[:100]}",
            )
        if not self._broker:
            facts = configs.facts(services.settings, services.node_id, _address(self._call))
            brokers = self._call.state.broker_configs
            self._broker = {
                key.name: self._show(
                    key,
                    configs.broker_synonyms(key, facts, brokers),
                    is_read_only=not key.is_dynamic,
                )
                for key in BROKER_KEYS.values()
            }
        return self._broker

    def _show(
        self, key: ConfigKey | BrokerKey, synonyms: Sequence[Synonym], *, is_read_only: bool = False
    ) -> DescribeConfigsResourceResult:
        return DescribeConfigsResourceResult(
            name=key.name,
            value=synonyms[0].value,
            read_only=is_read_only,
            config_source=synonyms[0].source,
            is_sensitive=False,
            synonyms=[
                DescribeConfigsSynonym(
                    name=synonym.name, value=synonym.value, source=synonym.source
                )
                for synonym in synonyms
                if self._request.include_synonyms and synonym.name and synonym.value is not None
            ],
            config_type=key.kind,
            documentation=key.doc if self._request.include_documentation else None,
        )


def _address(call: Call) -> str:
    broker = call.state.brokers.by_node.get(call.services.node_id)
    return f"{broker.host}:{broker.port}" if broker else ""
