"""Generates the pages that are made from the code: python docs/generate.py [--check]."""

import sys
from pathlib import Path

import click
import duckdb

from traceq.cli import cli
from traceq.commands.query import documentation
from traceq.queries import load_query, query_names
from traceq.runfile import schema_sql

HERE = Path(__file__).parent
_NOTE = "<!-- Made by docs/generate.py from {source}; change that instead. -->"

_NOT_JUDGED = (
    "| 2 | not judged: bad input, nothing to measure, an incomplete source, a gate on an unknown "
    "value, or wrong usage |"
)


def queries_page() -> str:
    """Returns: every canned query with what it takes and returns."""
    intro = [
        "# Canned queries",
        "",
        _NOTE.format(source="queries/*.sql"),
        "",
        "Each is one question on the tables of a run file ([data model](data-model.md)), run with",
        "`traceq query NAME RUN`, or read into the DuckDB shell as it is: parameters are variables",
        "with a default, so `SET VARIABLE k = 5;` before it changes one.",
        "",
    ]
    return (
        "\n".join(intro) + "\n\n".join(documentation(load_query(q)) for q in query_names()) + "\n"
    )


def data_model_page() -> str:
    """Returns: every table and column of a run file, from its comments."""
    lines = [
        "# The run file",
        "",
        _NOTE.format(source="traceq/model/schema.sql"),
        "",
        "One run is one DuckDB file, complete in itself: it can be mailed, attached, or opened in",
        "the DuckDB shell. It is built beside its name and renamed when whole, then never changed.",
        "Times are integer nanoseconds on the run's axis, whose zero is the earliest device start.",
        "NULL is unknown, never zero.",
    ]
    with duckdb.connect() as connection:
        connection.execute(schema_sql())
        tables = connection.execute(
            "SELECT table_name, comment FROM duckdb_tables() ORDER BY table_oid"
        ).fetchall()
        for table, comment in tables:
            lines += [
                "",
                f"## {table}",
                "",
                f"{comment}.",
                "",
                "| column | type | meaning |",
                "|---|---|---|",
            ]
            lines += [
                f"| `{name}` | {kind} | {text} |"
                for name, kind, text in connection.execute(
                    "SELECT column_name, data_type, comment FROM duckdb_columns() "
                    "WHERE table_name = ? ORDER BY column_index",
                    [table],
                ).fetchall()
            ]
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    """Returns: the help of every command."""
    lines = ["# Commands", "", _NOTE.format(source="the help of each command")]
    root = click.Context(cli, info_name="traceq", terminal_width=100, **cli.context_settings)
    lines += ["", "```text", cli.get_help(root).rstrip(), "```"]
    for name, command in cli.commands.items():
        context = click.Context(command, info_name=name, parent=root, terminal_width=100)
        lines += ["", f"## traceq {name}", "", "```text", command.get_help(context).rstrip(), "```"]
        for part, inner in getattr(command, "commands", {}).items():
            within = click.Context(inner, info_name=part, parent=context, terminal_width=100)
            lines += ["", "```text", inner.get_help(within).rstrip(), "```"]
    lines += [
        "",
        "## Exit status",
        "",
        "| status | meaning |",
        "|---|---|",
        "| 0 | judged and fine |",
        "| 1 | a gate failed; `bench`: a result was wrong |",
        _NOT_JUDGED,
        "| 130 | interrupted |",
        "",
        "`record` ends with the status of the command that it runs, or 2 when that made no trace.",
        "",
        "Data goes to stdout; errors, one line each, and progress go to stderr.",
    ]
    return "\n".join(lines) + "\n"


PAGES = {"queries.md": queries_page, "data-model.md": data_model_page, "cli.md": cli_page}


def main() -> None:
    """Writes the pages, or with --check ends in 1 when one is not up to date."""
    stale = []
    for name, page in PAGES.items():
        path = HERE / name
        text = page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    print("changed:" if stale else "up to date", *stale)
    sys.exit(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    main()
