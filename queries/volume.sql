-- volume: how many bytes does each rank send per step, by operation?
--
-- Bytes are those of the ring model. Without steps the whole capture counts as one. An operation
-- whose sizes are not all known has none.
--
-- column rank INTEGER [id]: global rank
-- column op VARCHAR []: operation
-- column step_count BIGINT [1] in 1..inf: steps of the rank
-- column call_count BIGINT [1] in 1..inf: operations
-- column wire_bytes BIGINT [bytes] in 0..inf: bytes sent, over all these steps; NULL when unknown
-- column step_wire_bytes DOUBLE [bytes] in 0..inf: bytes sent per step; NULL when unknown
-- key: rank, op
-- source: docs/metrics.md#volume
WITH marked AS (
    SELECT rank, count(*) FILTER (scope = 'step') AS steps
    FROM rank_timings
    GROUP BY rank
)
SELECT
    k.rank,
    k.op,
    greatest(any_value(m.steps), 1) AS step_count,
    count(*) AS call_count,
    CASE WHEN count(k.wire_bytes) = count(*) THEN sum(k.wire_bytes)::BIGINT END AS wire_bytes,
    CASE WHEN count(k.wire_bytes) = count(*)
        THEN sum(k.wire_bytes) / greatest(any_value(m.steps), 1) END AS step_wire_bytes
FROM nccl_kernels k
JOIN marked m USING (rank)
WHERE k.step IS NOT NULL OR m.steps = 0
GROUP BY k.rank, k.op
ORDER BY k.rank, sum(k.wire_bytes) DESC NULLS LAST, k.op
