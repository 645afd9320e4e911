-- busbw: what bandwidth did each kind of collective reach, and how much of its link's peak is that?
--
-- One row per operation, group size, link and power of two of the size S. The time is the transfer,
-- without waiting for a late rank; the bandwidth is that of the collective with the median time per
-- byte. Where ranks are missing the true transfer may be shorter, so the bandwidth is a lower bound. A
-- rooted operation, whose ranks leave at different times, takes longer than its shortest kernel, so its
-- bandwidth is an upper bound. The peak is the user's own, else a baseline of the same operation and
-- ranks on as many hosts, between its sizes around S or up to four times its largest, else that of the GPU model. The share can
-- exceed 1: reduction inside the switch sends less than a ring would.
--
-- param warmup INTEGER = 0: 1 counts warm-up calls too
-- column op VARCHAR []: operation
-- column group_size INTEGER [1]: ranks of the communicator; NULL when unknown
-- column link VARCHAR []: slowest link it must use: intra, inter or unknown
-- column bucket_bytes BIGINT [bytes]: largest power of two not above S; NULL when S is unknown
-- column call_count BIGINT [1] in 1..inf: operations, over all ranks
-- column collective_count BIGINT [1] in 0..inf: collectives they are matched to
-- column dtype VARCHAR []: element type; NULL when unknown or several
-- column bytes_p50 BIGINT [bytes] in 0..inf: median S, of an uneven exchange the largest of its ranks
-- column duration_ns_min BIGINT [ns]: shortest kernel
-- column duration_ns_p50 BIGINT [ns]: median kernel, with waiting
-- column duration_ns_p95 BIGINT [ns]: 95th percentile, with waiting
-- column duration_ns_max BIGINT [ns]: longest kernel, with waiting
-- column transfer_ns_p50 BIGINT [ns]: median transfer
-- column transfer_ns_p95 BIGINT [ns]: 95th percentile of the transfer
-- column transfer_ns_max BIGINT [ns]: longest transfer
-- column wait_ns BIGINT [ns] in 0..inf: sum of waiting over ranks
-- column exposed_ns BIGINT [ns] in 0..inf: sum over ranks of the time in which no compute ran
-- column algbw_gbps DOUBLE [GB/s] in 0..inf: S / transfer, of the medians
-- column busbw_gbps DOUBLE [GB/s] in 0..inf: algbw times the bus factor of the operation
-- column peak_gbps DOUBLE [GB/s] in 0..inf: peak of the link per GPU and direction
-- column peak_source VARCHAR []: user, baseline, or the kind of link
-- column efficiency DOUBLE [1] in 0..inf: busbw / peak; may exceed 1
-- column quality VARCHAR []: measured, partial_ranks (a lower bound), rooted (an upper bound), or why it is unknown
-- key: op, group_size, link, bucket_bytes
-- source: docs/metrics.md#bandwidth
-- Of a collective one row stands for all of its ranks; a call that is matched to none stands alone.
WITH calls AS (
    SELECT *, end_ns - start_ns AS duration_ns, coalesce(collective_id, -1 - rowid) AS unit
    FROM nccl_kernels
    WHERE coalesce(getvariable('warmup'), 0) = 1 OR NOT coalesce(warmup, false)
),
units AS (
    SELECT
        unit,
        arg_min(op, rank) AS op,
        arg_min(group_size, rank) AS group_size,
        arg_min(link, rank) AS link,
        max(bytes) AS size_bytes,
        1::BIGINT << floor(log2(nullif(max(bytes), 0)))::BIGINT AS bucket_bytes,
        unit >= 0 AND min(bytes) <> max(bytes) AS uneven,
        max(transfer_ns) AS transfer_ns,
        bool_or(match = 'matched') AS whole
    FROM calls
    GROUP BY unit
),
-- Where some collectives of a kind are whole, only these speak.
heard AS (
    SELECT *, transfer_ns IS NOT NULL AND (whole OR NOT bool_or(whole) OVER kind) AS speaks
    FROM units
    WINDOW kind AS (PARTITION BY op, group_size, link, bucket_bytes)
),
spoken AS (
    SELECT
        op,
        group_size,
        link,
        bucket_bytes,
        quantile_disc(size_bytes, 0.5) AS bytes_p50,
        quantile_disc(transfer_ns, 0.5) AS transfer_ns_p50,
        quantile_disc(transfer_ns, 0.95) AS transfer_ns_p95,
        max(transfer_ns) AS transfer_ns_max,
        quantile_disc(transfer_ns / nullif(size_bytes, 0), 0.5) FILTER (NOT uneven) AS ns_per_byte
    FROM heard
    WHERE speaks
    GROUP BY op, group_size, link, bucket_bytes
),
called AS (
    SELECT
        k.op,
        k.group_size,
        k.link,
        u.bucket_bytes,
        count(*) AS call_count,
        count(DISTINCT k.collective_id) AS collective_count,
        CASE WHEN min(k.dtype) = max(k.dtype) THEN min(k.dtype) END AS dtype,
        quantile_disc(u.size_bytes, 0.5) AS bytes_p50,
        min(k.duration_ns) AS duration_ns_min,
        quantile_disc(k.duration_ns, 0.5) AS duration_ns_p50,
        quantile_disc(k.duration_ns, 0.95) AS duration_ns_p95,
        max(k.duration_ns) AS duration_ns_max,
        sum(k.wait_ns)::BIGINT AS wait_ns,
        sum(k.exposed_ns)::BIGINT AS exposed_ns,
        any_value(k.bus_factor) AS bus_factor,
        max(c.hosts) AS hosts,
        min(c.peak_gbps) AS link_peak_gbps,
        arg_min(c.peak_source, c.peak_gbps) AS link_peak_source,
        bool_or(u.uneven) AS uneven,
        bool_or(u.whole) AS whole
    FROM calls k
    JOIN units u USING (unit)
    LEFT JOIN communicators c USING (comm_id)
    GROUP BY k.op, k.group_size, k.link, u.bucket_bytes
),
grouped AS (
    SELECT c.* EXCLUDE (bytes_p50), coalesce(s.bytes_p50, c.bytes_p50) AS bytes_p50,
        s.transfer_ns_p50, s.transfer_ns_p95, s.transfer_ns_max, s.ns_per_byte
    FROM called c
    LEFT JOIN spoken s ON s.op = c.op AND s.group_size IS NOT DISTINCT FROM c.group_size
        AND s.link = c.link AND s.bucket_bytes IS NOT DISTINCT FROM c.bucket_bytes
),
rated AS (
    SELECT *,
        CASE WHEN NOT uneven AND group_size > 1 AND ns_per_byte > 0 THEN 1 / ns_per_byte END AS algbw
    FROM grouped
),
-- A baseline of one host says nothing of links between hosts, nor the other way round. Its time at S
-- lies between those of the sizes around it; beyond its largest size its bandwidth stays.
measured AS (
    SELECT r.op, r.group_size, r.link, r.bucket_bytes, r.bytes_p50, b.bytes, b.busbw_gbps,
        b.bytes / b.algbw_gbps AS time_ns, b.busbw_gbps / b.algbw_gbps AS factor
    FROM rated r
    JOIN baselines b ON b.op = r.op AND b.group_size = r.group_size
    WHERE r.bytes_p50 > 0 AND b.algbw_gbps > 0
        AND (b.nodes IS NULL OR r.link = 'unknown' OR (r.link = 'intra' AND b.nodes = 1)
            OR (r.link = 'inter' AND b.nodes > 1 AND b.nodes = coalesce(r.hosts, b.nodes)))
),
around AS (
    SELECT op, group_size, link, bucket_bytes, any_value(bytes_p50) AS s, any_value(factor) AS factor,
        max(bytes) FILTER (bytes <= bytes_p50) AS low,
        arg_max(time_ns, bytes) FILTER (bytes <= bytes_p50) AS low_ns,
        arg_max(busbw_gbps, bytes) FILTER (bytes <= bytes_p50) AS low_gbps,
        min(bytes) FILTER (bytes >= bytes_p50) AS high,
        arg_min(time_ns, bytes) FILTER (bytes >= bytes_p50) AS high_ns
    FROM measured
    GROUP BY op, group_size, link, bucket_bytes
),
near AS (
    SELECT op, group_size, link, bucket_bytes,
        CASE
            WHEN low = high THEN low_gbps
            WHEN high <= 16 * low
                THEN factor * s / (low_ns + (high_ns - low_ns) * (s - low) / (high - low))
            WHEN high IS NULL AND s <= 4 * low THEN low_gbps
        END AS baseline_gbps
    FROM around
),
peaked AS (
    SELECT r.*,
        CASE WHEN link_peak_source = 'user' THEN link_peak_gbps
            ELSE coalesce(baseline_gbps, link_peak_gbps) END AS peak,
        CASE WHEN link_peak_source = 'user' OR baseline_gbps IS NULL THEN link_peak_source
            ELSE 'baseline' END AS peak_source
    FROM rated r
    LEFT JOIN near n ON n.op = r.op AND n.group_size = r.group_size AND n.link = r.link
        AND n.bucket_bytes = r.bucket_bytes
)
SELECT
    op,
    group_size,
    link,
    bucket_bytes,
    call_count,
    collective_count,
    dtype,
    bytes_p50,
    duration_ns_min,
    duration_ns_p50,
    duration_ns_p95,
    duration_ns_max,
    transfer_ns_p50,
    transfer_ns_p95,
    transfer_ns_max,
    wait_ns,
    exposed_ns,
    algbw AS algbw_gbps,
    algbw * bus_factor AS busbw_gbps,
    peak AS peak_gbps,
    peak_source,
    algbw * bus_factor / peak AS efficiency,
    CASE
        WHEN bytes_p50 IS NULL THEN 'size_unknown'
        WHEN uneven THEN 'uneven'
        WHEN transfer_ns_p50 IS NULL THEN 'unmatched'
        WHEN group_size IS NULL THEN 'group_size_unknown'
        WHEN group_size = 1 THEN 'single_rank'
        WHEN op IN ('broadcast', 'reduce', 'gather', 'scatter') THEN 'rooted'
        WHEN whole THEN 'measured'
        ELSE 'partial_ranks'
    END AS quality
FROM peaked
ORDER BY duration_ns_p50 * call_count DESC, op, bucket_bytes, group_size, link
