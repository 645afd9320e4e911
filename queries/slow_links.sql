-- slow_links: is the transfer of some communicators slower than that of others of their kind?
--
-- A kind is an operation, a group size, a link and a power of two of the size S, on at least three
-- communicators, all of whose ranks are there. Everyone waits alike on a slow link, so no rank arrives late: compare the transfers.
--
-- column op VARCHAR []: operation
-- column group_size INTEGER [1]: ranks of the communicator
-- column link VARCHAR []: slowest link it must use: intra, inter or unknown
-- column bucket_bytes BIGINT [bytes]: largest power of two not above S
-- column comm_id VARCHAR []: communicator
-- column ranks INTEGER[] [id]: its ranks that were seen
-- column nodes INTEGER[] [id]: their hosts; NULL when a host is unknown
-- column collective_count BIGINT [1] in 1..inf: collectives
-- column transfer_ns BIGINT [ns] in 0..inf: median transfer
-- column others_ns DOUBLE [ns] in 0..inf: median of the medians of the kind
-- column slowdown_ratio DOUBLE [1] in 0..inf: transfer_ns / others_ns
-- key: op, group_size, link, bucket_bytes, comm_id
-- source: docs/metrics.md#slow-links
WITH medians AS (
    SELECT
        k.op,
        k.group_size,
        k.link,
        1::BIGINT << floor(log2(k.bytes))::BIGINT AS bucket_bytes,
        k.comm_id,
        list(DISTINCT k.rank ORDER BY k.rank) AS ranks,
        CASE WHEN bool_and(r.node IS NOT NULL) THEN list(DISTINCT r.node ORDER BY r.node) END AS nodes,
        count(DISTINCT k.collective_id) AS collective_count,
        quantile_disc(k.transfer_ns, 0.5) AS transfer_ns
    FROM nccl_kernels k
    JOIN ranks r USING (rank)
    WHERE k.bytes > 0 AND k.match = 'matched' AND NOT coalesce(k.warmup, false)
    GROUP BY k.op, k.group_size, k.link, bucket_bytes, k.comm_id
),
compared AS (
    SELECT *,
        count(*) OVER kind AS comms,
        median(transfer_ns) OVER kind AS others_ns
    FROM medians
    WINDOW kind AS (PARTITION BY op, group_size, link, bucket_bytes)
)
SELECT
    op,
    group_size,
    link,
    bucket_bytes,
    comm_id,
    ranks,
    nodes,
    collective_count,
    transfer_ns,
    others_ns,
    transfer_ns / nullif(others_ns, 0) AS slowdown_ratio
FROM compared
WHERE comms >= 3
ORDER BY slowdown_ratio DESC, op, group_size, link, bucket_bytes, comm_id
