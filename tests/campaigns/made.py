"""Campaigns in a ledger in memory, taken forward by made-up records: no training, no files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from depsue import codec
from depsue.campaigns import Campaign, CampaignSettings, Story, story_of
from depsue.campaigns.records import CandidateFacts, ItemSummary, PromiseSummary, RoundSummary
from depsue.campaigns.settings import CampaignTerms
from depsue.certificates import Certificate, DeltaParts, Verdict
from depsue.exploration.choices import Expected
from depsue.exploration.settings import ExploreSettings
from depsue.ledger import open_ledger


def sha(*words: object) -> str:
    return hashlib.sha256(repr(words).encode()).hexdigest()


class Made:
    """A campaign in a ledger in memory, taken forward by made-up records."""

    def __init__(self, rounds: int = 2, name: str = "spring", **explore: Any) -> None:
        self.ledger, self.name = open_ledger(":memory:"), name
        retries = explore.pop("retries", False)
        explore.setdefault("objective", "most novelty")
        settings = CampaignSettings(ExploreSettings(deployments=rounds, **explore), retries=retries)
        self.promises = settings.explore.promises
        self.ledger.create_campaign(
            name,
            rounds=rounds,
            settings=codec.plain(CampaignTerms(settings, pi0=sha("pi0"), catalogue=sha("c"))),
            retries=retries,
            by="ana",
        )

    @property
    def campaign(self) -> Campaign:
        return Campaign(self.ledger, "nowhere", self.name, by="reader")

    @property
    def story(self) -> Story:
        return story_of(self.campaign)

    def observe(
        self,
        k: int,
        mean: float = 0.2,
        *,
        rows: int = 10_000,
        served: str | None = None,
        items: Sequence[tuple[str, int, float]] = (("kettle", 0, 0.0), ("lamp", 0, 0.0)),
        novel_items: int | None = None,
        **more: Any,
    ) -> Self:
        shown = sum(n for _, n, _ in items)
        error = (mean * (1 - mean) / rows) ** 0.5
        summary = RoundSummary(
            rows=rows,
            contexts=10,
            novelty=shown / rows,
            novel_rows=shown,
            novel_items=novel_items or len(items),
            items=tuple(ItemSummary(*item) for item in items),
            promises={one.name: PromiseSummary(rows, mean, error) for one in self.promises},
            served=served or sha("pi0"),
            **more,
        )
        self.ledger.observe(
            self.name,
            k,
            data_hash=sha("data", k),
            rows=rows,
            source=f"logs{k}.parquet",
            summary=codec.plain(summary),
            by="ana",
        )
        return self

    def train(self, k: int, try_: int = 1, **changed: Any) -> Self:
        facts = CandidateFacts(
            promises=self.promises,
            delta=0.05,
            bound="normal",
            clip=19.5,
            largest=1.0,
            ceilings={},
            credits={},
            control=None,
            assumptions=(),
            novelties=tuple(nu / 100 for nu in range(31)),
            expected=Expected(old=1.4, new=0.8, logging=1.0),
            trust=0.9,
            old=sha("old", k),
            new=sha("new", k),
            model=None,
            pi0_policy=sha("pi0"),
            certain_policy=sha("certain", k),
        )
        self.ledger.record_candidate(
            self.name,
            k,
            policy_hash=sha("candidate", k, try_),
            folder="candidate",
            trained_on=[sha("data", j) for j in range(k)],
            fixed=replace(facts, **changed).recorded(),
            by="bo",
        )
        return self

    def certify(
        self,
        k: int,
        novelty: float | None = 0.2,
        try_: int = 1,
        credit: float = 0.0,
        assumes: Sequence[str] = ("rewards lie between 0 and 1",),
    ) -> Self:
        """novelty None is a certificate that fails."""
        with self.ledger.reads(self.name, k, sha("candidate", k, try_), by="bo") as reads:
            attempt = reads.begin(sha("data", k - 1))
            verdicts = tuple(
                Verdict(
                    promise=one,
                    delta=0.05 / len(self.promises),
                    n=5000,
                    mean=0.03,
                    bound=-0.0123 if novelty is None else 0.0123,
                    need=-credit if one.floor.ratio is not None else -0.02,
                    credit=credit,
                    ceiling=None,
                    constants={"sd_most": 1.25, "by": "berry-esseen"},
                    proof="terms do not overstate",
                )
                for one in self.promises
            )
            nu = novelty or 0.0
            reads.finish(
                Certificate(
                    kind="strict",
                    campaign=self.name,
                    round=k - 1,
                    data=sha("data", k - 1),
                    fractions=(0.35, 0.05, 0.6),
                    attempt=attempt,
                    retries=reads.retries,
                    delta=reads.delta_of_attempt(0.05, attempt),
                    spent=DeltaParts({p.name: 0.05 / len(self.promises) for p in self.promises}),
                    bound="normal",
                    clip=19.5,
                    largest=1.0,
                    shares=(1 - nu, nu),
                    tested=1 if novelty is None else 2 + round(100 * nu),
                    listed=31,
                    policy=sha("certified", k, try_),
                    verdicts=verdicts,
                    assumptions=tuple(assumes),
                )
            )
        return self

    def deploy(self, k: int, what: str, kind: Any = "deploy") -> Self:
        self.ledger.deploy(self.name, k, what, kind, by="cy")
        return self

    def round(self, k: int, mean: float, **more: Any) -> Self:
        """A whole round in which what was certified is served."""
        items = more.pop("items", (("kettle", 1500, 300.0), ("lamp", 500, 50.0)))
        self.train(k).certify(k, **more).deploy(k, sha("certified", k, 1))
        return self.observe(k, mean, served=sha("certified", k, 1), items=items)
