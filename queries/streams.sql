-- streams: what ran on each stream?
--
-- column rank INTEGER [id]: global rank
-- column stream BIGINT [id]: stream id inside the process
-- column context BIGINT [id]: context id inside the process
-- column role VARCHAR []: comm, compute, copy or mixed; NULL when kernel names are unknown
-- column op_count BIGINT [1] in 1..inf: device operations
-- column busy_ns BIGINT [ns] in 0..inf: union of all its intervals
-- column busy_fraction DOUBLE [1] in 0..1: busy_ns / capture window of the rank
-- column comm_ns BIGINT [ns] in 0..inf: union of its communication intervals
-- column compute_ns BIGINT [ns] in 0..inf: union of its compute intervals
-- column first_ns BIGINT [ns]: first start
-- column last_ns BIGINT [ns]: last end
-- key: rank, context, stream
-- source: docs/metrics.md#activity-classes
SELECT
    s.rank,
    s.stream,
    s.context,
    s.role,
    s.ops AS op_count,
    s.busy_ns,
    s.busy_ns / nullif(t.window_ns, 0) AS busy_fraction,
    s.comm_ns,
    s.compute_ns,
    s.first_ns,
    s.last_ns
FROM streams s
JOIN rank_timings t ON t.rank = s.rank AND t.scope = 'capture'
ORDER BY s.rank, s.busy_ns DESC, s.context, s.stream
