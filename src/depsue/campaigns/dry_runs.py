"""Dry runs of a campaign: plan a round, rehearse a verdict, compute a certificate again.

Nothing is recorded, and no delta is spent.
"""

from __future__ import annotations

import numpy as np

from depsue import rng
from depsue.campaigns.campaign import Campaign
from depsue.campaigns.files import PARTS, load_candidate
from depsue.campaigns.records import CandidateFacts
from depsue.certificates import Certificate, MixtureLadder, verify
from depsue.diagnostics import require_propensities
from depsue.errors import FileError
from depsue.exploration.plan import Plan, plan_round
from depsue.exploration.rehearsal import Rehearsal, rehearse
from depsue.exploration.settings import ExploreSettings
from depsue.ledger import AttemptRecord, CandidateRecord
from depsue.policies import BasePolicy, load
from depsue.progress import Watch, silent


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
        tested = require_propensities(folds.learn, folds.select, logging_policy=inputs.base)
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


def recompute(campaign: Campaign, k: int, attempt: int, watch: Watch = silent) -> tuple[str, ...]:
    """What differs when a certificate is computed again, in words; () if nothing does.

    It is the recorded verdict over again, at its own delta: no further attempt.

    Args:
        campaign: whose.
        k: its round.
        attempt: which read of the certifying rows.
        watch: shows progress.
    """
    read = next(
        record
        for record in campaign.ledger.attempts(campaign.name)
        if (record.round, record.attempt) == (k, attempt)
    )
    candidate = next(
        record for record in campaign.candidates(k) if record.policy_hash == read.policy_hash
    )
    certificate = Certificate.from_json(read.certificate or "")
    watch("logs", 0, 1, "")
    logs = campaign.logs(k - 1)
    watch("logs", 1, 1, f"{len(logs):,} rows")
    served = campaign.summaries()[k - 1].served
    pi0 = campaign.pi0_today(k - 1)
    by_pi0 = served == campaign.terms.pi0 and not campaign.withdrawn(k - 1)
    watch("verdict", 0, 1, "")
    with rng.one_thread():
        verification = verify(
            certificate,
            logs,
            _certified_policy(campaign, candidate, read, certificate),
            logging_policy=None if by_pi0 else pi0,
            base=pi0 if by_pi0 else campaign.widened(campaign.policy(k, served), logs.catalogue),
            model=campaign.model(candidate),
        )
    watch("verdict", 1, 1, "")
    return verification.differences


def _certified_policy(
    campaign: Campaign, candidate: CandidateRecord, read: AttemptRecord, certificate: Certificate
) -> BasePolicy:
    """The policy that a certificate is about: saved if it passed, else mixed again."""
    if read.certified is not None:
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
