"""What the ledger knows of a campaign, in the order in which the page tells it."""

from __future__ import annotations

from dataclasses import dataclass

from depsue.campaigns import Campaign, Status, status_of
from depsue.campaigns.records import CandidateFacts, RoundSummary
from depsue.certificates import Certificate, Verdict
from depsue.ledger import AttemptRecord, CandidateRecord, DeploymentRecord, ObservationRecord
from depsue.promises import Promise


def _apart(above: float, error: float) -> str:
    if abs(above) <= 2 * error:
        return "too close to tell"
    return "above the floor" if above > 0 else "below the floor"


@dataclass(frozen=True)
class Seen:
    """One promise in one round.

    Args:
        round: which; 0 is what pi0 logged before the campaign.
        rows: decisions that the promise is about; 0 where nothing was observed yet.
        mean, error: of the reward, with its standard error; None where nothing was observed yet.
        need, need_error: the mean reward that the floor asks for, an estimate where it is a share.
        margin: (mean - need) x rows; None for round 0 and what was not observed.
        certified: what the certificate says that the value is at least, on the same scale; None
            without one that passed.
        drawn: margin that the certificate counted on, in the same unit as `margin`.
        followed: whether what was certified is what served.
    """

    round: int
    rows: int
    mean: float | None
    error: float | None
    need: float
    need_error: float
    margin: float | None = None
    certified: float | None = None
    drawn: float = 0.0
    followed: bool = False

    @property
    def apart(self) -> str:
        """Whether the mean lies above or below the floor, by two standard errors."""
        if self.mean is None or self.error is None:
            return "not observed"
        return _apart(self.mean - self.need, (self.error**2 + self.need_error**2) ** 0.5)


@dataclass(frozen=True)
class Kept:
    """One promise, round by round."""

    promise: Promise
    seen: tuple[Seen, ...]

    @property
    def observed(self) -> tuple[Seen, ...]:
        """The rounds that were observed."""
        return tuple(one for one in self.seen if one.mean is not None)

    @property
    def margin(self) -> float | None:
        """Earned above the floor so far, an estimate; None before a round was observed."""
        earned = [one.margin for one in self.seen if one.margin is not None]
        return sum(earned) if earned else None

    @property
    def together(self) -> str:
        """Whether all rounds together lie above or below the floor, by two standard errors."""
        if self.margin is None:
            return "not observed"
        seen = self.observed[1:]
        spread = sum((one.rows * (one.error or 0.0)) ** 2 for one in seen)
        floor = sum(one.rows for one in seen) * self.seen[0].need_error
        return _apart(self.margin, (spread + floor**2) ** 0.5)


@dataclass(frozen=True)
class Tried:
    """One candidate, and what came of it.

    Args:
        round: that it was made for.
        candidate: as recorded.
        attempt: its test; None before.
        certificate: the verdict; None without.
        levels: (novelty, anticipated value / V(pi0)) of each level, in the order of testing.
    """

    round: int
    candidate: CandidateRecord
    attempt: AttemptRecord | None
    certificate: Certificate | None
    levels: tuple[tuple[float, float], ...]

    @property
    def state(self) -> str:
        """passed, failed, open, abandoned, or not tested."""
        return "not tested" if self.attempt is None else self.attempt.state

    @property
    def certified(self) -> tuple[float, float] | None:
        """(novelty, anticipated value / V(pi0)) of what passed."""
        if self.certificate is None or not self.certificate.passed:
            return None
        novelty = self.certificate.novelty
        return novelty, CandidateFacts.of(self.candidate).expected.value(novelty)

    def verdict(self, name: str) -> Verdict:
        """On the promise of that name."""
        verdicts = () if self.certificate is None else self.certificate.verdicts
        return next(one for one in verdicts if one.promise.name == name)


@dataclass(frozen=True)
class Story:
    """All of it.

    Args:
        campaign: whose.
        status: where it stands.
        kept: every promise.
        tried: every candidate, oldest first.
        observations, deployments: as recorded.
    """

    campaign: Campaign
    status: Status
    kept: tuple[Kept, ...]
    tried: tuple[Tried, ...]
    observations: tuple[ObservationRecord, ...]
    deployments: tuple[DeploymentRecord, ...]

    @property
    def serving(self) -> DeploymentRecord | None:
        """The newest deployment; None if pi0 serves as before."""
        return self.deployments[-1] if self.deployments else None

    @property
    def plain(self) -> Kept | None:
        """The strictest promise about the logs' own reward over all rows; None if none is."""
        found = [one for one in self.kept if is_plain(one.promise)]
        told = [one for one in found if one.seen]
        return max(told, key=lambda one: one.seen[0].need, default=None)

    @property
    def over(self) -> bool:
        """Whether every round was observed."""
        return self.status.round > self.status.rounds


def story_of(campaign: Campaign) -> Story:
    """The story of a campaign, from the ledger alone."""
    ledger, name = campaign.ledger, campaign.name
    observations, deployments = ledger.observations(name), ledger.deployments(name)
    attempts = {(one.round, one.policy_hash): one for one in ledger.attempts(name)}
    tried = tuple(
        _tried(one, attempts.get((one.round, one.policy_hash))) for one in ledger.policies(name)
    )
    kept = tuple(
        _kept(one, campaign, observations, deployments, tried)
        for one in campaign.settings.explore.promises
    )
    return Story(campaign, status_of(campaign), kept, tried, observations, deployments)


def _tried(candidate: CandidateRecord, attempt: AttemptRecord | None) -> Tried:
    text = None if attempt is None else attempt.certificate
    facts = CandidateFacts.of(candidate)
    levels = tuple((novelty, facts.expected.value(novelty)) for novelty in facts.novelties)
    certificate = None if text is None else Certificate.from_json(text)
    return Tried(candidate.round, candidate, attempt, certificate, levels)


def _kept(
    promise: Promise,
    campaign: Campaign,
    observations: tuple[ObservationRecord, ...],
    deployments: tuple[DeploymentRecord, ...],
    tried: tuple[Tried, ...],
) -> Kept:
    if not observations:
        return Kept(promise, ())
    summaries = [RoundSummary.of(one) for one in observations]
    first = summaries[0].promises[promise.name]
    need = promise.floor.of(first.mean)
    need_error = (promise.floor.ratio or 0.0) * first.error
    found = []
    for k in range(min(len(observations), campaign.rounds) + 1):
        served = [one.policy_hash for one in deployments if one.round == k][-1:]
        rows, mean, error = 0, None, None
        if k < len(observations):
            seen = summaries[k].promises[promise.name]
            rows, mean, error = seen.rows, seen.mean, seen.error
            served = [summaries[k].served]
        certified, drawn, followed = None, 0.0, False
        for one in (one for one in tried if one.round == k and one.certified is not None):
            verdict = one.verdict(promise.name)
            certified = verdict.bound + (need if is_paired(verdict) else 0.0)
            before = observations[k - 1]
            share = summaries[k - 1].promises[promise.name].rows / before.rows
            drawn = verdict.credit * (campaign.settings.decisions or before.rows) * share
            followed = one.attempt is not None and served == [one.attempt.certified]
        found.append(
            Seen(
                round=k,
                rows=rows,
                mean=mean,
                error=error,
                need=need,
                need_error=need_error,
                margin=None if mean is None or k == 0 else (mean - need) * rows,
                certified=certified,
                drawn=drawn,
                followed=followed,
            )
        )
    return Kept(promise, tuple(found))


def is_plain(promise: Promise) -> bool:
    """Whether a promise is about the logs' own reward over all rows."""
    return promise.reward is None and promise.segment is None


def is_paired(verdict: Verdict) -> bool:
    """Whether the bound is one on V(pi) - rho V(pi0), not on V(pi)."""
    return verdict.promise.floor.ratio is not None and verdict.ceiling is None
