"""Bytes, text, Arrow streams and functions of the user's; and how decoders are found."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pyarrow as pa
import pytest

from rookery.decode import decoders
from rookery.decode.open import names, open_decoder
from rookery.decode.port import MAX_REASON, DecoderSettings, bad_row
from rookery.decode.registry import SchemaRegistry
from rookery.decode.rows import to_list
from rookery.errors import ConfigError
from tests.decode.samples import column, decoded, mutated, opened, reasons


def test_every_module_is_a_decoder() -> None:
    assert names() == ["arrow", "avro", "json", "protobuf", "python", "raw", "utf8"]


def test_a_decoder_is_added_by_adding_a_file(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "twice.py").write_text(
        "from rookery.decode.decoders.raw import open as raw\n"
        "def open(settings):\n    return raw(settings)\n"
    )
    monkeypatch.setattr(decoders, "__path__", [*decoders.__path__, str(tmp_path)])
    assert "twice" in names()
    assert decoded(open_decoder("twice"), [b"x"]).values.to_pylist() == [b"x"]


@pytest.mark.parametrize("name", ["", "no", "Raw", "../raw", "raw.py", "__init__"])
def test_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ConfigError, match="choose one of arrow, avro"):
        open_decoder(name)


def test_reasons_are_short_and_printable() -> None:
    bad = bad_row(3, "\x1b[31m" + "x" * 1000, 7)
    assert len(bad.reason) == MAX_REASON
    assert bad.reason.isprintable()
    assert bad_row(0, "short").reason == "short"


def test_raw_keeps_bytes_and_nulls() -> None:
    values = [b"", None, b"\xff"]
    assert decoded(opened("raw"), values).values.to_pylist() == values


def test_invalid_utf8_is_a_bad_row() -> None:
    values: list[bytes | None] = [f"é{at}".encode() for at in range(1000)]
    values[3], values[4], values[700] = b"\xff", None, b"ab\xc3"
    result = decoded(opened("utf8"), values)
    assert reasons(result) == {
        3: "not UTF-8: invalid start byte at byte 0",
        700: "not UTF-8: unexpected end of data at byte 2",
    }
    wanted = [None if at in {3, 4, 700} else f"é{at}" for at in range(1000)]
    assert result.values.to_pylist() == wanted


def test_slices_and_other_binary_types_are_read_as_well() -> None:
    whole = column(b"a", b"b", None, b"c")
    assert opened("utf8").decode(whole.slice(1, 3)).values.to_pylist() == ["b", None, "c"]
    for kind in (pa.large_binary(), pa.binary_view(), pa.string()):
        assert opened("utf8").decode(whole.cast(kind)).values.to_pylist() == ["a", "b", None, "c"]
    assert opened("utf8").decode(column()).values.to_pylist() == []


# ---- functions


def shout(values: pa.Array[Any]) -> pa.Array[Any]:
    texts = to_list(values)
    if b"bad" in texts:
        raise ValueError("no shouting")
    return pa.array([text.decode().upper() for text in texts], pa.string())


def test_function_is_called_per_batch_and_its_failures_are_bad_rows() -> None:
    values: list[bytes | None] = [b"a", None, b"bad", b"\xff", b"c"] * 50
    for function in (shout, f"{__name__}:shout"):
        result = decoded(opened("python", function=function), values)
        assert result.values.to_pylist() == ["A", None, None, None, "C"] * 50
        assert reasons(result)[2] == "ValueError: no shouting"
        assert "UnicodeDecodeError" in reasons(result)[3]


@pytest.mark.parametrize(
    "settings", [{}, {"function": "nowhere"}, {"function": "no.such:thing"}, {"function": "os:no"}]
)
def test_functions_that_cannot_be_found_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="function"):
        opened("python", **settings)


def test_function_that_loses_rows_is_an_error() -> None:
    decoder = opened("python", function=lambda values: values.slice(1), schema=None)
    with pytest.raises(ConfigError, match="as many as it was given"):
        decoder.decode(column(b"a", b"b"))


# ---- Arrow streams


def streamed(**columns: list[Any]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def test_arrow_streams_of_one_row_are_decoded() -> None:
    decoder = opened("arrow", schema="id int, name string, more double")
    values = [streamed(id=[1], name=["a"]), streamed(id=[1, 2]), b"", streamed(id=["x"]), None]
    result = decoded(decoder, values)
    assert result.values[0].as_py() == {"id": 1, "name": "a", "more": None}
    assert set(reasons(result)) == {1, 2, 3}


def test_damaged_arrow_streams_never_raise() -> None:
    chance = random.Random(5)
    whole = streamed(id=[7], name=["some name"])
    decoder = opened("arrow", schema="id long, name string")
    decoded(decoder, [mutated(whole, chance) for _ in range(300)])


def test_settings_survive_pickling() -> None:
    settings = DecoderSettings("id long", SchemaRegistry("http://localhost:1"), "s", 3)
    again = pickle.loads(pickle.dumps(settings))
    assert again.registry.settings == settings.registry.settings  # type: ignore[union-attr]
    assert (again.schema, again.subject, again.version) == ("id long", "s", 3)
