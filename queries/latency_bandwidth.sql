-- latency_bandwidth: is a collective bound by latency or by bandwidth, at each of its sizes?
--
-- T = alpha * steps + wire_bytes / beta, fitted over the sizes of one operation on one group size
-- and link. Without sizes that lie a factor of four apart nothing can be fitted, and where the sizes
-- do not tell alpha or beta it is NULL. The prediction for other ranks assumes a ring.
--
-- param ranks INTEGER = 0: ranks of the group to predict for; 0 for twice as many as there are
-- column op VARCHAR []: operation
-- column group_size INTEGER [1]: ranks of the communicator
-- column link VARCHAR []: slowest link it must use
-- column bucket_bytes BIGINT [bytes]: largest power of two not above S
-- column collective_count BIGINT [1] in 1..inf: collectives of that size
-- column transfer_ns BIGINT [ns] in 0..inf: median transfer
-- column alpha_us DOUBLE [us] in 0..inf: latency of one step; NULL when the sizes do not tell it
-- column beta_gbps DOUBLE [GB/s] in 0..inf: bandwidth; NULL when the sizes do not tell it
-- column alpha_error_fraction DOUBLE [1] in 0..inf: relative standard error of alpha
-- column beta_error_fraction DOUBLE [1] in 0..inf: relative standard error of beta
-- column spread_fraction DOUBLE [1] in 0..inf: median relative distance of the times from the fit
-- column model_ns DOUBLE [ns] in 0..inf: time that the fit gives for the median size
-- column latency_fraction DOUBLE [1] in 0..1: alpha * steps / model_ns, or / transfer_ns without beta
-- column predicted_ranks INTEGER [1]: ranks that the prediction is for
-- column predicted_ns DOUBLE [ns] in 0..inf: time that the fit gives for them
-- key: op, group_size, link, bucket_bytes
-- source: docs/metrics.md#latency-and-bandwidth
WITH collectives AS (
    SELECT collective_id, op, group_size, link, max(bytes) AS bytes, min(transfer_ns) AS transfer_ns
    FROM nccl_kernels
    WHERE match = 'matched' AND bytes > 0 AND NOT coalesce(warmup, false)
    GROUP BY collective_id, op, group_size, link
),
sized AS (
    SELECT
        op,
        group_size,
        link,
        1::BIGINT << floor(log2(bytes))::BIGINT AS bucket_bytes,
        count(*) AS collective_count,
        quantile_disc(bytes, 0.5) AS bytes_p50,
        quantile_disc(transfer_ns, 0.5) AS transfer_ns
    FROM collectives
    GROUP BY op, group_size, link, bucket_bytes
),
-- A ring of n ranks has a multiple of n - 1 steps, and each rank sends a multiple of (n - 1) / n of S.
asked AS (
    SELECT *,
        coalesce(nullif(greatest(coalesce(getvariable('ranks'), 0), 0), 0), 2 * group_size)::INTEGER
            AS ranks
    FROM sized
),
modelled AS (
    SELECT a.*, m.alpha_us, m.beta_gbps, m.alpha_error, m.beta_error, m.spread,
        m.alpha_us * 1e3 * m.steps AS latency_ns,
        m.wire_share * a.bytes_p50 / m.beta_gbps AS bandwidth_ns,
        m.alpha_us * 1e3 * m.steps * (a.ranks - 1) / (a.group_size - 1) AS predicted_latency_ns,
        m.wire_share * a.bytes_p50 / m.beta_gbps
            * CASE WHEN a.op IN ('broadcast', 'reduce', 'gather', 'scatter') THEN 1.0
              ELSE ((a.ranks - 1) / a.ranks) / ((a.group_size - 1) / a.group_size) END
            AS predicted_bandwidth_ns
    FROM asked a
    JOIN link_models m USING (op, group_size, link)
)
SELECT
    op,
    group_size,
    link,
    bucket_bytes,
    collective_count,
    transfer_ns,
    alpha_us,
    beta_gbps,
    alpha_error AS alpha_error_fraction,
    beta_error AS beta_error_fraction,
    spread AS spread_fraction,
    latency_ns + bandwidth_ns AS model_ns,
    least(latency_ns / coalesce(latency_ns + bandwidth_ns, nullif(transfer_ns, 0)), 1.0)
        AS latency_fraction,
    ranks AS predicted_ranks,
    predicted_latency_ns + predicted_bandwidth_ns AS predicted_ns
FROM modelled
ORDER BY op, group_size, link, bucket_bytes
