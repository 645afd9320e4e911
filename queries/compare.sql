-- compare: what does a run bring to a comparison: how long was each step, and what was it made of?
--
-- Times of parts are sums over the ranks that took the step: window_ns = compute_ns + exposed_comm_ns +
-- exposed_copy_ns + idle_ns. Exposed communication is exposed transfer and exposed waiting for late
-- ranks, where collectives are matched. A sum of which a part is unknown is unknown.
--
-- column step BIGINT [id]: number of the step
-- column rank_count BIGINT [1] in 1..inf: ranks that took it
-- column step_time_ns BIGINT [ns] in 0..inf: of the slowest rank
-- column window_ns BIGINT [ns] in 0..inf: sum over ranks
-- column compute_ns BIGINT [ns] in 0..inf: union of compute intervals
-- column exposed_comm_ns BIGINT [ns] in 0..inf: communication in which no compute ran
-- column exposed_transfer_ns BIGINT [ns] in 0..inf: the part of it that transferred; NULL where collectives are not matched
-- column exposed_wait_ns BIGINT [ns] in 0..inf: the part of it that waited for a late rank; NULL likewise
-- column exposed_copy_ns BIGINT [ns] in 0..inf: copies in which no kernel ran
-- column idle_ns BIGINT [ns] in 0..inf: time in which nothing ran on the device
-- key: step
-- source: docs/metrics.md#comparing-runs
WITH parts AS (
    SELECT *,
        CASE WHEN comm_ns = 0 THEN 0 ELSE transfer_comm_ns - transfer_overlap_ns END AS transfer_ns
    FROM rank_timings
    WHERE scope = 'step'
)
SELECT
    step,
    count(*) AS rank_count,
    max(window_ns) AS step_time_ns,
    sum(window_ns)::BIGINT AS window_ns,
    CASE WHEN count(compute_ns) = count(*) THEN sum(compute_ns)::BIGINT END AS compute_ns,
    CASE WHEN count(exposed_comm_ns) = count(*) THEN sum(exposed_comm_ns)::BIGINT END AS exposed_comm_ns,
    CASE WHEN count(transfer_ns) = count(*) THEN sum(transfer_ns)::BIGINT END AS exposed_transfer_ns,
    CASE WHEN count(transfer_ns) = count(*) THEN sum(exposed_comm_ns - transfer_ns)::BIGINT END
        AS exposed_wait_ns,
    CASE WHEN count(exposed_copy_ns) = count(*) THEN sum(exposed_copy_ns)::BIGINT END AS exposed_copy_ns,
    CASE WHEN count(idle_ns) = count(*) THEN sum(idle_ns)::BIGINT END AS idle_ns
FROM parts
GROUP BY step
ORDER BY step
