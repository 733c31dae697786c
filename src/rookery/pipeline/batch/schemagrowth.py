"""Selects the version of a registry's schema: the newest one that fits the tables.

A subject's latest version can change the type of a column, or drop a key. With that version, no row
would fit the tables. So readers use the newest version that fits. Records of that version and of
older ones still decode. Records that do not decode become dead letters, and the reason names their
schema. After the table is rebuilt, or when a fitting version is registered, the next batch uses the
newer version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from rookery.decode.open import open_decoder
from rookery.decode.port import DecoderSettings
from rookery.decode.registry import UnknownSchema
from rookery.errors import ConfigError
from rookery.pipeline.batch.checks import Checks
from rookery.pipeline.declaration.columns import silver_schema
from rookery.pipeline.declaration.decoders import decoder_settings
from rookery.pipeline.declaration.spec import Decode, Pipeline
from rookery.tables.open import open_table
from rookery.tables.schemas import merge_schemas

log = logging.getLogger(__name__)

_MAX_STEPS: Final = 100
"""The number of versions below the latest that are tried."""


@dataclass(frozen=True, slots=True)
class ChosenSchema:
    """The decoder settings of a topic, and the columns of its rows."""

    settings: DecoderSettings
    schema: pa.Schema
    latest: int | None = None
    """The subject's latest version at the time of the choice."""
    left_out: str = ""
    """The reason why newer versions are not used, if there are any."""


def choose(
    pipeline: Pipeline,
    topic: str,
    others: Mapping[str, pa.Schema],
    before: ChosenSchema | None = None,
) -> ChosenSchema:
    """Choose the decoder of a topic, and check that its columns fit keys, checks and tables.

    Args:
        pipeline: the declaration.
        topic: the topic.
        others: the columns of topics chosen before; some tables hold rows of several topics.
        before: the choice of the previous batch; it is kept until the registry has a new version.

    Raises:
        ConfigError: the declaration does not fit, or no version of the subject does.
        Unavailable: the registry cannot be reached.
    """
    decode = pipeline.decode(topic)
    settings = decoder_settings(decode)
    if not _is_versioned(decode):
        return ChosenSchema(settings, _columns(pipeline, topic, settings))
    latest = _latest(settings)
    if before is not None and before.latest == latest:
        return before
    newest = _newest(pipeline, topic, others, replace(settings, version=latest))
    if newest.left_out:
        log.warning("%s", newest.left_out)
    return newest


def may_grow(decode: Decode) -> bool:
    """Return whether a registry can have added columns to a topic."""
    return _is_versioned(decode)


def _is_versioned(decode: Decode) -> bool:
    # A declared schema takes precedence over the registry.
    return bool(decode.registry and decode.subject) and not (decode.schema or decode.schema_file)


def _newest(
    pipeline: Pipeline, topic: str, others: Mapping[str, pa.Schema], settings: DecoderSettings
) -> ChosenSchema:
    refused: ConfigError | None = None
    for version in _downward(settings):
        try:
            schema = _columns(pipeline, topic, version)
            _check_tables(pipeline, topic, {**others, topic: schema})
        except ConfigError as error:
            refused = refused or error
            continue
        why = "" if refused is None else _describe_unused(topic, settings, version, refused)
        return ChosenSchema(version, schema, settings.version, why)
    raise refused or ConfigError(f"topic {topic!r}: subject {settings.subject!r} has no version")


def _columns(pipeline: Pipeline, topic: str, settings: DecoderSettings) -> pa.Schema:
    decoder = open_decoder(pipeline.decode(topic).value, settings)
    schema = silver_schema(pipeline, topic, decoder)
    Checks(pipeline.silver.checks).verify(schema)
    return schema


def _check_tables(pipeline: Pipeline, topic: str, silver: Mapping[str, pa.Schema]) -> None:
    for sink in (*pipeline.of("silver"), *pipeline.of("late")):
        if not sink.takes(topic):
            continue
        schema: pa.Schema | None = None
        for name, columns in silver.items():
            if sink.takes(name):
                schema = merge_schemas(sink.location, schema, columns)
        if schema is not None:
            open_table(sink.table()).check(schema)


def _latest(settings: DecoderSettings) -> int | None:
    assert settings.registry is not None and settings.subject is not None  # noqa: S101, PT018 (it is versioned)
    try:
        return settings.registry.latest(settings.subject).version
    except UnknownSchema as error:
        raise ConfigError(f"{error}; check subject") from None


def _downward(settings: DecoderSettings) -> Iterator[DecoderSettings]:
    latest = settings.version or 1
    for version in range(latest, max(0, latest - _MAX_STEPS), -1):
        yield replace(settings, version=version)


def _describe_unused(
    topic: str, latest: DecoderSettings, used: DecoderSettings, why: ConfigError
) -> str:
    return (
        f"topic {topic!r}: version {latest.version} of subject {latest.subject!r} is not used,"
        f" version {used.version} is: {why}. Records that do not fit become dead letters"
    )
