"""The charts of a comparison, and the rows that each is drawn from."""

from collections.abc import Mapping

import altair as alt
import polars as pl

from traceq.dashboards import palette
from traceq.dashboards.charts import Drawing
from traceq.report import Row

_NOT_SURE = ("inconclusive", "no difference")


def scaling_rows(runs: list[Row]) -> pl.DataFrame:
    """Returns: one row per run whose step time and size are known: ranks [1], step_ms, ideal_ms."""
    known = [run for run in runs if run["step_time_ns"] and run["world_size"]]
    rows = [
        (run["name"], run["world_size"], run["step_time_ns"] / 1e6,
         None if run["efficiency"] is None else run["step_time_ns"] * run["efficiency"] / 1e6,
         run["efficiency"])
        for run in known
    ]  # fmt: skip
    schema = {"run": pl.String, "ranks": pl.Int64, "step_ms": pl.Float64, "ideal_ms": pl.Float64,
              "efficiency": pl.Float64}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row").sort("ranks", "run")


def scaling_of_runs(frame: pl.DataFrame) -> Drawing:
    """Returns: step time against ranks, with what it would be if no efficiency were lost."""
    ranks = sorted(frame["ranks"].unique())
    x = alt.X("ranks:Q", title="ranks", scale=alt.Scale(type="log", base=2, nice=True),
              axis=alt.Axis(values=ranks, format="d"))  # fmt: skip
    y = alt.Y("step_ms:Q", title="step time [ms]", scale=alt.Scale(zero=True))
    tooltip = ["run", "ranks", alt.Tooltip("step_ms", format=".3f"), "efficiency"]
    chart = alt.Chart(frame)
    line = chart.mark_line(color=palette.NEUTRAL).encode(x=x, y="mean(step_ms):Q")
    ideal = chart.mark_line(color=palette.IDLE, strokeDash=[6, 4]).encode(x=x, y="mean(ideal_ms):Q")
    points = chart.mark_point(color=palette.NEUTRAL, filled=True, size=110).encode(
        x=x, y=y, tooltip=tooltip
    )
    return alt.layer(ideal, line, points).properties(height=280)


def waterfall_rows(fall: Row, names: Mapping[str, str]) -> pl.DataFrame:
    """Returns: one row per part of a difference, and its sum: from_ms, to_ms [ms], kind."""
    rows, at = [], 0.0
    for part in fall["parts"]:
        change = part["difference_ns"] / 1e6
        kind = "longer" if change > 0 else "shorter"
        sure = part["verdict"] not in _NOT_SURE
        rows.append((names[part["part"]], at, at + change, change, kind, sure))
        at += change
    total = fall["difference_ns"] / 1e6
    sure = fall["verdict"] not in _NOT_SURE
    rows.append(("in all", 0.0, total, total, "in all", sure))
    schema = {"part": pl.String, "from_ms": pl.Float64, "to_ms": pl.Float64,
              "difference_ms": pl.Float64, "kind": pl.String, "sure": pl.Boolean}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def waterfall_of_parts(frame: pl.DataFrame) -> Drawing:
    """Returns: a bar per part, each where the one before ended."""
    colors = {
        "longer": palette.EXPOSED_COMM, "shorter": palette.COMPUTE, "in all": palette.NEUTRAL,
    }  # fmt: skip
    drawn: Drawing = (
        alt.Chart(frame, height=alt.Step(26))
        .mark_bar()
        .encode(
            y=alt.Y("part:N", title=None, sort=None, axis=alt.Axis(labelLimit=220)),
            x=alt.X("from_ms:Q", title="difference of the step time [ms]"),
            x2="to_ms:Q",
            color=alt.Color("kind:N", title=None, legend=alt.Legend(orient="top"),
                            scale=alt.Scale(domain=list(colors), range=list(colors.values()))),
            opacity=alt.Opacity("sure:N", legend=None,
                                scale=alt.Scale(domain=[True, False], range=[1, 0.4])),
            tooltip=["part", alt.Tooltip("difference_ms", format="+.3f"), "sure"],
        )
    )  # fmt: skip
    return drawn
