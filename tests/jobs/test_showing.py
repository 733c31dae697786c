"""The input and output of `rookery job`."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pyarrow as pa
import pytest

from rookery.cli.main import main
from rookery.cli.options.values import size
from rookery.cli.output.jobs import JobDisplay, plan_text, report_text
from rookery.errors import ConfigError, Conflict, Corrupt, Error, Unavailable
from rookery.jobs.move.offsetmap import map_offsets, pack_pieces
from rookery.jobs.proof import Proof, prove
from rookery.jobs.report import JobPart, JobPlan, JobReport, JobRun, JobStep, Requests
from rookery.jobs.tasks import TaskFailure, outcome
from rookery.log.read.files import MissingJournal
from rookery.store.prices import Prices


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4096", 4096), ("500MB", 500_000_000), ("10GiB", 10 * 2**30), ("2 TB", 2 * 10**12)],
)
def test_sizes_are_parsed(text: str, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "1.5GB", "ten", "10 GBps"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a size"):
        size(text)


def test_dry_run_prints_work_and_cost() -> None:
    plan = JobPlan(
        "merge", (JobPart("a", 2_000_000),), (JobPart("b", 5, "later"),), Requests(1000, 2000)
    )

    lines = list(plan_text(JobReport(plan, is_dry=True)))

    assert lines == [
        "  would: a, 2.0 MB",
        "  later: b, 5 B (later)",
        "merge: 2.0 MB to read, about 1,000 GETs and 2,000 PUTs ($0.0104); nothing was done",
    ]


def test_report_shows_the_proof_and_failures() -> None:
    report = JobReport(JobPlan("compact"), done_bytes=10, slices=2, facts={"rows": 1234})
    report.before, report.after = Proof(3, 15, exact_keys=2), Proof(2, 15, exact_keys=2)
    report.check()

    lines = list(report_text(report, 1.25))

    assert not report.is_right
    assert lines[0] == "compact: 10 B in 2 slices, 1.2 s"
    assert lines[1] == "  rows: 1,234"
    assert lines[2] == "  before: 3 rows, 2 keys, checksum 000000000000000f"
    assert lines[-1] == "not all is well"
    assert "wrong" in lines[-2]


def test_report_shows_notes_and_omits_unchecked_keys() -> None:
    report = JobReport(
        JobPlan("expire"), before=Proof(3, 15), after=Proof(3, 15), notes=["others did"]
    )
    report.check()

    lines = list(report_text(report, 1.25))

    assert lines[1] == "  before: 3 rows, checksum 000000000000000f"
    assert lines[-2:] == ["  note: others did", "all is well"]
    assert report.as_json(Prices())["notes"] == ["others did"]


def test_json_output_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    with JobDisplay("scrub", is_json=True, is_quiet=False) as showing:
        showing.step(JobStep(5, 10, "half"))
    showing.report(JobReport(JobPlan("scrub"), slices=1))

    progress, report = map(json.loads, capsys.readouterr().out.splitlines())
    assert progress == {
        "event": "progress", "job": "scrub", "done_bytes": 5, "total_bytes": 10, "text": "half"
    }  # fmt: skip
    assert report["event"] == "report"
    assert report["ok"] is True


def test_cluster_address_is_checked_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "scrub", "--data", "/nowhere/at/all"]) == 2

    assert "there is no folder" in capsys.readouterr().err


def test_negative_budget_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_bytes"):
        JobRun(max_bytes=-1)
    assert JobRun(max_bytes=10).choose([4, 6, 1]) == 2
    assert JobRun().choose([4, 6, 1]) == 3
    with pytest.raises(ConfigError, match=r"merge: max_bytes=10 .* a: allow 11 bytes"):
        JobRun(max_bytes=10).check_budget("merge", "a", 11)
    JobRun().check_budget("merge", "a", 11)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MissingJournal(1 << 30), Conflict),
        (Unavailable("x"), Unavailable),
        (Corrupt("x"), Corrupt),
        (ConfigError("x"), ConfigError),
    ],
)
def test_errors_of_tasks_survive_pickling(error: Error, kind: type[Error]) -> None:
    def fail(_: int) -> int:
        raise error

    result = outcome(fail, 0)

    assert isinstance(result, TaskFailure)
    assert type(result.error) is kind
    assert str(result.error) == str(error)


def _rows(order: list[int], **changes: object) -> pa.RecordBatch:
    columns = {
        "timestamp": pa.array(order, pa.timestamp("ms", "UTC")),
        "key": pa.array([None if n % 5 == 0 else b"k%d" % (n % 40) for n in order], pa.binary()),
        "value": pa.array([None if n % 7 == 0 else b"v%d" % n for n in order], pa.binary()),
        "headers": pa.array(
            [[("a", b"%d" % n), ("b", None)] if n % 3 else [] for n in order],
            pa.map_(pa.string(), pa.binary()),
        ).cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    }
    return pa.record_batch({**columns, **changes})


def test_proof_is_independent_of_order_and_partitioning() -> None:
    whole = prove([_rows(list(range(1000)))])

    shuffled = np.random.default_rng(1).permutation(1000).tolist()
    parts = prove([_rows(shuffled[:300])]) + prove([_rows(shuffled[300:]).slice(0, 700)])

    assert parts == whole
    assert whole.rows == 1000
    assert whole.keys == 32


@pytest.mark.parametrize("column", ["timestamp", "key", "value", "headers"])
def test_proof_detects_one_changed_value(column: str) -> None:
    before = _rows(list(range(100)))
    values = before.column(column).take(pa.array([*range(41), 43, *range(42, 100)]))

    after = before.set_column(before.schema.get_field_index(column), column, values)

    assert prove([after]) != prove([before])


def test_proof_uses_timestamps_in_the_resolution_of_kafka() -> None:
    finer = pa.array([1_700_000_000_123_456], pa.timestamp("us", "UTC"))
    kept = pa.array([1_700_000_000_123], pa.timestamp("ms", "UTC"))

    assert prove([_rows([1], timestamp=finer)]) == prove([_rows([1], timestamp=kept)])


def test_proof_distinguishes_null_from_empty() -> None:
    nulls = pa.record_batch({"key": pa.array([None], pa.binary()), "value": [b""]})
    empty = pa.record_batch({"key": [b""], "value": pa.array([None], pa.binary())})

    assert prove([nulls]) != prove([empty])
    assert (prove([nulls]).keys, prove([empty]).keys) == (0, 1)


def test_offsets_of_a_slice_are_consecutive_by_partition() -> None:
    topic = pa.array(["s", "s", "s"]).dictionary_encode()
    target = pa.array(["t", "t", "t"]).dictionary_encode()

    def piece(offsets: list[int], partitions: list[int]) -> bytes:
        columns = [topic, pa.array([0, 0, 0], pa.int32()), pa.array(offsets), target]
        fields = ["source_topic", "source_partition", "source_offset", "topic", "partition"]
        return pack_pieces(
            [pa.record_batch([*columns, pa.array(partitions, pa.int32())], names=fields)]
        )

    table = map_offsets([piece([5, 6, 9], [1, 0, 1]), piece([10, 11, 12], [1, 1, 0])],
                   {("t", 0): 100, ("t", 1): 7})  # fmt: skip

    assert table.column("source_offset").to_pylist() == [5, 6, 9, 10, 11, 12]
    assert table.column("offset").to_pylist() == [7, 100, 8, 9, 10, 101]
