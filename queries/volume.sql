-- volume: how many bytes does each rank send per step, by operation?
--
-- Bytes are those of the ring model. Without steps the whole capture counts as one. A row whose
-- sizes are not all known has none.
--
-- column rank INTEGER [id]: global rank
-- column op VARCHAR []: operation
-- column step_count BIGINT [1] in 1..inf: steps it ran in
-- column call_count BIGINT [1] in 1..inf: operations
-- column wire_bytes BIGINT [bytes] in 0..inf: bytes sent, over all these steps; NULL when unknown
-- column step_wire_bytes DOUBLE [bytes] in 0..inf: bytes sent per step; NULL when unknown
-- key: rank, op
-- source: docs/metrics.md#volume
WITH marked AS (SELECT count(DISTINCT step) AS steps FROM nccl_kernels),
kept AS (SELECT k.* FROM nccl_kernels k, marked WHERE step IS NOT NULL OR marked.steps = 0)
SELECT
    rank,
    op,
    greatest(count(DISTINCT step), 1) AS step_count,
    count(*) AS call_count,
    CASE WHEN count(wire_bytes) = count(*) THEN sum(wire_bytes)::BIGINT END AS wire_bytes,
    CASE WHEN count(wire_bytes) = count(*)
        THEN sum(wire_bytes) / greatest(count(DISTINCT step), 1) END AS step_wire_bytes
FROM kept
GROUP BY rank, op
ORDER BY rank, sum(wire_bytes) DESC NULLS LAST, op
