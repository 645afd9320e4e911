-- timeline: what ran on each stream in a window, at the detail that a screen can show?
--
-- An operation of at least a pixel is a row of its own. Shorter ones are summed by stream and pixel,
-- so that rows stay as few as pixels; the class and name are then those of the longest.
-- An operation that communicates says how long it waited for the last rank: that part comes first.
--
-- param from_ns BIGINT = 0: start of the window
-- param to_ns BIGINT = 9223372036854775807: end of the window
-- param pixel_ns BIGINT = 1: time of one pixel, at least 1
-- param first_rank INTEGER = 0: least rank to show
-- param last_rank INTEGER = 999999: greatest rank to show
-- column rank INTEGER [id]: global rank
-- column stream BIGINT [id]: stream id inside the process
-- column start_ns BIGINT [ns]: start of the operation, or of the first of several
-- column end_ns BIGINT [ns]: end of the operation, or of the last of several
-- column op_count BIGINT [1] in 1..inf: operations in this row
-- column busy_ns BIGINT [ns] in 0..inf: sum of their durations
-- column class VARCHAR []: compute, comm or copy; NULL when the kernel name is unknown
-- column name VARCHAR []: short name of the kernel
-- column step BIGINT [id]: training step; NULL outside of steps, or of several operations
-- column op VARCHAR []: communication operation; NULL for others, or of several operations
-- column size_bytes BIGINT [bytes]: size S; NULL when unknown
-- column collective_id BIGINT [id]: number of the collective; NULL when unmatched
-- column transfer_ns BIGINT [ns] in 0..inf: shortest duration over its ranks; NULL when unmatched
-- column wait_ns BIGINT [ns] in 0..inf: part in which it waited for a late rank; NULL when unmatched
-- key: rank, stream, start_ns, end_ns, op_count, name
-- source: docs/metrics.md#matching
WITH seen AS NOT MATERIALIZED (
    SELECT *, end_ns - start_ns AS length_ns
    FROM device_ops
    WHERE start_ns < coalesce(getvariable('to_ns'), 9223372036854775807)
        AND (end_ns > coalesce(getvariable('from_ns'), 0)
            OR start_ns >= coalesce(getvariable('from_ns'), 0))
        AND rank >= coalesce(getvariable('first_rank'), 0)
        AND rank <= coalesce(getvariable('last_rank'), 999999)
),
shown AS (
    SELECT
        rank, stream, start_ns, end_ns, 1::BIGINT AS op_count, length_ns AS busy_ns,
        name_id, class, step
    FROM seen
    WHERE length_ns >= coalesce(getvariable('pixel_ns'), 1)
    UNION ALL
    SELECT
        rank, stream, min(start_ns), max(end_ns), count(*), sum(length_ns)::BIGINT,
        arg_max(name_id, length_ns), arg_max_null(class, length_ns),
        CASE WHEN count(*) = 1 THEN min(step) END
    FROM seen
    WHERE length_ns < coalesce(getvariable('pixel_ns'), 1)
    GROUP BY rank, stream, start_ns // coalesce(getvariable('pixel_ns'), 1)
)
SELECT
    s.rank,
    s.stream,
    s.start_ns,
    s.end_ns,
    s.op_count,
    s.busy_ns,
    s.class,
    n.short_name AS name,
    s.step,
    k.op,
    k.bytes AS size_bytes,
    k.collective_id,
    k.transfer_ns,
    k.wait_ns
FROM shown s
JOIN kernel_names n USING (name_id)
LEFT JOIN nccl_kernels k
    ON s.op_count = 1
    AND k.rank = s.rank
    AND k.stream = s.stream
    AND k.start_ns = s.start_ns
    AND k.end_ns = s.end_ns
    AND k.name_id = s.name_id
ORDER BY s.rank, s.stream, s.start_ns, s.end_ns, n.short_name
