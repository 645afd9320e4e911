-- stragglers: which rank arrives late at collectives, how much does that cost, and what kept it?
--
-- No clock is involved: the rank with the shortest kernel arrived last. A rank is later than its
-- median peer by the median duration of the others less its own. Whether that is more than chance
-- is a one-sided sign test, of steps where there are at least 8, else of single collectives, times
-- the number of ranks. The cause is what grew most, against the ranks that were on time, between the
-- end of the previous collective and a late arrival; it must explain at least half of the lateness.
--
-- param scope VARCHAR = 'capture': all collectives, or with step only those inside steps
-- param warmup INTEGER = 0: 1 counts warm-up calls too
-- param fraction DOUBLE = 0.01: share of its window by which a straggler is late, at least
-- param p DOUBLE = 0.05: chance below which lateness is no accident
-- column rank INTEGER [id]: global rank
-- column collective_count BIGINT [1] in 1..inf: collectives it took part in
-- column times_last DOUBLE [1] in 0..inf: how often it arrived last; ties are shared
-- column last_fraction DOUBLE [1] in 0..1: times_last / collective_count
-- column lateness_ns BIGINT [ns] in 0..inf: sum of how much later than its median peer it arrived
-- column imposed_wait_ns BIGINT [ns] in 0..inf: time that other ranks waited, where it was last
-- column removable_ns BIGINT [ns] in 0..inf: wall time gained, had it arrived with the next one
-- column window_ns BIGINT [ns] in 0..inf: its capture, or the sum of its steps
-- column straggler_fraction DOUBLE [1] in 0..inf: lateness_ns / window_ns
-- column unit VARCHAR []: what the test counts: step or collective
-- column unit_count BIGINT [1] in 0..inf: how many, without ties
-- column late_count BIGINT [1] in 0..inf: in how many it was later than its median peer
-- column p_value DOUBLE [1] in 0..1: chance of as many among all ranks
-- column straggler BOOLEAN []: late by the fraction, and not by chance; NULL where it cannot be told: too few units for any to be significant, or fewer than half of the ranks of a communicator are there
-- column cause VARCHAR []: compute, imbalance, launch, copy, upstream or unknown; NULL when never late
-- column cause_fraction DOUBLE [1] in 0..inf: share of the lateness that the cause explains
-- column partial BOOLEAN []: ranks of its communicators are missing, so one of them may be later yet
-- key: rank
-- source: docs/metrics.md#waiting-and-stragglers
WITH arrived AS (
    SELECT rank, collective_id, step, end_ns - start_ns AS duration_ns, wait_ns, late_ns, last_share,
        group_size, match, lead_compute_ns, lead_comm_ns, lead_copy_ns, lead_idle_ns, lead_ops,
        lead_signature
    FROM nccl_kernels
    WHERE late_ns IS NOT NULL
        AND (coalesce(getvariable('warmup'), 0) = 1 OR NOT coalesce(warmup, false))
),
-- A step is that of the collective, though a capture may begin or end inside it on some rank.
dated AS (
    SELECT collective_id, max(step) AS step
    FROM arrived
    GROUP BY collective_id
),
kept AS (
    SELECT a.* REPLACE (d.step AS step)
    FROM arrived a
    JOIN dated d USING (collective_id)
    WHERE coalesce(getvariable('scope'), 'capture') = 'capture' OR d.step IS NOT NULL
),
collectives AS (
    SELECT
        collective_id,
        sum(wait_ns) AS waited_ns,
        list_extract(min(duration_ns, 2), 2) - min(duration_ns) AS removable_ns,
        quantile_disc(lead_compute_ns, 0.5) FILTER (late_ns <= 0) AS compute_ns,
        quantile_disc(lead_comm_ns, 0.5) FILTER (late_ns <= 0) AS comm_ns,
        quantile_disc(lead_copy_ns, 0.5) FILTER (late_ns <= 0) AS copy_ns,
        quantile_disc(lead_idle_ns, 0.5) FILTER (late_ns <= 0) AS idle_ns,
        list(DISTINCT lead_signature) FILTER (late_ns <= 0) AS signatures,
        list(DISTINCT lead_ops) FILTER (late_ns <= 0) AS counts,
        median(lead_ops) AS usual_ops,
        count(*) / max(group_size) AS present
    FROM kept
    GROUP BY collective_id
),
of_rank AS (
    SELECT
        k.rank,
        count(*) AS collective_count,
        sum(k.last_share) AS times_last,
        sum(greatest(k.late_ns, 0))::BIGINT AS lateness_ns,
        round(sum(k.last_share * c.waited_ns))::BIGINT AS imposed_wait_ns,
        sum(CASE WHEN k.last_share = 1 THEN c.removable_ns ELSE 0 END)::BIGINT AS removable_ns,
        count(DISTINCT k.step) AS steps,
        bool_or(k.match = 'partial') AS partial,
        min(coalesce(c.present, 0)) AS present,
        sum(k.lead_ops - c.usual_ops) AS more_ops,
        sum(c.usual_ops) FILTER (k.lead_ops IS NOT NULL) AS usual_ops,
        sum(k.lead_compute_ns - c.compute_ns) FILTER (k.late_ns > 0) AS more_compute_ns,
        sum(k.lead_comm_ns - c.comm_ns) FILTER (k.late_ns > 0) AS more_comm_ns,
        sum(k.lead_copy_ns - c.copy_ns) FILTER (k.late_ns > 0) AS more_copy_ns,
        sum(k.lead_idle_ns - c.idle_ns) FILTER (k.late_ns > 0) AS more_idle_ns,
        sum(k.late_ns) FILTER (
            k.late_ns > 0 AND list_contains(c.counts, k.lead_ops)
            AND NOT list_contains(c.signatures, k.lead_signature)
        ) * 2 > sum(k.late_ns) FILTER (k.late_ns > 0) AS other_kernels
    FROM kept k
    JOIN collectives c USING (collective_id)
    GROUP BY k.rank
),
units AS (
    SELECT r.rank, sum(k.late_ns) AS late_ns
    FROM kept k
    JOIN of_rank r USING (rank)
    WHERE r.steps < 8 OR k.step IS NOT NULL
    GROUP BY r.rank, CASE WHEN r.steps >= 8 THEN k.step ELSE k.collective_id END
),
signs AS (
    SELECT
        rank,
        count(*) FILTER (late_ns <> 0) AS unit_count,
        count(*) FILTER (late_ns > 0) AS late_count
    FROM units
    GROUP BY rank
),
chances AS (
    SELECT
        s.rank,
        s.unit_count,
        s.late_count,
        least(1.0, (SELECT count(*) FROM signs) * sum(exp(
            lgamma(s.unit_count + 1) - lgamma(i + 1) - lgamma(s.unit_count - i + 1)
            - s.unit_count * ln(2)
        ))) AS p_value
    FROM signs s, unnest(range(s.late_count, s.unit_count + 1)) AS outcomes (i)
    GROUP BY s.rank, s.unit_count, s.late_count
),
windows AS (
    SELECT rank, sum(window_ns)::BIGINT AS window_ns
    FROM rank_timings
    WHERE scope = coalesce(getvariable('scope'), 'capture')
    GROUP BY rank
),
-- As many kernels, over all leads: where a rank is late its peers ran the same ones earlier.
worked AS (
    SELECT *,
        coalesce(other_kernels, false) OR coalesce(abs(more_ops) > 0.02 * usual_ops, false)
            AS other_work
    FROM of_rank
),
causes AS (
    SELECT
        rank,
        unnest([
            {'cause': CASE WHEN other_work THEN 'imbalance' ELSE 'compute' END, 'ns': more_compute_ns},
            {'cause': 'upstream', 'ns': more_comm_ns},
            {'cause': 'copy', 'ns': more_copy_ns},
            {'cause': 'launch', 'ns': more_idle_ns}
        ], recursive := true)
    FROM worked
),
most AS (
    SELECT rank, arg_max(cause, ns) AS cause, max(ns) AS ns
    FROM causes
    GROUP BY rank
)
SELECT
    r.rank,
    r.collective_count,
    r.times_last,
    r.times_last / r.collective_count AS last_fraction,
    r.lateness_ns,
    r.imposed_wait_ns,
    r.removable_ns,
    w.window_ns,
    r.lateness_ns / nullif(w.window_ns, 0) AS straggler_fraction,
    CASE WHEN r.steps >= 8 THEN 'step' ELSE 'collective' END AS unit,
    c.unit_count,
    c.late_count,
    c.p_value,
    CASE
        WHEN r.lateness_ns = 0
            OR r.lateness_ns < coalesce(getvariable('fraction'), 0.01) * w.window_ns THEN false
        WHEN r.partial AND r.present < 0.5 THEN NULL
        WHEN c.p_value < coalesce(getvariable('p'), 0.05) THEN true
        WHEN n.ranks * power(0.5, c.unit_count) >= coalesce(getvariable('p'), 0.05) THEN NULL
        ELSE false
    END AS straggler,
    CASE
        WHEN r.lateness_ns = 0 THEN NULL
        WHEN m.ns * 2 >= r.lateness_ns THEN m.cause
        ELSE 'unknown'
    END AS cause,
    CASE WHEN r.lateness_ns > 0 AND m.ns * 2 >= r.lateness_ns THEN m.ns / r.lateness_ns END
        AS cause_fraction,
    r.partial
FROM of_rank r
CROSS JOIN (SELECT count(*) AS ranks FROM of_rank) n
JOIN chances c USING (rank)
JOIN windows w USING (rank)
LEFT JOIN most m USING (rank)
ORDER BY coalesce(straggler, false) DESC, r.lateness_ns DESC, r.rank
