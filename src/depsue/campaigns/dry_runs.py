"""Dry runs of a campaign: plan a round, rehearse a verdict, compute a certificate again.

Nothing is recorded, and no delta is spent.

**A rehearsal** says how likely a pass is. The select fold says what mean and spread the terms of
each level have, and how wide the bound will be with as many rows as will certify. What the
certifying rows will add is chance: their mean differs from that of the select fold by the noise of
both. A rehearsal draws that noise many times, alike for all levels and promises, and counts how far
down the list each draw gets. The candidate was chosen on the select fold, which flatters it a
little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from depsue import rng
from depsue.campaigns.campaign import Campaign
from depsue.campaigns.files import PARTS, load_candidate
from depsue.campaigns.records import CandidateFacts
from depsue.certificates import Certificate, MixtureLadder, Verification, verify
from depsue.certificates.promise_test import PromiseTest
from depsue.certificates.tuning import some_contexts
from depsue.data.checks import FloatArray
from depsue.diagnostics import require_propensities
from depsue.errors import FileError, require
from depsue.exploration.headroom import LIKELY
from depsue.exploration.plan import Plan, plan_round
from depsue.exploration.round import FrozenCandidate, RoundInputs
from depsue.exploration.settings import ExploreSettings
from depsue.ledger import AttemptRecord, CandidateRecord
from depsue.policies import BasePolicy, load
from depsue.progress import Watch, silent

DRAWS = 2000
MOST_LEVELS, MOST_VALUES = 60, 20_000
"""Levels and values that a rehearsal looks at: evenly spaced ones of more."""


def plan_next_round(campaign: Campaign, explore: ExploreSettings, watch: Watch = silent) -> Plan:
    """Plan on the newest logs, from what `Campaign.train` starts from and with its seed.

    The forecast is of the certificate of the candidate that training would freeze. No certifying
    row is read.

    Args:
        campaign: whose.
        explore: what for; the campaign's own settings, or a change of them.
        watch: shows progress.
    """
    with rng.one_thread():
        watch("logs", 0, 1, "")
        state = campaign.state(explore)
        inputs = state.inputs(campaign.decisions(state))
        watch("logs", 1, 1, f"{len(state.newest):,} rows in the newest logs")
        folds = inputs.folds
        tested = require_propensities(
            folds.learn,
            folds.select,
            logging_policy=inputs.base,
            within=state.settings.factor,
        )
        return plan_round(
            inputs,
            state.settings,
            campaign=campaign.name,
            rows=len(state.newest),
            seed=rng.derive(campaign.settings.seed, "exploration", campaign.round),
            round=campaign.round,
            propensities=tested,
            watch=watch,
        )


def rehearse_round(campaign: Campaign, watch: Watch = silent) -> Rehearsal:
    """How likely the newest candidate passes: from rows that may be read, and no certifying row.

    Args:
        campaign: whose.
        watch: shows progress.
    """
    k = campaign.round
    recorded = campaign.newest_candidate(k)
    reads = campaign.ledger.reads(campaign.name, k, recorded.policy_hash, by=campaign.by)
    with rng.one_thread():
        watch("logs", 0, 1, "")
        state = campaign.state()
        inputs = state.inputs(campaign.decisions(state))
        watch("logs", 1, 1, f"{len(state.newest):,} rows in the newest logs")
        folder = campaign.files.candidate(k, recorded.policy_hash)
        facts = CandidateFacts.of(recorded)
        candidate = load_candidate(folder, facts, inputs, campaign.outside)
        attempt = reads.count(inputs.folds.data) + 1
        watch("rehearsal", 0, 1, "")
        rehearsal = rehearse(candidate, inputs, reads.delta_of_attempt(facts.delta, attempt))
        watch("rehearsal", 1, 1, "")
    return rehearsal


def recorded_attempt(
    campaign: Campaign, k: int | None = None, attempt: int | None = None
) -> AttemptRecord:
    """A verdict of the campaign that left a certificate.

    Args:
        campaign: whose.
        k: of which round; None is the newest.
        attempt: which read of the certifying rows; None is the last of the round.
    """
    certified = [record for record in campaign.ledger.attempts(campaign.name) if record.certificate]
    named = [
        record
        for record in certified
        if k in (None, record.round) and attempt in (None, record.attempt)
    ]
    known = ", ".join(f"round {record.round} attempt {record.attempt}" for record in certified)
    require(
        bool(named),
        "a certificate must be there to be verified",
        found=f"none of {'any round' if k is None else f'round {k}'}; there is {known or 'none'}",
        cure="depsue campaign certify makes one",
    )
    return named[-1]


def recompute(campaign: Campaign, k: int, attempt: int, watch: Watch = silent) -> Verification:
    """What comes of computing a certificate again: what differs, and what is missing since.

    It is the recorded verdict over again, at its own delta: no further attempt.

    Args:
        campaign: whose.
        k: its round.
        attempt: which read of the certifying rows.
        watch: shows progress.
    """
    read = recorded_attempt(campaign, k, attempt)
    candidate = next(
        record for record in campaign.candidates(k) if record.policy_hash == read.policy_hash
    )
    certificate = Certificate.from_json(read.certificate or "")
    watch("logs", 0, 1, "")
    logs = campaign.logs(k - 1)
    watch("logs", 1, 1, f"{len(logs):,} rows")
    summary = campaign.summaries()[k - 1]
    pi0 = campaign.pi0_today(k - 1)
    by_pi0 = summary.served == campaign.terms.pi0 and not campaign.withdrawn(k - 1)
    base = pi0
    if not by_pi0:
        base = campaign.drawing(k - 1, summary.served, summary.holdout, logs.catalogue)
    earlier = {}
    for j in (stratum.round for stratum in certificate.strata[:-1]):
        past, rows = campaign.summaries()[j], campaign.logs(j)
        earlier[j] = rows, campaign.drawing(j, past.served, past.holdout, rows.catalogue)
    watch("verdict", 0, 1, "")
    with rng.one_thread():
        verification = verify(
            certificate,
            logs,
            _certified_policy(campaign, candidate, read, certificate),
            logging_policy=None if by_pi0 else pi0,
            base=base,
            model=campaign.model(candidate),
            earlier=earlier,
        )
    watch("verdict", 1, 1, "")
    return verification


def _certified_policy(
    campaign: Campaign, candidate: CandidateRecord, read: AttemptRecord, certificate: Certificate
) -> BasePolicy:
    """The policy that a certificate is about: saved if it passed, else mixed again."""
    if read.passed and read.certified is not None:  # only what passed is saved
        return campaign.policy(read.round, read.certified)
    folder = campaign.files.candidate(read.round, candidate.policy_hash)
    parts = [load(folder / name, outside=campaign.outside) for name in PARTS]
    if len(parts) != len(certificate.shares):
        raise FileError(
            "a candidate has as many parts as its certificate",
            found=f"{len(parts)}, certified {len(certificate.shares)}",
            cure="restore the folder from a copy",
        )
    return MixtureLadder(tuple(parts), np.array([certificate.shares])).policy(0)


@dataclass(frozen=True)
class Rehearsal:
    """How likely each level of a candidate passes.

    Args:
        novelties: of the levels, in the order in which they are tested; some of them if there are
            many.
        chances: that this level passes with all before it.
        values: rows or units of the select fold that it rests on.
        certifying: how many rows the verdict will read.
        delta: what the verdict will be tested at.
    """

    novelties: tuple[float, ...]
    chances: tuple[float, ...]
    values: int
    certifying: int
    delta: float

    @property
    def chance(self) -> float:
        """That the first level passes, and so that there is a certificate at all."""
        return self.chances[0]

    @property
    def likely(self) -> float | None:
        """The boldest level that passes three times in four; None if even the first does not."""
        pairs = list(zip(self.novelties, self.chances, strict=True))
        return next((novelty for novelty, chance in reversed(pairs) if chance >= LIKELY), None)

    def __str__(self) -> str:
        lines = [
            f"A pass is {_in_words(self.chance)} ({_percent(self.chance)}), by {self.values:,} "
            f"values that may be read. The verdict will read {self.certifying:,} rows; none of "
            "them was read here."
        ]
        if self.likely is not None:
            lines.append(
                f"{self.likely:.1%} is the highest share of new items likely to pass, by what "
                "these rows earned; train names another, by its reward model."
            )
        shown = _spread(len(self.novelties), 6)
        lines += [
            f"  {self.novelties[place]:>6.1%} new items: {_percent(self.chances[place])}"
            for place in shown
        ]
        lines.append("The candidate was chosen on these rows, so expect a little less.")
        return "\n".join(lines)


def rehearse(candidate: FrozenCandidate, inputs: RoundInputs, delta: float) -> Rehearsal:
    """Rehearse the verdict on a candidate.

    Args:
        candidate: what was fixed.
        inputs: what it was made from; its certifying rows are counted, not read.
        delta: what the verdict will be tested at.
    """
    folds, rules, ladder = inputs.tested, candidate.rules, candidate.levels
    rows = some_contexts(folds.select)
    times, each = len(folds.certify) / len(rows), rules.delta_each(delta)
    pi0 = inputs.logging_policy
    pairing = None if inputs.drawn_by is pi0 else pi0
    test = PromiseTest(rows, rules, delta, pairing)
    parts = test.evidence(ladder.parts)
    places = _spread(len(ladder.shares), MOST_LEVELS)
    mixtures = [parts.mixed(ladder.shares[place]) for place in places]
    widths = np.array([test.widths(rules, mixed, times, each) for mixed in mixtures])
    passed, values = np.ones((DRAWS, len(places)), dtype=bool), 0
    for k, promise in enumerate(rules.promises):
        terms = [test.terms(k, mixed).terms for mixed in mixtures]
        of_levels = np.stack([own.per_unit(own.values) for own in terms], axis=1)
        values = values or len(of_levels)
        needs = [rules.need_at(promise, float(ladder.shares[place, -1])) for place in places]
        room = of_levels.mean(axis=0) - widths[:, k] - np.array(needs)
        passed &= room + _noise(of_levels, times * len(of_levels), k) >= 0
    reached = np.logical_and.accumulate(passed, axis=1).mean(axis=0)
    return Rehearsal(
        novelties=tuple(float(ladder.novelties[place]) for place in places),
        chances=tuple(reached.tolist()),
        values=values,
        certifying=len(folds.certify),
        delta=delta,
    )


def _noise(values: FloatArray, n: float, promise: int) -> FloatArray:
    """(DRAWS, L) by how much the means of n values may differ from those of these, (m, L).

    Weights of mean zero and variance one over the values give noise with their covariance; the
    errors of both means together are 1/m + 1/n of it.
    """
    m = len(values)
    some = values[:: -(-m // MOST_VALUES)]
    some = some - some.mean(axis=0)
    draw = rng.generator(0, "rehearsal", promise)
    out = np.empty((DRAWS, values.shape[1]))
    for start in range(0, DRAWS, 100):  # a few at a time: draws x values may be many
        out[start : start + 100] = draw.standard_normal((100, len(some))) @ some
    return np.asarray(out * np.sqrt((1 / m + 1 / n) / len(some)))


def _spread(n: int, most: int) -> list[int]:
    """At most so many of n places, evenly spaced, the first and the last among them."""
    return sorted(set(np.linspace(0, n - 1, min(n, most)).round().astype(int).tolist()))


def _percent(chance: float) -> str:
    if chance < 0.01:
        return "less than 1%"
    return "more than 99%" if chance > 0.99 else f"{chance:.0%}"


def _in_words(chance: float) -> str:
    words: Sequence[tuple[float, str]] = ((0.9, "very likely"), (0.6, "likely"), (0.4, "open"))
    return next((word for least, word in words if chance >= least), "unlikely")
