"""Where a campaign stands, at a glance and as JSON; from the ledger alone, no log is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from depsue.campaigns.campaign import Campaign
from depsue.campaigns.records import RoundSummary
from depsue.certificates import Certificate
from depsue.ledger import AttemptRecord, DeploymentRecord, ObservationRecord
from depsue.promises import Promise


@dataclass(frozen=True)
class PromiseStatus:
    """One promise in one round.

    Args:
        name, floor: of the promise, in words.
        mean, error: of the reward while the round served, and its standard error.
        need: the mean reward that the floor asks for, taken of pi0's first logs; an estimate.
        margin: (mean - need) x decisions, an estimate; None for pi0's logs before the campaign.
    """

    name: str
    floor: str
    mean: float
    error: float
    need: float
    margin: float | None


@dataclass(frozen=True)
class RoundStatus:
    """One round, as far as it has come.

    Args:
        round: 0 for what pi0 logged before.
        rows: decisions observed; None before.
        novelty: share of novel items in what was served, by the policy's own probabilities.
        served: what served: pi0, certain, certified.
        certified: the certified novelty; None without a certificate that passed.
        bound, need: of the first promise's verdict.
        credit: margin that its certificate spent, per decision.
        verdict: passed, failed, open, abandoned, or None.
        attempt: which read of the certifying rows it was.
        promises: what was observed.
    """

    round: int
    rows: int | None = None
    novelty: float | None = None
    served: str | None = None
    certified: float | None = None
    bound: float | None = None
    need: float | None = None
    credit: float | None = None
    verdict: str | None = None
    attempt: int | None = None
    promises: tuple[PromiseStatus, ...] = ()


@dataclass(frozen=True)
class Status:
    """Where a campaign stands.

    Args:
        name: of the campaign.
        round, rounds: under way, of K; round K + 1 says that it is over.
        promises: the floors, in words.
        delta: the level, in words.
        safety: each, or cumulative.
        next: what to do now, a command.
        serving: what serves now.
        may_deploy: what may be deployed now, the best first, in words.
        history: every round so far.
    """

    name: str
    round: int
    rounds: int
    promises: tuple[str, ...]
    delta: str
    safety: str
    next: str
    serving: str
    may_deploy: tuple[str, ...]
    history: tuple[RoundStatus, ...]

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        at = f"round {self.round} of {self.rounds}" if self.round <= self.rounds else "over"
        lines = [
            f"campaign {self.name}: {at}",
            f"  promise   {'; '.join(self.promises)} ({self.delta}, {self.safety})",
            f"  serving   {self.serving}",
        ]
        for place, one in enumerate(self.may_deploy):
            lines.append(f"  {'or' if place else 'deploy':<9} {one}")
        lines += [f"  next      {self.next}", "", *_table(self.history)]
        return "\n".join(lines)


def status_of(campaign: Campaign) -> Status:
    """Where a campaign stands."""
    explore = campaign.settings.explore
    ledger, name = campaign.ledger, campaign.name
    k = campaign.round
    observations = ledger.observations(name)
    attempts, deployments = ledger.attempts(name), ledger.deployments(name)
    history = tuple(
        _round(campaign, j, observations, attempts, deployments)
        for j in range(min(k, campaign.rounds) + 1)
    )
    newest = deployments[-1] if deployments else None
    serving = "pi0" if newest is None else _called(campaign, newest)
    deployed = any(one.round == k for one in deployments)
    may = () if deployed or k > campaign.rounds else campaign.choices(k)
    per = "for each deployment" if explore.per == "deployment" else "for the whole campaign"
    return Status(
        name=name,
        round=k,
        rounds=campaign.rounds,
        promises=tuple(f"{one.name} {one.floor}" for one in explore.promises),
        delta=f"delta {explore.delta:g} {per}",
        safety="each deployment" if explore.safety == "each" else "all deployments together",
        next=_next(campaign, k),
        serving=serving,
        may_deploy=tuple(f"{one.why} (--what {one.what})" for one in may),
        history=history,
    )


def _next(campaign: Campaign, k: int) -> str:
    name = campaign.name
    if k > campaign.rounds:
        return f"depsue campaign report {name}"
    if any(one.round == k for one in campaign.ledger.deployments(name)):
        return f"depsue campaign observe {name} LOGS: what is served now"
    if campaign.choices(k):
        return f"depsue campaign deploy {name}"
    if any(one.round == k for one in campaign.ledger.policies(name)):
        return f"depsue campaign certify {name}"
    return f"depsue campaign train {name}"


def _called(campaign: Campaign, one: DeploymentRecord) -> str:
    """What a deployed policy is, in words."""
    what = campaign.choice_of(one.round, one.policy_hash)
    when = f"since {one.at:%Y-%m-%d %H:%M} by {one.by}"
    if what.what == "pi0":
        return f"pi0, {when}"
    return f"round {one.round}'s {what.what} policy, novelty {what.novelty:.3f}, {when}"


def _round(
    campaign: Campaign,
    j: int,
    observations: tuple[ObservationRecord, ...],
    attempts: tuple[AttemptRecord, ...],
    deployments: tuple[DeploymentRecord, ...],
) -> RoundStatus:
    found: dict[str, Any] = {"round": j}
    tried = [one for one in attempts if one.round == j]
    if tried:
        last = tried[-1]
        found |= {"verdict": last.state, "attempt": last.attempt}
        if last.certificate is not None:
            certificate = Certificate.from_json(last.certificate)
            first = certificate.verdicts[0]
            found |= {"bound": first.bound, "need": first.need, "credit": first.credit}
            found["certified"] = certificate.novelty if certificate.passed else None
    served = [one for one in deployments if one.round == j]
    if served:
        found["served"] = campaign.choice_of(j, served[-1].policy_hash).what
    if j < len(observations):
        begun, summary = RoundSummary.of(observations[0]), RoundSummary.of(observations[j])
        found |= {"rows": observations[j].rows, "novelty": summary.novelty}
        found["served"] = campaign.choice_of(j, summary.served).what
        promises = campaign.settings.explore.promises
        found["promises"] = tuple(_kept(one, begun, summary, counts=j > 0) for one in promises)
    return RoundStatus(**found)


def _kept(
    promise: Promise, first: RoundSummary, summary: RoundSummary, *, counts: bool
) -> PromiseStatus:
    seen = summary.promises[promise.name]
    need = promise.floor.of(first.promises[promise.name].mean)
    margin = (seen.mean - need) * seen.rows if counts else None
    return PromiseStatus(promise.name, str(promise.floor), seen.mean, seen.error, need, margin)


def _table(history: tuple[RoundStatus, ...]) -> Iterator[str]:
    yield (
        f"  {'round':>5} {'verdict':>9} {'certified':>9} {'served':>9} {'rows':>9} {'novelty':>8} "
        f"{'value':>8} {'floor':>8} {'margin':>9}"
    )
    for one in history:
        kept = one.promises[0] if one.promises else None
        mean, need, margin = (kept.mean, kept.need, kept.margin) if kept else (None, None, None)
        yield (
            f"  {one.round:>5} {one.verdict or '-':>9} {_number(one.certified, '.3f'):>9} "
            f"{one.served or '-':>9} {_number(one.rows, ',d'):>9} {_number(one.novelty, '.3f'):>8} "
            f"{_number(mean, '.4f'):>8} {_number(need, '.4f'):>8} "
            f"{_number(margin, '+,.1f'):>9}"
        )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
