"""Recomputing a certificate from the logs and the policy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from depsue.certificates.certificate import Certificate, Verdict
from depsue.certificates.folds import three_folds
from depsue.certificates.strict import Credit, Rules, Test, policy_hash
from depsue.certificates.terms import Ceiling
from depsue.data.logs import LoggedData
from depsue.errors import ConfigError, require, short
from depsue.estimators.weights import importance_weights
from depsue.policies import Mixture
from depsue.protocols import Policy

RELATIVE, ABSOLUTE = 1e-6, 1e-7
"""What counts as equal: policies answer in single precision, and machines add in other orders."""


@dataclass(frozen=True)
class Verification:
    """What came of recomputing a certificate.

    Args:
        differences: what differs, in words; empty if everything is equal.
    """

    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether everything that was recomputed is as the certificate says."""
        return not self.differences

    def __str__(self) -> str:
        if self.equal:
            return "equal: data, folds, policy, terms, bounds and verdict are as certified"
        return "differs: " + "; ".join(self.differences)


def verify(
    certificate: Certificate,
    logs: LoggedData,
    policy: Policy,
    *,
    logging_policy: Policy | None = None,
) -> Verification:
    """Recompute a strict certificate.

    Args:
        certificate: what was claimed.
        logs: all rows of the round that it was certified on.
        policy: the policy that it is about.
        logging_policy: pi0, where the terms are paired and another policy logged the rows.

    The verdict is recomputed in full. Ceilings on V(pi0) and margins rest on other rounds' rows
    and are taken as the certificate states them.
    """
    require(
        certificate.kind == "strict",
        "verify recomputes strict certificates",
        found=f"a {short(certificate.kind)} certificate",
        cure="a paper certificate has no folds that could be drawn again",
        error=ConfigError,
    )
    if logs.hash != certificate.data:
        found = f"the logs have the hash {logs.hash[:12]}, certified was {certificate.data[:12]}"
        return Verification((found,))
    differences = []
    own = policy_hash(policy)
    if certificate.policy is not None and own != certificate.policy:
        differences.append(
            f"the policy has the hash {(own or 'none')[:12]}, certified was "
            f"{certificate.policy[:12]}"
        )
    differences += _different_shares(certificate, policy)
    fractions = certificate.fractions
    folds = three_folds(logs, certificate.campaign, (fractions[0], fractions[1], fractions[2]))
    if folds.round != certificate.round:
        differences.append(f"the rows are of round {folds.round}, certified {certificate.round}")
    rules = _rules(certificate)
    if rules.spent(certificate.delta) != certificate.spent:
        differences.append(
            f"delta's parts are {rules.spent(certificate.delta)}, certified {certificate.spent}"
        )
    test = Test(folds.certify, rules, certificate.delta, logging_policy)
    for claimed, verdict in zip(
        certificate.verdicts, test(importance_weights(policy, folds.certify)), strict=True
    ):
        differences += _different(claimed, verdict)
    return Verification(tuple(differences))


def _rules(certificate: Certificate) -> Rules:
    """The rules that the certificate states."""
    ceilings, credits = {}, {}
    for verdict in certificate.verdicts:
        name = verdict.promise.name
        spent = certificate.spent.get(f"ceiling on V(pi0), {name}", 0.0)
        if verdict.ceiling is not None:
            ceilings[name] = Ceiling(verdict.ceiling, spent, 0, "")
        if f"margin, {name}" in certificate.spent:
            credits[name] = Credit(verdict.credit, certificate.spent[f"margin, {name}"])
    return Rules(
        promises=tuple(verdict.promise for verdict in certificate.verdicts),
        delta=certificate.delta,
        bound=certificate.bound,
        clip=certificate.clip,
        ceilings=ceilings,
        largest=certificate.largest,
        credits=credits,
    )


def _different_shares(certificate: Certificate, policy: Policy) -> list[str]:
    """Whether a mixture has the shares that the certificate states."""
    certified = [share for share in certificate.shares if share > 0]
    if certificate.policy is None or len(certified) < 2 or not isinstance(policy, Mixture):
        return []
    own = policy.weights.tolist()
    if own == certified:
        return []
    return [f"the policy's shares are {short(own)}, certified were {short(certified)}"]


def _different(claimed: Verdict, found: Verdict) -> list[str]:
    out = []
    for name in ("n", "delta", "mean", "bound", "need"):
        a, b = getattr(claimed, name), getattr(found, name)
        if not math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            out.append(f"{claimed.promise.name}: {name} is {b:.9g}, certified was {a:.9g}")
    if claimed.passed != found.passed:
        out.append(
            f"{claimed.promise.name}: the verdict is {'passed' if found.passed else 'failed'}"
        )
    return out
