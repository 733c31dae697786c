"""Rows as `rookery replay` writes them: a table, lines of JSON, an Arrow stream, a Parquet file."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from io import IOBase
from pathlib import Path
from typing import IO, Any, Final, cast

import pyarrow as pa
from rich.console import Console

from rookery.cli.output.tables import WIDE, make_table
from rookery.errors import ConfigError

_RIGHT: Final = ("partition", "offset", "lateness")


class RowWriter:
    """Writes batches and counts them; this one writes lines of JSON."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self.rows = 0
        self.late = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self.rows += batch.num_rows
        if "lateness" in batch.schema.names:
            late = batch.column("lateness").cast(pa.int64()).to_pylist()
            self.late += sum(1 for lateness in late if lateness)
        self._write(batch)

    def end(self, schema: pa.Schema) -> None:
        """Finish; the schema is needed to write a table without rows."""

    def _write(self, batch: pa.RecordBatch) -> None:
        self._out.writelines(_line(row) for row in batch.to_pylist())
        self._out.flush()


class _Table(RowWriter):
    """Prints readable columns, one table per batch."""

    def __init__(self, out: IO[bytes]) -> None:
        super().__init__(out)
        self._is_first = True

    def _write(self, batch: pa.RecordBatch) -> None:
        flat = pa.Table.from_batches([batch]).flatten()
        names = [name.removeprefix("value.") for name in flat.column_names]
        table = make_table(names, right=_RIGHT)
        table.show_header, self._is_first = self._is_first, False
        for row in zip(*(column.to_pylist() for column in flat.columns), strict=True):
            table.add_row(*map(_cell, row))
        text = sys.stdout if self._out is sys.stdout.buffer else None
        if text is not None and text.isatty():
            Console(file=text, highlight=False, markup=False).print(table)
            return
        console = Console(width=WIDE, highlight=False, markup=False)
        with console.capture() as printed:
            console.print(table)
        lines = (line.rstrip() for line in printed.get().splitlines())
        self._out.writelines(line.encode() + b"\n" for line in lines)
        self._out.flush()


class _Arrow(RowWriter):
    """An IPC stream, which any Arrow library reads as it comes."""

    def __init__(self, out: IO[bytes]) -> None:
        super().__init__(out)
        self._writer: Any = None

    def end(self, schema: pa.Schema) -> None:
        self._require_writer(schema).close()
        self._out.flush()

    def _write(self, batch: pa.RecordBatch) -> None:
        self._require_writer(batch.schema).write_batch(batch)

    def _require_writer(self, schema: pa.Schema) -> Any:
        if self._writer is None:
            self._writer = self._open(schema)
        return self._writer

    def _open(self, schema: pa.Schema) -> Any:
        return pa.ipc.new_stream(pa.PythonFile(cast("IOBase", self._out), "w"), schema)


class _Parquet(_Arrow):
    """A Parquet file, a row group for about a million rows."""

    def _open(self, schema: pa.Schema) -> Any:
        from pyarrow import parquet

        return parquet.ParquetWriter(
            pa.PythonFile(cast("IOBase", self._out), "w"), schema, compression="zstd"
        )


_FORMS: Final[dict[str, type[RowWriter]]] = {
    "table": _Table, "json": RowWriter, "arrow": _Arrow, "parquet": _Parquet
}  # fmt: skip


@contextmanager
def open_sink(form: str, path: str | None) -> Iterator[RowWriter]:
    """Open the output for rows.

    Raises:
        ConfigError: bytes would go to a terminal, or the file cannot be made.
    """
    if path is None:
        if form in {"arrow", "parquet"} and sys.stdout.isatty():
            raise ConfigError(f"--format {form} is not for terminals; name a file with --output")
        yield _FORMS[form](sys.stdout.buffer)
        return
    try:
        out = Path(path).open("wb")  # noqa: SIM115 (closed below; the errors differ)
    except OSError as error:
        raise ConfigError(f"--output: {error}") from error
    with out:
        yield _FORMS[form](out)


def _line(row: dict[str, Any]) -> bytes:
    """Return a row as a line of JSON; bytes that are not text are marked as such."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            try:
                out[name] = value.decode()
            except UnicodeDecodeError:
                out[f"{name}_base64"] = base64.b64encode(value).decode()
        else:
            out[name] = value
    return json.dumps(out, ensure_ascii=False, default=_plain).encode() + b"\n"


def _plain(value: object) -> object:
    match value:
        case datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case timedelta():
            return value / timedelta(milliseconds=1)
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case _:
            return str(value)


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bytes():
            return value.decode(errors="replace")
        case timedelta():
            return f"{value / timedelta(seconds=1):g} s" if value else ""
        case datetime() | date():
            return str(_plain(value))
        case list() | dict():
            return json.dumps(value, ensure_ascii=False, default=_plain)
        case _:
            return str(value)
