"""Certified exploration: the boldest mixture of old and new that the certificate allows.

One round: fix a list of mixtures (1 - nu) pi_old + nu pi_new, safest first (`prepare`); let the
certifying fold say how far down the list to go (`settle`). While novel actions have not been shown
their reward counts as zero, so nu is what the tilt earned above the floor; once they have been,
their own rewards count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from depsue.certificates import Certificate, CountsReads, Folds, certify
from depsue.errors import require_settings
from depsue.learners.explore_settings import ExploreSettings
from depsue.learners.goal import BALANCED, worth
from depsue.learners.prepare import Before, Expected, Prepared, prepare
from depsue.policies import BasePolicy, Mixture
from depsue.progress import Watch, silent
from depsue.protocols import Policy, RewardModel


@dataclass(frozen=True, eq=False)
class Explored:
    """What one round found.

    Args:
        policy: what may be served: certified, or certain, or pi0.
        choice: which of them, and why.
        certificate: the verdict; of the first level if none passed.
        prepared: what was fixed before the verdict: pi_old and pi_new, the rules, q-hat.
    """

    policy: BasePolicy | Policy
    choice: Choice
    certificate: Certificate
    prepared: Prepared

    @property
    def certified(self) -> bool:
        """Whether the policy is one that passed, not a fallback."""
        return self.choice.what == "certified"

    @property
    def novelty(self) -> float:
        """nu of the policy."""
        return self.choice.novelty

    @property
    def why(self) -> str:
        """In a sentence, why this policy."""
        return self.choice.why

    @property
    def anticipated(self) -> Mapping[str, float]:
        """value / V(pi0) and novelty that the select fold promised."""
        return {"value": self.choice.value, "novelty": self.choice.novelty}

    @property
    def model(self) -> RewardModel:
        """q-hat, which a control variate in the certificate rests on."""
        return self.prepared.model


def explore(
    folds: Folds,
    logging_policy: Policy,
    settings: ExploreSettings | None = None,
    *,
    seed: int,
    reads: CountsReads,
    watch: Watch = silent,
) -> Explored:
    """The first round of certified exploration; `run_exploration` has all of them.

    Args:
        folds: logs of pi0.
        logging_policy: pi0.
        settings: how.
        seed: of the reward model.
        reads: counts verdicts.
        watch: shows progress.
    """
    settings = settings or ExploreSettings()
    require_settings(settings, ExploreSettings)
    before = Before(folds, logging_policy)
    prepared = prepare(before, settings, seed=seed, watch=watch)
    return settle(prepared, before, settings, reads=reads, watch=watch)


def settle(
    prepared: Prepared,
    before: Before,
    settings: ExploreSettings,
    *,
    reads: CountsReads,
    watch: Watch = silent,
) -> Explored:
    """Let the certifying fold speak, and choose what to serve.

    Args:
        prepared: what was fixed.
        before: what it was made from.
        settings: how.
        reads: counts verdicts.
        watch: shows progress.
    """
    pi0 = before.logging_policy
    pairing = None if before.base is None or before.base is pi0 else pi0
    watch("certificate", 0, 1, "")
    certificate = certify(
        prepared.levels, before.folds, prepared.rules, reads, logging_policy=pairing
    )
    watch("certificate", 1, 1, "passed" if certificate.passed else "failed")
    choice = choices(
        certificate, prepared.expected, settings, aim=float(prepared.levels.shares[-1, 1])
    )[0]
    policy = _policy_of(choice, certificate, prepared, pi0)
    return Explored(policy, choice, certificate, prepared)


@dataclass(frozen=True)
class Choice:
    """What may be served, as far as the verdict and the anticipated values say.

    Args:
        what: the certified mixture, the certain level beside pi0, or pi0 itself.
        novelty: its nu.
        value: value / V(pi0) that is anticipated.
        why: in a sentence.
    """

    what: Literal["certified", "certain", "pi0"]
    novelty: float
    value: float
    why: str


def choices(
    certificate: Certificate, expected: Expected, settings: ExploreSettings, *, aim: float
) -> tuple[Choice, ...]:
    """What passed, what is certain, and pi0: the best by the objective first.

    A floor says how much may be given up for new items. The objective "balanced" takes it at its
    word: what is certain goes before what shows less and is not expected to earn more than pi0.

    Args:
        certificate: the verdict.
        expected: values that are anticipated.
        settings: how.
        aim: the novelty at the end of the list.
    """
    certain = settings.certain
    options: list[Choice] = []
    if certificate.passed:
        nu = certificate.shares[1]
        tested = f"the boldest of {certificate.tested} levels tested"
        how = "as much as was aimed at" if np.isclose(nu, aim) else tested
        why = f"certified: novelty {nu:.3f}, {how}"
        options.append(Choice("certified", nu, expected.value(nu), why))
    if certain > 0:
        why = f"Naive Safe Exploration: novelty {certain:.3f} beside pi0 is certain"
        if not certificate.passed:
            why += ", and nothing else passed"
        elif certain > certificate.shares[1]:
            why += ", and more than was certified"
        options.append(Choice("certain", certain, expected.value(certain, naive=True), why))
    why = "pi0, which needs no certificate"
    options.append(Choice("pi0", 0.0, expected.value(0.0, naive=True), why))

    plain = expected.value(0.0, naive=True)

    def score(one: Choice) -> float:
        if settings.objective == BALANCED and one.novelty < certain and one.value <= plain:
            return -np.inf
        return float(worth(settings.objective, np.array(one.value), np.array(one.novelty)))

    best = sorted(options, key=score, reverse=True)
    if best[0].what == "pi0":
        why = "pi0: nothing passed that the objective puts above it"
        best[0] = replace(best[0], why=why)
    return tuple(best)


def certified_policy(certificate: Certificate, prepared: Prepared) -> BasePolicy:
    """The policy that a certificate is about."""
    shares = prepared.levels.shares
    same = np.isclose(shares[:, 1], certificate.shares[1])
    return prepared.levels.policy(int(np.flatnonzero(same)[0]))


def _policy_of(
    choice: Choice, certificate: Certificate, prepared: Prepared, pi0: Policy
) -> BasePolicy | Policy:
    """The policy that a choice means."""
    if choice.what == "certified":
        return certified_policy(certificate, prepared)
    nu = choice.novelty
    return pi0 if choice.what == "pi0" else Mixture([pi0, prepared.new], [1 - nu, nu])
