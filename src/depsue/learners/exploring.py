"""Certified exploration: the boldest mixture of old and new that the certificate allows.

One round: fix a list of mixtures (1 - nu) pi_old + nu pi_new, safest first (`prepare`); let the
certifying fold say how far down the list to go (`settle`). While novel actions have not been shown
their reward counts as zero, so nu is what the tilt earned above the floor; once they have been,
their own rewards count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from depsue.certificates import Certificate, CountsReads, Folds, certify
from depsue.errors import require_settings
from depsue.learners.explore_settings import ExploreSettings
from depsue.learners.goal import worth
from depsue.learners.prepare import Before, Prepared, prepare
from depsue.policies import BasePolicy, Mixture
from depsue.progress import Watch, silent
from depsue.protocols import Policy, RewardModel


@dataclass(frozen=True, eq=False)
class Explored:
    """What one round found.

    Args:
        policy: what may be served: certified, or certain, or pi0.
        novelty: nu of that policy.
        certificate: the verdict; of the first level if none passed.
        why: in a sentence, why this policy.
        anticipated: value / V(pi0) and novelty that the select fold promised.
        prepared: what was fixed before the verdict: pi_old and pi_new, the rules, q-hat.
    """

    policy: BasePolicy | Policy
    novelty: float
    certificate: Certificate
    why: str
    anticipated: Mapping[str, float]
    prepared: Prepared

    @property
    def certified(self) -> bool:
        """Whether the policy is one that passed, not a fallback."""
        return self.why.startswith("certified")

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
    return _answer(certificate, prepared, settings, pi0)


def _answer(
    certificate: Certificate, prepared: Prepared, settings: ExploreSettings, pi0: Policy
) -> Explored:
    """The best, by the objective, of what passed, what is certain, and pi0; the first if equal."""
    levels, certain = prepared.levels, settings.certain
    options: list[tuple[float, float, Policy, str]] = []  # value / V(pi0), novelty, policy, why
    if certificate.passed:
        nu = certificate.shares[1]
        level = int(np.flatnonzero(np.isclose(levels.shares[:, 1], nu))[0])
        aimed = certificate.tested == certificate.listed
        how = "aimed at" if aimed else f"the boldest of {certificate.tested} levels tested"
        why = f"certified: novelty {nu:.3f}, {how}"
        options.append((prepared.value(nu), nu, levels.policy(level), why))
    if certain > 0:
        mixture = Mixture([pi0, prepared.new], [1 - certain, certain])
        reason = "more than was certified" if certificate.passed else "nothing else passed"
        why = f"Naive Safe Exploration: novelty {certain:.3f} beside pi0 is certain, and {reason}"
        options.append((prepared.value(certain, naive=True), certain, mixture, why))
    why = "pi0: nothing passed that the objective puts above it"
    options.append((prepared.value(0.0, naive=True), 0.0, pi0, why))

    def score(option: tuple[float, float, Policy, str]) -> float:
        value, nu, _, _ = option
        return float(worth(settings.objective, np.array(value), np.array(nu)))

    value, nu, policy, why = max(options, key=score)
    return Explored(policy, nu, certificate, why, {"value": value, "novelty": nu}, prepared)
