"""What the ledger keeps of a round, typed: what a candidate fixed, and what its rows sum up to.

The ledger's own records hold JSON values; `CandidateFacts.of` and `RoundSummary.of` read them, in
today's layout or an earlier one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from depsue import codec
from depsue.certificates import Ceiling, Control, Credit, MixtureLadder, Rules
from depsue.errors import CannotBeSaved
from depsue.exploration.round import Expected, FrozenCandidate
from depsue.ledger import CandidateRecord, ObservationRecord
from depsue.promises import Promise, upgraded_promise
from depsue.protocols import Policy, RewardModel
from depsue.savable import hash_of


@dataclass(frozen=True)
class ControlFacts:
    """A control variate without its policy and model: see `depsue.certificates.Control`."""

    most: float
    coefficients: dict[str, float]


@dataclass(frozen=True)
class CandidateFacts:
    """All that a round fixes before its certifying rows are read; policies by their SHA-256.

    Args:
        promises, delta, bound, clip, largest, ceilings, credits, assumptions: of the certificate's
            `Rules`.
        control: of its control variate; None without one.
        novelties: nu of each mixture (1 - nu) old + nu new, in the order in which they are tested.
        expected: value / V(pi0) that is anticipated of old, new and pi0.
        trust: share of what q-hat promises of unseen actions that came true in the rehearsal.
        old, new: the parts of the mixtures.
        model: q-hat.
        pi0_policy: pi0 as it may be served in this round, without items that were withdrawn.
        certain_policy: the mixture of pi0 and new that needs no certificate; None if there is none.
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

    @classmethod
    def fixed_by(
        cls, candidate: FrozenCandidate, *, pi0_policy: str, certain_policy: str | None
    ) -> CandidateFacts:
        """What a candidate fixes; the two hashes are of what needs no certificate."""
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

    @property
    def aim(self) -> float:
        """The novelty at the end of the list: what the candidate is after."""
        return self.novelties[-1]

    def rules(self, base: Policy, model: RewardModel) -> Rules:
        """The rules of the certificate.

        Args:
            base: the policy that drew the certifying rows.
            model: q-hat; both for the control variate.
        """
        control = None
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
        )

    def ladder(self, old: Policy, new: Policy) -> MixtureLadder:
        """The mixtures, safest first."""
        novelties = np.array(self.novelties)
        return MixtureLadder((old, new), np.stack([1 - novelties, novelties], axis=1))


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
class ItemSummary:
    """How often a novel item was shown in a round, and the sum of the rewards."""

    id: str
    shown: int
    reward: float


@dataclass(frozen=True)
class PromiseSummary:
    """One promise's reward in a round: its rows, the mean, and the mean's standard error."""

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

    @classmethod
    def of(cls, observation: ObservationRecord) -> RoundSummary:
        """What a recorded round sums up to."""
        what = f"the summary of round {observation.round}"
        return codec.typed(dict(observation.summary), cls, what=what, upgrade=_upgraded_summary)


def _upgraded_summary(values: dict[str, Any]) -> dict[str, Any]:
    """From version 0.1: the times were called from and to."""
    names = {"from": "first", "to": "last"}
    return {names.get(name, name): value for name, value in values.items()}


def required_hash(policy: Policy | None) -> str:
    """The hash of a policy, which must be savable."""
    hash = hash_of(policy)
    if hash is None:
        raise CannotBeSaved(
            "a campaign's policies must be savable, so that what was certified can be served",
            found=f"{type(policy).__name__}",
            cure="give pi0 as a saved folder, an ONNX file or a table; see the policies page",
        )
    return hash
