"""Which version of a registry's schema readers see: the newest one that the tables can take.

A subject's latest version may give a column another type, or drop a key. Were readers to see it,
no row would fit the tables any more. So they stay with the newest version that does: what its
writers and older ones wrote still decodes, and what does not becomes a dead letter whose reason
names the schema that it was written by. When the table is rebuilt, or a version comes that fits
again, the next batch uses it.
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
from rookery.pipeline.checks import Checks
from rookery.pipeline.columns import silver_schema
from rookery.pipeline.decoders import decoder_settings
from rookery.pipeline.spec import Decode, Pipeline
from rookery.tables.open import open_table
from rookery.tables.schemas import merged

log = logging.getLogger(__name__)

_MAX_STEPS: Final = 100
"""So many versions below the latest are tried."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """How a topic is read, and the columns that its rows have."""

    settings: DecoderSettings
    schema: pa.Schema
    latest: int | None = None
    """The subject's latest version, when this was chosen."""
    left_out: str = ""
    """Why newer versions are not used, if there are any."""


def choose(
    pipeline: Pipeline, topic: str, others: Mapping[str, pa.Schema], before: Chosen | None = None
) -> Chosen:
    """Choose the decoder of a topic, and see that its columns fit keys, checks and tables.

    Args:
        pipeline: what is declared.
        topic: whose rows they are.
        others: the columns of topics that are chosen already: some tables hold rows of several.
        before: what the batch before had chosen; it stays so while the registry has nothing new.

    Raises:
        ConfigError: what is declared fits nowhere; of a registry's subject, no version does.
        Unavailable: the registry is out of reach.
    """
    decode = pipeline.decode(topic)
    settings = decoder_settings(decode)
    if not _is_versioned(decode):
        return Chosen(settings, _columns(pipeline, topic, settings))
    latest = _latest(settings)
    if before is not None and before.latest == latest:
        return before
    found = _newest(pipeline, topic, others, replace(settings, version=latest))
    if found.left_out:
        log.warning("%s", found.left_out)
    return found


def may_grow(decode: Decode) -> bool:
    """Whether a registry may know more columns of a topic by now."""
    return _is_versioned(decode)


def _is_versioned(decode: Decode) -> bool:
    # A schema of one's own is what readers want to see, whatever the registry has.
    return bool(decode.registry and decode.subject) and not (decode.schema or decode.schema_file)


def _newest(
    pipeline: Pipeline, topic: str, others: Mapping[str, pa.Schema], settings: DecoderSettings
) -> Chosen:
    refused: ConfigError | None = None
    for one in _downward(settings):
        try:
            schema = _columns(pipeline, topic, one)
            _check_tables(pipeline, topic, {**others, topic: schema})
        except ConfigError as error:
            refused = refused or error
            continue
        why = "" if refused is None else _left_out(topic, settings, one, refused)
        return Chosen(one, schema, settings.version, why)
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
                schema = merged(sink.location, schema, columns)
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


def _left_out(topic: str, latest: DecoderSettings, used: DecoderSettings, why: ConfigError) -> str:
    return (
        f"topic {topic!r}: version {latest.version} of subject {latest.subject!r} is not used,"
        f" version {used.version} is: {why}. Records that do not fit become dead letters"
    )
