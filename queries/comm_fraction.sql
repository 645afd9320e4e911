-- comm_fraction: how much of the time is communication, exposed and hidden, per rank and for the run?
--
-- Overlapping kernels of one rank count once. A ratio over several windows is a ratio of sums, never
-- a mean of ratios. A sum over windows of which one is unknown is unknown.
--
-- param scope VARCHAR = 'capture': which windows of each rank: capture or step
-- column rank INTEGER [id]: global rank; NULL in the row of the whole run
-- column windows BIGINT [1] in 1..inf: windows summed up
-- column window_ns BIGINT [ns] in 0..inf: their length
-- column compute_ns BIGINT [ns] in 0..inf: union of compute intervals
-- column comm_ns BIGINT [ns] in 0..inf: union of communication intervals
-- column overlap_ns BIGINT [ns] in 0..inf: time in which both ran
-- column exposed_comm_ns BIGINT [ns] in 0..inf: comm_ns - overlap_ns
-- column copy_ns BIGINT [ns] in 0..inf: union of copy and set intervals
-- column exposed_copy_ns BIGINT [ns] in 0..inf: copy time in which no kernel ran
-- column idle_ns BIGINT [ns] in 0..inf: time in which nothing ran on the device
-- column comm_fraction DOUBLE [1] in 0..1: comm_ns / window_ns
-- column exposed_comm_fraction DOUBLE [1] in 0..1: exposed_comm_ns / window_ns
-- column overlap_ratio DOUBLE [1] in 0..1: overlap_ns / comm_ns; NULL without communication
-- column reason VARCHAR []: reason code of why parts are unknown
-- key: rank
-- source: docs/metrics.md#time-accounting
WITH chosen AS (
    SELECT *
    FROM rank_timings
    WHERE scope = coalesce(getvariable('scope'), 'capture')
),
summed AS (
    SELECT
        rank,
        count(*) AS windows,
        sum(window_ns)::BIGINT AS window_ns,
        CASE WHEN count(compute_ns) = count(*) THEN sum(compute_ns)::BIGINT END AS compute_ns,
        CASE WHEN count(comm_ns) = count(*) THEN sum(comm_ns)::BIGINT END AS comm_ns,
        CASE WHEN count(overlap_ns) = count(*) THEN sum(overlap_ns)::BIGINT END AS overlap_ns,
        CASE WHEN count(exposed_comm_ns) = count(*) THEN sum(exposed_comm_ns)::BIGINT END AS exposed_comm_ns,
        CASE WHEN count(copy_ns) = count(*) THEN sum(copy_ns)::BIGINT END AS copy_ns,
        CASE WHEN count(exposed_copy_ns) = count(*) THEN sum(exposed_copy_ns)::BIGINT END AS exposed_copy_ns,
        CASE WHEN count(idle_ns) = count(*) THEN sum(idle_ns)::BIGINT END AS idle_ns,
        min(reason) AS reason
    FROM chosen
    GROUP BY GROUPING SETS ((rank), ())
    HAVING count(*) > 0
)
SELECT
    rank,
    windows,
    window_ns,
    compute_ns,
    comm_ns,
    overlap_ns,
    exposed_comm_ns,
    copy_ns,
    exposed_copy_ns,
    idle_ns,
    comm_ns / nullif(window_ns, 0) AS comm_fraction,
    exposed_comm_ns / nullif(window_ns, 0) AS exposed_comm_fraction,
    overlap_ns / nullif(comm_ns, 0) AS overlap_ratio,
    reason
FROM summed
ORDER BY rank NULLS LAST
