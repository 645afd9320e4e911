"""An exchange in which ranks send or receive unequal amounts."""

from collections.abc import Iterator

from traceq.findings.facts import Facts, Finding

_UNEQUAL = 1.2


def find(facts: Facts) -> Iterator[Finding]:
    """Yields: a finding where a rank exchanges over a fifth more than the mean."""
    for side in ("send", "recv"):
        known = [row for row in facts.imbalance if row[f"{side}_ratio"] is not None]
        if not known:
            continue
        most = max(known, key=lambda row: row[f"{side}_ratio"])
        if most[f"{side}_ratio"] < _UNEQUAL:
            continue
        verb = "sends" if side == "send" else "receives"
        yield Finding(
            id="exchange_imbalance",
            severity="warning",
            title=(
                f"rank {most['rank']} {verb} {most[f'{side}_ratio']:.3g} times the mean of the "
                "ranks in all_to_all"
            ),
            evidence={
                "rank": most["rank"],
                "side": side,
                "ratio": most[f"{side}_ratio"],
                "bytes": most[f"{side}_bytes"],
                "exchange_count": most["exchange_count"],
            },
            advice="the slowest rank sets the pace: balance experts (capacity factor, auxiliary "
            "loss) or embedding tables over ranks",
        )
