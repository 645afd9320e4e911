-- top_kernels: which kernels, copies and sets took most time, and how often did they run?
--
-- Times are sums of durations over all ranks and the whole capture; operations that ran at the same
-- time count each, so the shares can add up to more than the busy time.
--
-- param k INTEGER = 20: how many names to return
-- column name VARCHAR []: full name
-- column short_name VARCHAR []: name without template arguments and parameters
-- column class VARCHAR []: compute, comm or copy; NULL when the kernel name is unknown
-- column op VARCHAR []: communication operation, NULL for other classes
-- column rank_count BIGINT [1] in 1..inf: ranks that ran it
-- column call_count BIGINT [1] in 1..inf: times it ran
-- column total_ns BIGINT [ns] in 0..inf: sum of its durations
-- column total_fraction DOUBLE [1] in 0..1: total_ns / sum of all durations
-- column min_ns BIGINT [ns] in 0..inf: shortest duration
-- column p50_ns BIGINT [ns] in 0..inf: median duration, the lower of two
-- column max_ns BIGINT [ns] in 0..inf: longest duration
-- key: name, short_name, class
-- source: docs/metrics.md#activity-classes
SELECT
    n.name,
    n.short_name,
    t.class,
    CASE WHEN t.class = 'comm' THEN coalesce(n.op, 'unknown') END AS op,
    t.rank_count,
    t.call_count,
    t.total_ns,
    t.total_ns / nullif(sum(t.total_ns) OVER (), 0) AS total_fraction,
    t.min_ns,
    t.p50_ns,
    t.max_ns
FROM kernel_totals t
JOIN kernel_names n USING (name_id)
ORDER BY t.total_ns DESC, n.name, t.class
LIMIT coalesce(getvariable('k'), 20)
