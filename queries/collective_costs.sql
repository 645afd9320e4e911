-- collective_costs: what does each kind of collective cost a rank in each step?
--
-- Kinds are those of busbw. Costs are means over all ranks and steps (or captures), so that runs of
-- different lengths and sizes can be compared. Warm-up calls cost time too, but their transfers do not
-- count.
--
-- param scope VARCHAR = 'step': cost of a step, or of the capture
-- column op VARCHAR []: operation
-- column group_size INTEGER [1]: ranks of the communicator; NULL when unknown
-- column link VARCHAR []: slowest link it must use: intra, inter or unknown
-- column bucket_bytes BIGINT [bytes]: largest power of two not above S; NULL when S is unknown
-- column call_count BIGINT [1] in 1..inf: operations, over all ranks
-- column window_calls DOUBLE [1] in 0..inf: operations of a rank in a step
-- column window_exposed_ns BIGINT [ns] in 0..inf: time of a rank in a step in which no compute ran
-- column window_exposed_transfer_ns BIGINT [ns] in 0..inf: the part of it that transferred; NULL where a call is not matched
-- column window_exposed_wait_ns BIGINT [ns] in 0..inf: the part of it that waited for a late rank; NULL likewise
-- column wait_ns_mean BIGINT [ns] in 0..inf: waiting of a rank in one call; NULL without matched calls
-- column transfer_ns_p25 BIGINT [ns] in 0..inf: first quartile of the transfer
-- column transfer_ns_p50 BIGINT [ns] in 0..inf: median transfer
-- column transfer_ns_p75 BIGINT [ns] in 0..inf: third quartile of the transfer
-- key: op, group_size, link, bucket_bytes
-- source: docs/metrics.md#comparing-runs
WITH counted AS (
    SELECT k.*,
        1::BIGINT << floor(log2(nullif(max(bytes) OVER collective, 0)))::BIGINT AS bucket_bytes,
        row_number() OVER (
            PARTITION BY coalesce(collective_id::VARCHAR, 'alone ' || k.rowid) ORDER BY k.rank
        ) = 1 AND transfer_ns IS NOT NULL AND NOT coalesce(warmup, false) AS speaks
    FROM nccl_kernels k
    WHERE coalesce(getvariable('scope'), 'step') = 'capture' OR step IS NOT NULL
    WINDOW collective AS (PARTITION BY coalesce(collective_id::VARCHAR, 'alone ' || k.rowid))
),
windows AS (
    SELECT count(*) AS windows
    FROM rank_timings
    WHERE scope = coalesce(getvariable('scope'), 'step')
),
costs AS (
    SELECT
        op,
        group_size,
        link,
        bucket_bytes,
        count(*) AS call_count,
        sum(exposed_ns)::BIGINT AS exposed_ns,
        CASE WHEN count(exposed_transfer_ns) = count(*) THEN sum(exposed_transfer_ns)::BIGINT END
            AS exposed_transfer_ns,
        avg(wait_ns) AS wait_ns,
        quantile_disc(transfer_ns, 0.25) FILTER (speaks) AS transfer_ns_p25,
        quantile_disc(transfer_ns, 0.5) FILTER (speaks) AS transfer_ns_p50,
        quantile_disc(transfer_ns, 0.75) FILTER (speaks) AS transfer_ns_p75
    FROM counted
    GROUP BY op, group_size, link, bucket_bytes
)
SELECT
    op,
    group_size,
    link,
    bucket_bytes,
    call_count,
    call_count / windows AS window_calls,
    exposed_ns // windows AS window_exposed_ns,
    exposed_transfer_ns // windows AS window_exposed_transfer_ns,
    exposed_ns // windows - exposed_transfer_ns // windows AS window_exposed_wait_ns,
    round(wait_ns)::BIGINT AS wait_ns_mean,
    transfer_ns_p25,
    transfer_ns_p50,
    transfer_ns_p75
FROM costs
CROSS JOIN windows
ORDER BY exposed_ns DESC, op, bucket_bytes, group_size, link
