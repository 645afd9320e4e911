-- imbalance: do ranks compute unequally, or exchange unequal amounts?
--
-- The compute ratio is a rank's own over the mean of the ranks that are there. What it exchanges is
-- compared inside each matched exchange, with the mean of its ranks.
--
-- param scope VARCHAR = 'capture': which windows of each rank: capture or step
-- column rank INTEGER [id]: global rank
-- column compute_ns BIGINT [ns] in 0..inf: union of compute intervals; NULL when unknown
-- column compute_ratio DOUBLE [1] in 0..inf: over the mean of ranks
-- column exchange_count BIGINT [1] in 0..inf: all_to_all operations
-- column send_bytes BIGINT [bytes] in 0..inf: what it sent in them; NULL when unknown
-- column send_ratio DOUBLE [1] in 0..inf: over the mean of the ranks of the same exchanges
-- column recv_bytes BIGINT [bytes] in 0..inf: what it received in them; NULL when unknown
-- column recv_ratio DOUBLE [1] in 0..inf: over the mean of the ranks of the same exchanges
-- key: rank
-- source: docs/metrics.md#imbalance
WITH timed AS (
    SELECT rank, CASE WHEN count(compute_ns) = count(*) THEN sum(compute_ns)::BIGINT END AS compute_ns
    FROM rank_timings
    WHERE scope = coalesce(getvariable('scope'), 'capture')
    GROUP BY rank
),
compared AS (
    SELECT *,
        CASE WHEN collective_id IS NOT NULL
            THEN avg(send_bytes) OVER (PARTITION BY collective_id) END AS send_mean,
        CASE WHEN collective_id IS NOT NULL
            THEN avg(recv_bytes) OVER (PARTITION BY collective_id) END AS recv_mean
    FROM nccl_kernels
    WHERE op = 'all_to_all'
),
exchanged AS (
    SELECT
        rank,
        count(*) AS exchange_count,
        CASE WHEN count(send_bytes) = count(*) THEN sum(send_bytes)::BIGINT END AS send_bytes,
        CASE WHEN count(recv_bytes) = count(*) THEN sum(recv_bytes)::BIGINT END AS recv_bytes,
        sum(send_bytes) FILTER (send_mean IS NOT NULL) / nullif(sum(send_mean), 0) AS send_ratio,
        sum(recv_bytes) FILTER (recv_mean IS NOT NULL) / nullif(sum(recv_mean), 0) AS recv_ratio
    FROM compared
    GROUP BY rank
)
SELECT
    t.rank,
    t.compute_ns,
    t.compute_ns / nullif(avg(t.compute_ns) OVER (), 0) AS compute_ratio,
    coalesce(e.exchange_count, 0) AS exchange_count,
    e.send_bytes,
    e.send_ratio,
    e.recv_bytes,
    e.recv_ratio
FROM timed t
LEFT JOIN exchanged e USING (rank)
ORDER BY t.rank
