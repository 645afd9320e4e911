"""The charts, and the rows that each is drawn from."""

import math

import altair as alt
import polars as pl

from traceq.dashboards import palette
from traceq.model.collectives import Op, alpha_beta_ns, busbw_gbps
from traceq.render.words import PARTS, VERDICTS
from traceq.report import Row

Drawing = alt.Chart | alt.LayerChart | alt.FacetChart

MOST_RANKS = 64
MOST_STEPS = 300
MOST_COLLECTIVES = 120
_CURVE_POINTS = 40
_ROW_PX = 22
_SIZE_LABEL = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~g') + ' GiB' : "
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~g') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~g') + ' KiB' : "
    "format(datum.value, '~g') + ' B'"
)


def _part_colors() -> alt.Color:
    scale = alt.Scale(
        domain=[label for label, _ in PARTS], range=[palette.PARTS[name] for _, name in PARTS]
    )
    return alt.Color("part:N", scale=scale, title=None, legend=alt.Legend(orient="top"))


def part_rows(ranks: list[Row]) -> pl.DataFrame:
    """Returns: one row per (rank, part): time_ns [ns], share_percent [%]; unknown parts are absent.

    Of more ranks than a chart can show, those with most exposed communication.
    """
    known = [row for row in ranks if row["idle_ns"] is not None and row["window_ns"]]
    most = sorted(known, key=lambda row: -row["exposed_comm_ns"])[:MOST_RANKS]
    rows = [
        (row["rank"], label, place, row[name], 100 * row[name] / row["window_ns"])
        for row in sorted(most, key=lambda row: row["rank"])
        for place, (label, name) in enumerate(PARTS)
    ]
    schema = {"rank": pl.Int64, "part": pl.String, "place": pl.Int64, "time_ns": pl.Int64,
              "share_percent": pl.Float64}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def parts_of_ranks(frame: pl.DataFrame) -> Drawing:
    """Returns: a bar per rank, made of its parts."""
    drawn: Drawing = (
        alt.Chart(frame, height=alt.Step(_ROW_PX))
        .mark_bar()
        .encode(
            y=alt.Y("rank:O", title="rank", axis=alt.Axis(labelOverlap=False)),
            x=alt.X("share_percent:Q", title="share of the window [%]",
                    scale=alt.Scale(domain=[0, 100], nice=False)),
            color=_part_colors(),
            order=alt.Order("place:Q"),
            tooltip=["rank", "part", alt.Tooltip("share_percent", format=".1f"), "time_ns"],
        )
    )  # fmt: skip
    return drawn


def step_rows(steps: list[Row]) -> pl.DataFrame:
    """Returns: one row per (step, part): mean_ms over ranks, and slowest_ms of the step [ms].

    Only the first steps that a chart can show; steps with a part that is unknown on some rank are
    absent.
    """
    names = [name for _, name in PARTS]
    frame = pl.DataFrame(steps, infer_schema_length=None).select("step", "window_ns", *names)
    if frame["idle_ns"].dtype == pl.Null:
        frame = frame.clear()
    frame = (
        frame.with_columns(pl.col("window_ns", *names).cast(pl.Int64))
        .filter(pl.all_horizontal(pl.col("window_ns", *names).is_not_null()).all().over("step"))
        .group_by("step")
        .agg(pl.col("window_ns").max().alias("slowest_ns"), pl.col(*names).mean())
        .sort("step")
        .head(MOST_STEPS)
        .unpivot(names, index=["step", "slowest_ns"], variable_name="part", value_name="mean_ns")
    )
    labels = {name: label for label, name in PARTS}
    places = {name: place for place, name in enumerate(names)}
    return frame.select(
        "step",
        pl.col("part").replace_strict(labels, return_dtype=pl.String),
        pl.col("part").replace_strict(places, return_dtype=pl.Int64).alias("place"),
        (pl.col("mean_ns") / 1e6).alias("mean_ms"),
        (pl.col("slowest_ns") / 1e6).alias("slowest_ms"),
    ).sort("step", "place")


def parts_of_steps(frame: pl.DataFrame) -> Drawing:
    """Returns: a bar per step, made of its parts, under the slowest rank's time."""
    chart = alt.Chart(frame, height=280)
    bars = chart.mark_bar().encode(
        x=alt.X("step:O", title="step", axis=alt.Axis(labelOverlap=True)),
        y=alt.Y("mean_ms:Q", title="time [ms]"),
        color=_part_colors(),
        order=alt.Order("place:Q"),
        tooltip=["step", "part", alt.Tooltip("mean_ms", format=".3f")],
    )
    line = chart.mark_line(color=palette.NEUTRAL, point=alt.OverlayMarkDef(color=palette.NEUTRAL))
    slowest = line.encode(x="step:O", y="max(slowest_ms):Q", tooltip=["step", "slowest_ms"])
    return alt.layer(bars, slowest)


def waiting_rows(collectives: pl.DataFrame) -> pl.DataFrame:
    """Returns: one row per (collective, rank) whose waiting is known: wait_ms [ms] and what it was.

    Of more collectives than a chart can show, those in which a rank waited longest.
    """
    known = collectives.drop_nulls("wait_ns")
    most = (
        known.group_by("collective_id")
        .agg(pl.col("wait_ns").max(), pl.col("start_ns").min().alias("first_ns"))
        .sort("wait_ns", "collective_id", descending=[True, False])
        .head(MOST_COLLECTIVES)
    )
    return (
        known.join(most.select("collective_id", "first_ns"), on="collective_id")
        .select(
            *("collective_id", "rank", "op", "step", "size_bytes", "wait_ns", "late_ns"),
            (pl.col("wait_ns") / 1e6).alias("wait_ms"),
        )
        .sort("collective_id", "rank")
    )


def waiting_of_ranks(frame: pl.DataFrame) -> Drawing:
    """Returns: rank by collective; the brighter, the longer the rank waited."""
    drawn: Drawing = (
        alt.Chart(frame, height=alt.Step(_ROW_PX))
        .mark_rect()
        .encode(
            x=alt.X("collective_id:O", title="collective, in order of time",
                    axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("rank:O", title="rank", axis=alt.Axis(labelOverlap=False)),
            color=alt.Color("wait_ms:Q", title="waiting [ms]", scale=alt.Scale(scheme="cividis")),
            tooltip=["rank", "collective_id", "op", "step", "size_bytes",
                     alt.Tooltip("wait_ms", format=".3f")],
        )
    )  # fmt: skip
    return drawn


def lateness_rows(stragglers: list[Row]) -> pl.DataFrame:
    """Returns: one row per rank: late_ms, imposed_ms [ms], verdict, cause."""
    rows = [
        (row["rank"], row["lateness_ns"] / 1e6, row["imposed_wait_ns"] / 1e6,
         VERDICTS[row["straggler"]], row["cause"])
        for row in sorted(stragglers, key=lambda row: -row["lateness_ns"])[:MOST_RANKS]
    ]  # fmt: skip
    schema = {"rank": pl.Int64, "late_ms": pl.Float64, "imposed_ms": pl.Float64,
              "verdict": pl.String, "cause": pl.String}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row").sort("rank")


def lateness_of_ranks(frame: pl.DataFrame) -> Drawing:
    """Returns: a bar per rank, as long as it was late, coloured by verdict."""
    colors = [palette.VERDICTS[verdict] for verdict in VERDICTS]
    scale = alt.Scale(domain=list(VERDICTS.values()), range=colors)
    drawn: Drawing = (
        alt.Chart(frame, height=alt.Step(_ROW_PX))
        .mark_bar()
        .encode(
            y=alt.Y("rank:O", title="rank", axis=alt.Axis(labelOverlap=False)),
            x=alt.X("late_ms:Q", title="late, in sum [ms]"),
            color=alt.Color("verdict:N", scale=scale, title=None,
                            legend=alt.Legend(orient="top")),
            tooltip=["rank", "verdict", "cause", alt.Tooltip("late_ms", format=".3f"),
                     alt.Tooltip("imposed_ms", format=".3f")],
        )
    )  # fmt: skip
    return drawn


def bandwidth_rows(collectives: list[Row]) -> pl.DataFrame:
    """Returns: one row per kind of collective with a bandwidth: kind, size_bytes, rates [GB/s]."""
    rows = [
        (_kind(row), row["op"], row["link"], row["bytes_p50"], row["busbw_gbps"], row["peak_gbps"],
         row["peak_source"], row["efficiency"], row["quality"], row["count"])
        for row in collectives
        if row["busbw_gbps"] is not None and row["bytes_p50"]
    ]  # fmt: skip
    schema = {"kind": pl.String, "op": pl.String, "link": pl.String, "size_bytes": pl.Int64,
              "busbw_gbps": pl.Float64, "peak_gbps": pl.Float64, "peak_source": pl.String,
              "efficiency": pl.Float64, "quality": pl.String, "call_count": pl.Int64}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def _kind(row: Row) -> str:
    link = "" if row["link"] == "unknown" else f", {row['link']}"
    return f"{row['op']} ({row['group_size']} ranks{link})"


def model_rows(latency: list[Row]) -> pl.DataFrame:
    """Returns: points of each fitted curve: kind, size_bytes [bytes], busbw_gbps [GB/s]."""
    sizes: dict[tuple[str, Op, int, float, float], list[int]] = {}
    for row in latency:
        if row["alpha_us"] is not None and row["beta_gbps"] is not None:
            n = row["group_size"]
            fit = (_kind(row), Op(row["op"]), n, row["alpha_us"], row["beta_gbps"])
            sizes.setdefault(fit, []).append(row["bucket_bytes"])
    points = []
    for (kind, op, n, alpha_us, beta_gbps), buckets in sizes.items():
        low, high = min(buckets), 2 * max(buckets)
        for number in range(_CURVE_POINTS + 1):
            size = round(low * (high / low) ** (number / _CURVE_POINTS))
            parts = alpha_beta_ns(op, size, n, alpha_us=alpha_us, beta_gbps=beta_gbps)
            rate = parts and busbw_gbps(op, size, n, round(sum(parts)))
            if rate:
                points.append((kind, size, rate))
    schema = {"kind": pl.String, "size_bytes": pl.Int64, "busbw_gbps": pl.Float64}
    return pl.DataFrame(points, schema=schema, orient="row")


def bandwidth_of_sizes(frame: pl.DataFrame, model: pl.DataFrame) -> Drawing:
    """Returns: bus bandwidth against size, with the peaks (dashed) and the fitted curves."""
    scale = alt.Scale(domain=sorted(frame["kind"].unique()), range=list(palette.SERIES))
    color = alt.Color("kind:N", title=None, scale=scale,
                      legend=alt.Legend(orient="top", columns=3, labelLimit=300))  # fmt: skip
    ticks = _powers_of_two(frame["size_bytes"].to_list() + model["size_bytes"].to_list())
    axis = alt.Axis(labelExpr=_SIZE_LABEL, labelOverlap=True, values=ticks)
    reach = alt.Scale(type="log", base=2, nice=False, domain=[ticks[0], ticks[-1]])
    x = alt.X("size_bytes:Q", title="size S", scale=reach, axis=axis)
    y = alt.Y("busbw_gbps:Q", title="bus bandwidth [GB/s]", scale=alt.Scale(zero=True))
    points = (
        alt.Chart(frame)
        .mark_point(filled=True, size=110)
        .encode(
            opacity=alt.condition("datum.quality === 'measured'", alt.value(0.9), alt.value(0.35)),
            x=x, y=y, color=color, shape=alt.Shape("kind:N", title=None),
            tooltip=["kind", "size_bytes", alt.Tooltip("busbw_gbps", format=".4g"), "peak_gbps",
                     "peak_source", "quality", "call_count"],
        )
    )  # fmt: skip
    layers: list[alt.Chart] = [points]
    peaks = frame.drop_nulls("peak_gbps").unique(["kind", "peak_gbps"], maintain_order=True)
    if not peaks.is_empty():
        rule = alt.Chart(peaks).mark_rule(strokeDash=[6, 4], strokeWidth=1.5)
        layers.append(rule.encode(y="peak_gbps:Q", color=color, tooltip=["kind", "peak_gbps"]))
    if not model.is_empty():
        layers.append(alt.Chart(model).mark_line(opacity=0.7).encode(x=x, y=y, color=color))
    return alt.layer(*layers).properties(height=340)


def _powers_of_two(sizes: list[int]) -> list[int]:
    """Returns: the powers of two from below the least size to above the greatest [bytes]."""
    low = math.floor(math.log2(max(1, min(sizes)))) - 1
    high = math.ceil(math.log2(max(2, *sizes))) + 1
    return [2**power for power in range(max(0, low), high + 1)]
