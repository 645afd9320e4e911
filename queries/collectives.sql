-- collectives: when did each rank arrive at each collective, and how long did it wait?
--
-- Arrivals are on the run's aligned clocks; waiting and lateness need no clock.
--
-- param k INTEGER = 1000: how many operations to return, by the most that a collective waited
-- column collective_id BIGINT [id]: number of the collective, in order of its first start
-- column rank INTEGER [id]: global rank
-- column op VARCHAR []: operation
-- column comm_id VARCHAR []: communicator
-- column group_size INTEGER [1]: ranks of the communicator; NULL when unknown
-- column step BIGINT [id]: training step; NULL outside of steps
-- column size_bytes BIGINT [bytes]: size S; NULL when unknown
-- column match VARCHAR []: matched, partial or mismatched
-- column start_ns BIGINT [ns]: when the rank arrived
-- column end_ns BIGINT [ns]: when it left
-- column transfer_ns BIGINT [ns] in 0..inf: shortest duration over ranks; NULL when they disagree
-- column wait_ns BIGINT [ns] in 0..inf: own duration less transfer_ns
-- column late_ns BIGINT [ns]: how much later than its median peer it arrived, negative when earlier
-- column last_fraction DOUBLE [1] in 0..1: 1 for the last to arrive, shared among ties, else 0
-- column exposed_ns BIGINT [ns] in 0..inf: part in which no compute ran on the rank
-- column warmup BOOLEAN []: a first call that is kept out of aggregates
-- key: collective_id, rank
-- source: docs/metrics.md#matching
SELECT
    collective_id,
    rank,
    op,
    comm_id,
    group_size,
    step,
    bytes AS size_bytes,
    match,
    start_ns,
    end_ns,
    transfer_ns,
    wait_ns,
    late_ns,
    last_share AS last_fraction,
    exposed_ns,
    warmup
FROM nccl_kernels
WHERE collective_id IS NOT NULL
ORDER BY sum(wait_ns) OVER (PARTITION BY collective_id) DESC NULLS LAST, collective_id, rank
LIMIT coalesce(getvariable('k'), 1000)
