-- top_exposed: which communication costs most exposed time, and what could not hide it?
--
-- Exposed is the part of an operation in which no compute ran on its rank. It ended when the compute
-- that came next could start, and began when the compute before it had ended.
--
-- param k INTEGER = 20: how many operations to return
-- column rank INTEGER [id]: global rank
-- column start_ns BIGINT [ns]: start of the operation
-- column stream BIGINT [id]: stream id inside the process
-- column name VARCHAR []: short name of its kernel
-- column op VARCHAR []: operation
-- column size_bytes BIGINT [bytes]: size S; NULL when unknown
-- column step BIGINT [id]: training step; NULL outside of steps
-- column collective_id BIGINT [id]: number of the collective; NULL when unmatched
-- column duration_ns BIGINT [ns] in 0..inf: length of the operation
-- column exposed_ns BIGINT [ns] in 0..inf: part in which no compute ran
-- column wait_ns BIGINT [ns] in 0..inf: part in which it waited for a late rank; NULL when unmatched
-- column before_name VARCHAR []: compute that began last before it
-- column after_name VARCHAR []: compute that began next after its end
-- key: rank, start_ns, stream, name
-- source: docs/metrics.md#time-accounting
WITH worst AS (
    SELECT *
    FROM nccl_kernels
    WHERE exposed_ns > 0
    ORDER BY exposed_ns DESC, rank, start_ns, stream
    LIMIT coalesce(getvariable('k'), 20)
),
compute AS NOT MATERIALIZED (
    SELECT rank, start_ns, name_id
    FROM device_ops
    WHERE class = 'compute'
)
SELECT
    w.rank,
    w.start_ns,
    w.stream,
    n.short_name AS name,
    w.op,
    w.bytes AS size_bytes,
    w.step,
    w.collective_id,
    w.end_ns - w.start_ns AS duration_ns,
    w.exposed_ns,
    w.wait_ns,
    nb.short_name AS before_name,
    na.short_name AS after_name
FROM worst w
JOIN kernel_names n ON n.name_id = w.name_id
ASOF LEFT JOIN compute b ON b.rank = w.rank AND w.start_ns > b.start_ns
ASOF LEFT JOIN compute a ON a.rank = w.rank AND w.end_ns <= a.start_ns
LEFT JOIN kernel_names nb ON nb.name_id = b.name_id
LEFT JOIN kernel_names na ON na.name_id = a.name_id
ORDER BY w.exposed_ns DESC, w.rank, w.start_ns, w.stream
