-- idle_gaps: when was a device idle longest, and was the host late or the work not ready?
--
-- A gap lies between the end of everything that ran before and the next start on the same rank. The
-- host was late when the call that launched the next operation began inside the gap; the operation
-- was queued when its call came before the gap, so it waited for other work, for a copy or an event.
-- A CUDA graph that was traced as a whole is not in the operations, so its time shows as a gap.
--
-- param k INTEGER = 20: how many gaps to return
-- column rank INTEGER [id]: global rank
-- column start_ns BIGINT [ns]: end of the last operation before the gap
-- column end_ns BIGINT [ns]: start of the next operation
-- column idle_ns BIGINT [ns] in 1..inf: length of the gap
-- column step BIGINT [id]: step that launched the next operation; NULL outside of steps
-- column next_stream BIGINT [id]: stream of the next operation
-- column next_name VARCHAR []: short name of the next operation
-- column next_class VARCHAR []: class of the next operation
-- column launch_ns BIGINT [ns]: start of the call that launched it; NULL when not captured
-- column host VARCHAR []: late, queued, or unknown when the call was not captured
-- column late_ns BIGINT [ns] in 0..inf: part of the gap that passed before the call began; NULL when unknown
-- key: rank, start_ns
-- source: docs/metrics.md#time-accounting
WITH ordered AS (
    SELECT
        rank,
        start_ns,
        step,
        stream,
        name_id,
        class,
        launch_ns,
        max(end_ns) OVER (
            PARTITION BY rank ORDER BY start_ns, end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS idle_from_ns
    FROM device_ops
),
gaps AS (
    SELECT *
    FROM ordered
    WHERE start_ns > idle_from_ns
    ORDER BY start_ns - idle_from_ns DESC, rank, start_ns
    LIMIT coalesce(getvariable('k'), 20)
)
SELECT
    g.rank,
    g.idle_from_ns AS start_ns,
    g.start_ns AS end_ns,
    g.start_ns - g.idle_from_ns AS idle_ns,
    g.step,
    g.stream AS next_stream,
    n.short_name AS next_name,
    g.class AS next_class,
    g.launch_ns,
    CASE
        WHEN g.launch_ns IS NULL THEN 'unknown'
        WHEN g.launch_ns > g.idle_from_ns THEN 'late'
        ELSE 'queued'
    END AS host,
    CASE WHEN g.launch_ns IS NOT NULL THEN greatest(g.launch_ns - g.idle_from_ns, 0) END AS late_ns
FROM gaps g
JOIN kernel_names n USING (name_id)
ORDER BY idle_ns DESC, g.rank, g.start_ns
