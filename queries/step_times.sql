-- step_times: how long did each step of each rank take, and what was it made of?
--
-- window_ns = compute_ns + exposed_comm_ns + exposed_copy_ns + idle_ns, exactly.
--
-- column step BIGINT [id]: number of the step
-- column rank INTEGER [id]: global rank
-- column start_ns BIGINT [ns]: start of its first device operation
-- column end_ns BIGINT [ns]: end of its last device operation
-- column window_ns BIGINT [ns] in 0..inf: end_ns - start_ns
-- column compute_ns BIGINT [ns] in 0..inf: union of compute intervals
-- column exposed_comm_ns BIGINT [ns] in 0..inf: communication in which no compute ran
-- column exposed_copy_ns BIGINT [ns] in 0..inf: copies in which no kernel ran
-- column idle_ns BIGINT [ns] in 0..inf: time in which nothing ran on the device
-- column comm_ns BIGINT [ns] in 0..inf: union of communication intervals
-- column overlap_ratio DOUBLE [1] in 0..1: overlap_ns / comm_ns; NULL without communication
-- column reason VARCHAR []: reason code of why parts are unknown
-- key: step, rank
-- source: docs/metrics.md#time-accounting
SELECT
    step,
    rank,
    start_ns,
    end_ns,
    window_ns,
    compute_ns,
    exposed_comm_ns,
    exposed_copy_ns,
    idle_ns,
    comm_ns,
    overlap_ratio,
    reason
FROM rank_timings
WHERE scope = 'step'
ORDER BY step, rank
