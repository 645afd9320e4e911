"""Matching, waiting, stragglers and bandwidth of the real sources, against published answers."""

import base64
import json
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunMaker
from traceq.ingest.nsys.export import Export
from traceq.ingest.nsys.host import read_ranges
from traceq.ingest.nsys.nccl import read_nccl
from traceq.report import Report, build_report

PAIR = "nsys/a100_2node_allgather_pair"


class TestTwoNodes:
    """Ranks 0 and 4 of 8, one all_gather; published: 185,997,784 and 19,113,166 ns."""

    def of(self, corpus: Path, make_run: RunMaker, kind: str, **options: Any) -> Report:
        files = (corpus / PAIR / f"rank{rank}_{kind}.sqlite" for rank in (0, 4))
        return build_report(make_run(*files, **options))

    def test_the_late_rank_is_the_one_with_the_short_kernel(
        self, corpus: Path, make_run: RunMaker
    ) -> None:
        report = self.of(corpus, make_run, "with_blobs")
        (row,) = report.collectives
        assert row["transfer_ns_p50"] == 19_113_166
        late, early = report.stragglers
        assert (late["rank"], late["lateness_ns"], late["times_last"]) == (4, 166_884_618, 1)
        assert (early["rank"], early["lateness_ns"], early["times_last"]) == (0, 0, 0)
        assert late["imposed_wait_ns"] == late["removable_ns"] == 166_884_618
        assert (late["partial"], late["straggler"]) == (True, None)  # of 2 ranks out of 8

    def test_without_the_number_of_ranks_the_bandwidth_is_unknown(
        self, corpus: Path, make_run: RunMaker
    ) -> None:
        report = self.of(corpus, make_run, "with_blobs")
        (row,) = report.collectives
        assert (row["busbw_gbps"], row["algbw_gbps"], row["quality"]) == (
            None,
            None,
            "size_unknown",
        )
        notes = {d["code"]: d for d in report.diagnostics}
        assert "--nranks" in notes["group_size_unknown"]["hint"]

    def test_with_it_the_bandwidth_is_a_lower_bound(self, corpus: Path, make_run: RunMaker) -> None:
        report = self.of(corpus, make_run, "with_blobs", nranks=8)
        (row,) = report.collectives
        assert row["bytes_p50"] == 21_233_664 * 8
        assert round(row["algbw_gbps"], 2) == 8.89
        assert round(row["busbw_gbps"], 2) == 7.78
        assert row["quality"] == "partial_ranks"
        assert (report.run["world_size"], report.run["ranks_missing_count"]) == (8, 6)

    def test_the_clock_residual_is_stated(self, corpus: Path, make_run: RunMaker) -> None:
        report = self.of(corpus, make_run, "with_blobs")
        first, second = report.matching["clock"]["sources"]
        assert (first["clock_offset_ns"], second["collective_count"]) == (0, 1)
        assert round(second["clock_offset_ns"] / 1e6, 3) == -0.113

    def test_a_default_export_says_how_to_export_again(
        self, corpus: Path, make_run: RunMaker
    ) -> None:
        report = self.of(corpus, make_run, "default_export", nranks=8)
        (row,) = report.collectives
        assert (row["bytes_p50"], row["busbw_gbps"], row["quality"]) == (None, None, "size_unknown")
        assert row["transfer_ns_p50"] == 19_113_166
        (hint,) = {d["hint"] for d in report.diagnostics if d["code"] == "size_unknown"}
        assert "nsys export --type sqlite --include-blobs=true" in hint


@pytest.mark.parametrize("variant", ["dlrm_8xV100", "dlrm_8xV100_enriched"])
class TestEightRanks:
    """Every figure of the brute-force answer about eight collectives of eight ranks."""

    def answers(self, corpus: Path) -> dict[str, Any]:
        answers: dict[str, Any] = json.loads((corpus / "oracle_dlrm_collectives.json").read_text())
        return answers

    def test_each_collective(self, corpus: Path, make_run: RunMaker, variant: str) -> None:
        run = make_run(corpus / "torch" / variant)
        for answer in self.answers(corpus)["collectives"]:
            rows = run.frame(
                "SELECT rank, op, end_ns - start_ns AS length_ns, transfer_ns, wait_ns, "
                "last_share, match FROM nccl_kernels "
                f"WHERE collective_id = {answer['index']} ORDER BY rank"
            ).to_dicts()
            assert {row["op"] for row in rows} == {answer["op"]}
            assert {row["match"] for row in rows} == {"matched"}
            assert {row["transfer_ns"] for row in rows} == {answer["transfer_ns"]}
            for name, column in (("duration_ns", "length_ns"), ("wait_ns", "wait_ns")):
                assert {str(row["rank"]): row[column] for row in rows} == answer[name]
            assert [row["rank"] for row in rows if row["last_share"]] == answer["ties"]
            lengths = sorted(row["length_ns"] for row in rows)
            assert lengths[1] - lengths[0] == answer["removable_ns"]

    def test_each_rank(self, corpus: Path, make_run: RunMaker, variant: str) -> None:
        report = build_report(make_run(corpus / "torch" / variant))
        answers = self.answers(corpus)["ranks"]
        assert len(answers) == len(report.stragglers) == 8
        compared = set()
        for row in report.stragglers:
            answer = answers[str(row["rank"])]
            for name in answer.keys() & row.keys():
                compared.add(name)
                assert row[name] == pytest.approx(answer[name], rel=1e-12), (row["rank"], name)
            assert row["late_count"] == answer["times_later_than_peers"]
        assert compared == {
            "lateness_ns", "imposed_wait_ns", "removable_ns", "times_last", "p_value",
        }  # fmt: skip

    def test_only_rank_7_is_a_straggler(
        self, corpus: Path, make_run: RunMaker, variant: str
    ) -> None:
        report = build_report(make_run(corpus / "torch" / variant))
        (row,) = (row for row in report.stragglers if row["straggler"])
        assert (row["rank"], row["times_last"], row["late_count"], row["unit"]) == (
            7, 5, 8, "collective",
        )  # fmt: skip
        assert row["p_value"] == pytest.approx(8 / 2**8)
        (finding,) = (f for f in report.findings if f["id"] == "straggler")
        assert finding["evidence"]["rank"] == 7

    def test_bandwidths(self, corpus: Path, make_run: RunMaker, variant: str) -> None:
        report = build_report(make_run(corpus / "torch" / variant))
        rates = {
            row["bytes_p50"]: row["busbw_gbps"]
            for row in report.collectives
            if row["op"] == "all_reduce"
        }
        assert round(rates[1_576_964], 4) == 32.0894
        assert round(rates[907_840], 4) == 23.0249


def test_only_calls_inside_the_window_are_linked(corpus: Path, make_run: RunMaker) -> None:
    run = make_run(corpus / "nsys/h100x2_sendrecv_before_nsys2026.2.1.sqlite")
    report = build_report(run)
    (note,) = (d for d in report.diagnostics if d["code"] == "call_unknown")
    assert (note["count"], "2 of 66" in note["message"]) == (2, True)
    (note,) = (d for d in report.diagnostics if d["code"] == "size_unknown")
    assert note["count"] == 66
    assert "--include-blobs=true" in note["hint"]
    assert {row["quality"] for row in report.collectives} == {"size_unknown"}


# The calls that were made of each NCCL, three times over.
OLD = [
    ("all_reduce", 2_097_152, {"redop": 0}),
    ("all_gather", 16_384, {}),
    ("reduce_scatter", 16_384, {"redop": 4}),
    ("broadcast", 100, {"root": 3}),
    ("reduce", 400, {"root": 1, "redop": 2}),
    ("send", 4936, {"peer": 5}),
    ("recv", 17_284, {"peer": 6}),
]
NEW = [
    *OLD,
    ("all_to_all", 3108, {}),
    ("gather", 3112, {"root": 1}),
    ("scatter", 3116, {"root": 1}),
]
GOLDEN = {"2.16.5": OLD, "2.24.3": OLD, "2.30.7": NEW, "2.32.3": NEW}
NAMES = {4: "AllGather", 5: "AllReduce", 6: "Broadcast", 7: "ReduceScatter", 8: "Reduce", 9: "Send",
         10: "Recv", 16: "AlltoAll", 17: "Gather", 18: "Scatter"}  # fmt: skip
HASH = 0xDEADBEEF01234567
SKELETONS = [
    "skeleton_all_tables_nsys2022.4.2.sqlite",
    "skeleton_all_tables_nsys2023.4.4.sqlite",
    "skeleton_all_tables_nsys2024.2.3.sqlite",
]


def golden(corpus: Path, version: str) -> list[tuple[int, int, bytes]]:
    """Start, schema id and bytes of each payload, in order."""
    found = []
    for line in (corpus / f"nccl/nvtx_payloads_nccl{version}.jsonl").read_text().splitlines():
        event = json.loads(line)["NvtxEvent"]
        for payload in event.get("Payload", {}).get("BinaryData", []):
            data = base64.b64decode(payload["Data"])
            found.append((int(event["Timestamp"]), int(payload["SchemaId"]), data))
    return found


def fields_of(schema: int, data: bytes) -> dict[str, int]:
    """The payload by the labels of its entries, worked out apart from the reader."""
    layout = {
        4: "", 5: "r", 6: "o", 7: "r", 8: "or", 9: "p", 10: "p", 16: "", 17: "o", 18: "o",
    }[schema - 0x1000000]  # fmt: skip
    names = {"r": "Reduction operation", "o": "Root", "p": "Peer rank"}
    new = len(data) >= (24 if layout else 16)
    head = struct.unpack_from("<QQ" if new else "<Q", data)
    fields = {"NCCL communicator ID": head[0]} if new else {}
    fields["Message size [bytes]"] = head[-1]
    for place, letter in enumerate(layout):
        fields[names[letter]] = struct.unpack_from("<i", data, 8 * len(head) + 4 * place)[0]
    return fields


CARRIERS = ["binary", "json", "registered json", "table"]


@pytest.mark.parametrize("skeleton", SKELETONS)
@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("version", GOLDEN)
def test_payloads_of_real_nccl_decode(
    corpus: Path, tmp_path: Path, version: str, carrier: str, skeleton: str
) -> None:
    path = tmp_path / "golden.sqlite"
    path.write_bytes((corpus / "nsys" / skeleton).read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        _insert(connection, golden(corpus, version), carrier)
        connection.commit()
    export = Export(path, "golden.sqlite")
    calls = read_nccl(export, read_ranges(export, "$^").named).calls
    expected = GOLDEN[version] * 3
    assert calls.height == len(expected)
    for row, (op, size, rest) in zip(calls.to_dicts(), expected, strict=True):
        assert (row["op"], row["payload_bytes"]) == (op, size)
        assert {k: row[k] for k in ("redop", "root", "peer")} == {
            "redop": None, "root": None, "peer": None,
        } | rest  # fmt: skip
        assert row["comm"] == (HASH if version in {"2.30.7", "2.32.3"} else None)


def _insert(
    connection: sqlite3.Connection, payloads: list[tuple[int, int, bytes]], carrier: str
) -> None:
    have = {row[1] for row in connection.execute("PRAGMA table_info(NVTX_EVENTS)")}
    for column, kind in (("binaryData", "TEXT"), ("eventId", "INTEGER")):
        if column not in have:
            connection.execute(f"ALTER TABLE NVTX_EVENTS ADD COLUMN {column} {kind}")
    tid = 281_849_830_070_087
    add = (
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId, binaryData, "
        "jsonText, jsonTextId, eventId) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    connection.execute(add, (1, None, 75, "NCCL", tid, 1, None, None, None, None))
    tables: dict[int, list[dict[str, int]]] = {}
    for number, (start, schema, data) in enumerate(payloads):
        labelled = fields_of(schema, data)
        text, key, binary = None, None, None
        if carrier == "binary":
            binary = struct.pack("<4Q", 1, schema, len(data), 32) + data
        elif carrier == "json":
            text = json.dumps(labelled)
        elif carrier == "registered json":
            key = 900_000 + number
            connection.execute("INSERT INTO StringIds VALUES (?, ?)", (key, json.dumps(labelled)))
        else:
            tables.setdefault(schema, []).append({"eventId": number, **labelled})
        name = f"nccl{NAMES[schema - 0x1000000]}"
        connection.execute(add, (start, start + 10, 59, name, tid, 1, binary, text, key, number))
    for schema, rows in tables.items():
        columns = ", ".join(f'"{name}"' for name in rows[0])
        table = f"DYNAMIC_NVTXPAYLOAD_DATATYPE_{tid >> 24 << 24}_1_{schema}"
        connection.execute(f'CREATE TABLE "{table}" ({columns})')
        marks = ", ".join("?" * len(rows[0]))
        # SQLite's integers are signed: a hash of 64 bits is stored as its two's complement.
        values = [[v - (1 << 64) if v >= 1 << 63 else v for v in row.values()] for row in rows]
        connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
