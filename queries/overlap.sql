-- overlap: how much of the communication is hidden behind compute, and which streams share work?
--
-- A stream that runs both communication and compute cannot overlap them. transfer_overlap_ratio
-- leaves out the waiting for a late rank, which would make the late rank look best.
--
-- param scope VARCHAR = 'capture': which windows of each rank: capture or step
-- column rank INTEGER [id]: global rank
-- column comm_ns BIGINT [ns] in 0..inf: union of communication intervals
-- column overlap_ns BIGINT [ns] in 0..inf: time in which compute ran too
-- column exposed_comm_ns BIGINT [ns] in 0..inf: comm_ns - overlap_ns
-- column overlap_ratio DOUBLE [1] in 0..1: overlap_ns / comm_ns; NULL without communication
-- column transfer_overlap_ratio DOUBLE [1] in 0..1: the same with waiting left out; NULL without matched collectives
-- column comm_streams BIGINT[] [id]: streams that ran communication, over the whole capture
-- column compute_streams BIGINT[] [id]: streams that ran compute, over the whole capture
-- column shared_streams BIGINT[] [id]: streams that ran both, over the whole capture
-- key: rank
-- source: docs/metrics.md#time-accounting
WITH timed AS (
    SELECT
        rank,
        CASE WHEN count(comm_ns) = count(*) THEN sum(comm_ns)::BIGINT END AS comm_ns,
        CASE WHEN count(overlap_ns) = count(*) THEN sum(overlap_ns)::BIGINT END AS overlap_ns,
        CASE WHEN count(transfer_comm_ns) = count(*)
            THEN sum(transfer_overlap_ns) / nullif(sum(transfer_comm_ns), 0)
        END AS transfer_overlap_ratio
    FROM rank_timings
    WHERE scope = coalesce(getvariable('scope'), 'capture')
    GROUP BY rank
),
shared AS (
    SELECT
        rank,
        list(stream ORDER BY stream) FILTER (WHERE comm_ns > 0) AS comm_streams,
        list(stream ORDER BY stream) FILTER (WHERE compute_ns > 0) AS compute_streams,
        list(stream ORDER BY stream) FILTER (WHERE role = 'mixed') AS shared_streams
    FROM streams
    GROUP BY rank
)
SELECT
    t.rank,
    t.comm_ns,
    t.overlap_ns,
    t.comm_ns - t.overlap_ns AS exposed_comm_ns,
    t.overlap_ns / nullif(t.comm_ns, 0) AS overlap_ratio,
    t.transfer_overlap_ratio,
    coalesce(s.comm_streams, []) AS comm_streams,
    coalesce(s.compute_streams, []) AS compute_streams,
    coalesce(s.shared_streams, []) AS shared_streams
FROM timed t
LEFT JOIN shared s USING (rank)
ORDER BY t.rank
