"""What the ledger keeps of a round, typed: what a candidate fixed, its test, what rows sum up to.

The ledger's own records hold JSON values; `CandidateFacts.of`, `CandidateTest.of` and
`RoundSummary.of` read them, in today's layout or an earlier one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from depsue import codec
from depsue.bounds import Pilot
from depsue.certificates import (
    AssumedFacts,
    AssumedRung,
    Ceiling,
    Certificate,
    Control,
    Credit,
    MixtureLadder,
    Registration,
    Rules,
    Verdict,
)
from depsue.data.catalogue import Catalogue
from depsue.errors import ConfigError, is_whole, require, short
from depsue.exploration.choices import Expected, ExposureAhead
from depsue.exploration.round import FrozenCandidate
from depsue.ledger import AttemptRecord, CandidateRecord, DeploymentRecord, ObservationRecord
from depsue.plural import counted
from depsue.promises import Promise, upgraded_promise
from depsue.protocols import Policy, RewardModel
from depsue.savable import hash_of, required_hash

MOST_ITEMS = 2000
"""Novel items whose exposure is kept one by one: those shown most."""


@dataclass(frozen=True)
class ControlFacts:
    """A control variate without its policy and model: see `depsue.certificates.Control`."""

    most: float
    coefficients: dict[str, float]


@dataclass(frozen=True)
class ItemShare:
    """How often a decision of pi_new, and one of the even choice, is forecast to show an item."""

    id: str
    learned: float
    even: float


@dataclass(frozen=True)
class NewItemShares:
    """How often new items are forecast to be shown, where a decision is to show one.

    At a level of novelty nu each is shown in nu times its share of the decisions. Where a request
    has no new item among its candidates the shares sum to less than 1.

    Args:
        items: those that pi_new shows most, `MOST_ITEMS` of them.
        others: how many more there are.
        others_learned, others_even: their shares together.
        likely: the boldest level that was likely to pass when the candidate was trained; None if
            none was.
    """

    items: tuple[ItemShare, ...]
    others: int = 0
    others_learned: float = 0.0
    others_even: float = 0.0
    likely: float | None = None

    @classmethod
    def of(cls, ahead: ExposureAhead, catalogue: Catalogue) -> NewItemShares:
        """What is forecast, by the ids of the new items."""
        novel = np.flatnonzero(catalogue.novel)
        order = novel[np.argsort(-ahead.learned[novel], kind="stable")]
        listed, rest = order[:MOST_ITEMS], order[MOST_ITEMS:]
        return cls(
            items=tuple(
                ItemShare(
                    str(catalogue.ids[item]), _six(ahead.learned[item]), _six(ahead.even[item])
                )
                for item in listed
            ),
            others=len(rest),
            others_learned=_six(ahead.learned[rest].sum()),
            others_even=_six(ahead.even[rest].sum()),
            likely=ahead.likely,
        )


def _six(share: float) -> float:
    """With six digits, which are enough for a forecast."""
    return float(f"{share:.6g}")


@dataclass(frozen=True)
class CandidateFacts:
    """All that a round fixes before its certifying rows are read; policies by their SHA-256.

    Args:
        promises, delta, bound, clip, largest, ceilings, credits, assumptions, bets, pilots,
            fixed_length: of the certificate's `Rules`.
        control: of its control variate; None without one.
        novelties: nu of each mixture (1 - nu) old + nu new, in the order in which they are tested.
        expected: value / V(pi0) that is anticipated of old, new and pi0.
        trust: share of what q-hat promises of unseen actions that came true in the rehearsal.
        old, new: the parts of the mixtures.
        model: q-hat.
        pi0_policy: pi0 as it may be served in this round, without items that were withdrawn.
        certain_policy: the mixture of pi0 and new that needs no certificate; None if there is none.
        refuted: names of declared assumptions that were refuted by then, in this round or before.
        exposure: how often new items are forecast to be shown; None where an older version trained
            the candidate.
        assumed: the declared assumption that it rests on, with its constants; None for nothing.
    """

    promises: tuple[Promise, ...]
    delta: float
    bound: str
    clip: float
    largest: float
    ceilings: dict[str, Ceiling]
    credits: dict[str, Credit]
    control: ControlFacts | None
    assumptions: tuple[str, ...]
    novelties: tuple[float, ...]
    expected: Expected
    trust: float
    old: str
    new: str
    model: str | None
    pi0_policy: str
    certain_policy: str | None
    refuted: tuple[str, ...] = ()
    bets: dict[str, float] = field(default_factory=dict)
    pilots: dict[str, Pilot] = field(default_factory=dict)
    fixed_length: bool = True
    exposure: NewItemShares | None = None
    assumed: AssumedFacts | None = None

    @classmethod
    def fixed_by(
        cls,
        candidate: FrozenCandidate,
        *,
        pi0_policy: str,
        certain_policy: str | None,
        refuted: Iterable[str] = (),
        catalogue: Catalogue | None = None,
    ) -> CandidateFacts:
        """What a candidate fixes; the two hashes are of what needs no certificate.

        Without a catalogue, which has the ids of the new items, their exposure is not kept.
        """
        rules = candidate.rules
        old, new = candidate.levels.parts
        control = rules.control
        return cls(
            promises=rules.promises,
            delta=rules.delta,
            bound=rules.bound,
            clip=rules.clip,
            largest=rules.largest,
            ceilings=dict(rules.ceilings),
            credits=dict(rules.credits),
            control=None
            if control is None
            else ControlFacts(control.most, dict(control.coefficients)),
            assumptions=rules.assumptions,
            novelties=tuple(candidate.levels.novelties.tolist()),
            expected=candidate.expected,
            trust=candidate.trust,
            old=required_hash(old),
            new=required_hash(new),
            model=hash_of(candidate.model),
            pi0_policy=pi0_policy,
            certain_policy=certain_policy,
            refuted=tuple(sorted(refuted)),
            bets=dict(rules.bets),
            pilots=dict(rules.pilots),
            fixed_length=rules.fixed_length,
            exposure=None
            if candidate.exposure is None or catalogue is None
            else NewItemShares.of(candidate.exposure, catalogue),
            assumed=None if rules.assumed is None else rules.assumed.facts,
        )

    @classmethod
    def of(cls, candidate: CandidateRecord) -> CandidateFacts:
        """What a recorded candidate fixed."""
        what = f"what candidate {candidate.policy_hash[:12]} fixed"
        return codec.typed(dict(candidate.fixed), cls, what=what, upgrade=_upgraded_facts)

    def recorded(self) -> dict[str, Any]:
        """The JSON values for the ledger, which lets `certain` serve without a certificate."""
        certain = [self.pi0_policy]
        if self.certain_policy is not None:
            certain.append(self.certain_policy)
        return {**codec.plain(self), "certain": certain}

    @property
    def hash(self) -> str:
        """SHA-256 of all of it."""
        text = codec.encode(self, sort_keys=True)
        return hashlib.sha256(f"depsue candidate 2 {text}".encode()).hexdigest()

    def __str__(self) -> str:
        """What is tested, and what is anticipated of it."""
        return (
            f"up to {max(self.novelties):.3f} novelty in "
            f"{counted(len(self.novelties), 'level')}, bound {self.bound}\n"
            f"anticipated value / V(pi0): old part {self.expected.old:.3f}, new part "
            f"{self.expected.new:.3f}; nothing of it is promised"
        )

    @property
    def aim(self) -> float:
        """The novelty at the end of the list: what the candidate is after."""
        return self.novelties[-1]

    def rules(
        self,
        base: Policy,
        model: RewardModel,
        new: Policy,
        catalogue: Catalogue,
        registration: Registration,
    ) -> Rules:
        """The rules of the certificate.

        Args:
            base: the policy that drew the certifying rows.
            model: q-hat; both for the control variate.
            new: the new part of the mixtures.
            catalogue: the actions.
            registration: what the folds hang on, and the parts of old items.
        """
        control, assumed = None, None
        if self.assumed is not None:
            assumed = AssumedRung.by(self.assumed, catalogue, registration, new)
        if self.control is not None:
            control = Control(base, model, self.control.most, self.control.coefficients)
        return Rules(
            promises=self.promises,
            delta=self.delta,
            bound=self.bound,
            clip=self.clip,
            largest=self.largest,
            ceilings=self.ceilings,
            credits=self.credits,
            control=control,
            assumptions=self.assumptions,
            bets=self.bets,
            pilots=self.pilots,
            fixed_length=self.fixed_length,
            assumed=assumed,
            marginal=None if assumed is None else assumed.marginal(base),
        )

    def ladder(self, old: Policy, new: Policy) -> MixtureLadder:
        """The mixtures, safest first."""
        reach = 1.0 if self.assumed is None else self.assumed.reach
        shares = np.array(self.novelties) / reach
        return MixtureLadder((old, new), np.stack([1 - shares, shares], axis=1), reach)


def _upgraded_facts(values: dict[str, Any]) -> dict[str, Any]:
    """From version 0.1: pairs of shares, of hashes and of what is certain, by their place."""
    today = {name: value for name, value in values.items() if name != "certain"}
    today["promises"] = [upgraded_promise(promise) for promise in values["promises"]]
    if "shares" in values:
        today["novelties"] = [novelty for _, novelty in today.pop("shares")]
        today["old"], today["new"] = today.pop("parts")
        today["pi0_policy"], *beside = values["certain"]
        today["certain_policy"] = beside[0] if beside else None
    return today


@dataclass(frozen=True)
class LadderLevel:
    """One mixture of a candidate's ladder: its novelty and anticipated value / V(pi0)."""

    novelty: float
    value: float


@dataclass(frozen=True)
class CandidateTest:
    """One candidate, and what came of its test.

    Args:
        round: that it was made for.
        candidate: its hash.
        trained_at, trained_by, trained_on: when, by whom, and hashes of the data.
        expected: anticipated values of its parts.
        trust: share of what the reward model promised of unseen actions that came true.
        levels: its ladder, in the order of testing.
        state: passed, failed, open, abandoned, or not tested.
        attempt: which read of the certifying rows; None before.
        data: hash of the certifying rows; "" before.
        begun_at, begun_by, ended_at, ended_by: the test.
        note: why it was given up; "" else.
        policy: hash of the policy that was certified; None without.
        certificate: None without a verdict.
        text: the certificate as it was written; "" without.
    """

    round: int
    candidate: str
    trained_at: datetime
    trained_by: str
    trained_on: tuple[str, ...]
    expected: Expected
    trust: float
    levels: tuple[LadderLevel, ...]
    state: str = "not tested"
    attempt: int | None = None
    data: str = ""
    begun_at: datetime | None = None
    begun_by: str = ""
    ended_at: datetime | None = None
    ended_by: str | None = None
    note: str = ""
    policy: str | None = None
    certificate: Certificate | None = None
    text: str = ""

    @classmethod
    def of(cls, candidate: CandidateRecord, attempt: AttemptRecord | None) -> CandidateTest:
        """A recorded candidate, and the attempt on it; None before there is one."""
        facts = CandidateFacts.of(candidate)
        trained = cls(
            round=candidate.round,
            candidate=candidate.policy_hash,
            trained_at=candidate.at,
            trained_by=candidate.by,
            trained_on=tuple(candidate.trained_on),
            expected=facts.expected,
            trust=facts.trust,
            levels=tuple(LadderLevel(nu, facts.expected.value(nu)) for nu in facts.novelties),
        )
        if attempt is None:
            return trained
        text = attempt.certificate
        return replace(
            trained,
            state=attempt.state,
            attempt=attempt.attempt,
            data=attempt.data_hash,
            begun_at=attempt.at,
            begun_by=attempt.by,
            ended_at=attempt.finished_at,
            ended_by=attempt.finished_by,
            note=attempt.note or "",
            policy=attempt.certified,
            certificate=None if text is None else Certificate.from_json(text),
            text=text or "",
        )

    @property
    def tested(self) -> int:
        """How many levels were tested."""
        return 0 if self.certificate is None else self.certificate.tested

    @property
    def certified(self) -> LadderLevel | None:
        """The level that passed; None if none did."""
        if self.certificate is None or not self.certificate.passed:
            return None
        novelty = self.certificate.novelty
        return LadderLevel(novelty, self.expected.value(novelty))

    @property
    def failed(self) -> LadderLevel | None:
        """The level at which the test failed; None if none did."""
        last = self.levels[: self.tested][-1:]
        if not last or (self.certified is not None and last[0].novelty == self.certified.novelty):
            return None
        return last[0]

    def verdict(self, promise: str) -> Verdict:
        """On the promise of that name."""
        verdicts = () if self.certificate is None else self.certificate.verdicts
        return next(verdict for verdict in verdicts if verdict.promise.name == promise)


@dataclass(frozen=True)
class ItemSummary:
    """How often a novel item was shown in a round, and the sum of the rewards.

    Args:
        id: which.
        shown: in how many rows.
        reward: the sum over those of these rows that may be looked at.
        read: how many those are; None is all.
    """

    id: str
    shown: int
    reward: float
    read: int | None = None


@dataclass(frozen=True)
class PromiseSummary:
    """One promise's reward in a round.

    Args:
        rows: that the promise is about.
        mean, error: of the reward and of that mean, over those rows that may be looked at.
    """

    rows: int
    mean: float
    error: float


@dataclass(frozen=True)
class RoundSummary:
    """Counts and sums of a round's rows, never a row.

    Args:
        rows, contexts: how many, and how many distinct contexts.
        novelty: probability of a novel action, by the policy that served.
        novel_rows: rows that show a novel item.
        novel_items: novel items in the catalogue.
        items: those shown most, `MOST_ITEMS` of them.
        promises: by name.
        served: SHA-256 of the policy that served.
        first, last: times of the first and the last row, as text; None without times.
        arrived, withdrawn: ids of items that come from the next round on, and of all that are gone.
        decisions: that were served in the round, whoever decided; None is one for each row.
        by_pi0: of those without a row, how many pi0 took.
        holdout: the share of decisions that pi0 took and whose rows are among these.
        read: rows whose rewards are in the means and sums: the learn and select rows, for no page
            may show what a coming verdict reads. None is all.
        ended: why the round did not end as was declared, in words; "" if it did.
        counts: `campaigns.exposure.ItemCounts`, packed; "" where an older version took it in.
        versions: of pi0, the oldest first; () where the rows do not say.
    """

    rows: int
    contexts: int
    novelty: float
    novel_rows: int
    novel_items: int
    items: tuple[ItemSummary, ...]
    promises: dict[str, PromiseSummary]
    served: str
    first: str | None = None
    last: str | None = None
    arrived: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    decisions: int | None = None
    by_pi0: int = 0
    holdout: float = 0.0
    read: int | None = None
    ended: str = ""
    counts: str = ""
    versions: tuple[str, ...] = ()

    @property
    def read_share(self) -> float:
        """Share of the rows whose rewards are in the means and sums."""
        return 1.0 if self.read is None else self.read / self.rows

    @classmethod
    def of(cls, observation: ObservationRecord) -> RoundSummary:
        """What a recorded round sums up to."""
        what = f"the summary of round {observation.round}"
        return codec.typed(dict(observation.summary), cls, what=what, upgrade=_upgraded_summary)


def _upgraded_summary(values: dict[str, Any]) -> dict[str, Any]:
    """From version 0.1: the times were called from and to."""
    names = {"from": "first", "to": "last"}
    return {names.get(name, name): value for name, value in values.items()}


@dataclass(frozen=True)
class RoundLength:
    """How long a round is to last, declared when it is deployed: so many decisions, or a date.

    Args:
        decisions: that will be served in it, whoever decides.
        until: its end, an ISO date or time, UTC: for traffic that does not depend on outcomes.
    """

    decisions: int | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        require(
            (self.decisions is None) != (self.until is None),
            "a round is declared to last so many decisions, or until a date",
            found=f"decisions {self.decisions}, until {self.until}",
            cure="give one of them: --decisions 50000, or --until 2027-03-01",
        )
        ok = self.decisions is None or (is_whole(self.decisions) and self.decisions >= 1)
        require(ok, "decisions must be a whole number >= 1", found=short(self.decisions))
        if self.until is not None:
            try:
                end = datetime.fromisoformat(self.until)
            except ValueError:
                raise ConfigError(
                    "the end of a round is an ISO date or time",
                    found=short(self.until),
                    cure="--until 2027-03-01, or 2027-03-01T18:00 (UTC)",
                ) from None
            end = end.replace(tzinfo=UTC) if end.tzinfo is None else end.astimezone(UTC)
            object.__setattr__(self, "until", end.replace(tzinfo=None).isoformat())

    @classmethod
    def of(cls, deployments: Sequence[DeploymentRecord]) -> RoundLength | None:
        """What was declared of a round, when it was first deployed; None if nothing was."""
        for deployment in deployments:
            if deployment.declared:
                return codec.typed(dict(deployment.declared), cls, what="the length of a round")
        return None

    def require_ahead(self, now: datetime) -> None:
        """Refuse an end that has passed."""
        past = self.until is not None and datetime.fromisoformat(self.until).replace(tzinfo=UTC)
        require(
            not past or past > now,
            "a round ends after it was deployed",
            found=f"{self}",
            cure="give a date or time to come (UTC), or --decisions",
        )

    def recorded(self) -> dict[str, Any]:
        """The JSON values for the ledger."""
        return {name: value for name, value in codec.plain(self).items() if value is not None}

    def __str__(self) -> str:
        if self.decisions is not None:
            return counted(self.decisions, "decision")
        return f"until {(self.until or '').replace('T', ' ')} UTC"

    def broken_by(self, served: int, missing: int, times: np.ndarray[Any, Any] | None) -> str:
        """Why a round did not end as declared, in words; "" if it did.

        It is the number of rows that must be fixed before their rewards are seen: who leaves
        decisions out, or has pi0 take them, from a moment of his choice on, ends the round then.

        Args:
            served: decisions that were served in it, whoever decided.
            missing: how many of them have no row, and lack it for a reason that rewards may have
                to do with.
            times: (n,) of its rows, in seconds or datetime64; None without.
        """
        if self.decisions is not None:
            if served != self.decisions:
                return f"{counted(served, 'decision')} served, {self.decisions:,} declared"
        if missing > 0:
            return f"{counted(missing, 'decision')} of {served:,} served have no row here"
        if self.decisions is not None:
            return ""
        if times is None:
            return f"declared {self}, and its rows have no times to hold against that"
        end = np.datetime64(self.until, "us")
        seconds = (times - end) / np.timedelta64(1, "s") if times.dtype.kind == "M" else None
        if seconds is None:
            seconds = times - end.astype(np.int64) / 1e6
        late = int((seconds > 0).sum())
        if late:
            return f"{counted(late, 'row')} later than its declared end ({self})"
        ordered = np.sort(np.append(seconds, [0.0]))
        gaps = np.diff(ordered)
        allowed = max(0.01 * -ordered[0], float(gaps[:-1].max(initial=0.0)))
        if gaps[-1] > allowed:
            return f"declared {self}, and its last row is {gaps[-1]:,.0f} s before that"
        return ""
