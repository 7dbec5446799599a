"""Recomputing a certificate from the logs and the policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from depsue.bounds import Pilot
from depsue.certificates.assumed import AssumedRung
from depsue.certificates.certificate import RULES, Certificate, Verdict
from depsue.certificates.folds import Folds, StreamedFolds, three_folds
from depsue.certificates.pooling import LoggedRound, pooled
from depsue.certificates.rules import Control, Credit, MixtureLadder, Rules
from depsue.certificates.strict import verdicts_on
from depsue.certificates.terms import ROUNDING, SINGLE, Ceiling, surplus
from depsue.data.catalogue import Catalogue
from depsue.data.logs import ErasedRows, LoggedData
from depsue.data.partitions import LogStream, StreamedFold
from depsue.errors import ConfigError, require, short
from depsue.estimators import MIPS
from depsue.plural import counted
from depsue.policies import Mixture
from depsue.promises import Promise
from depsue.protocols import Policy, RewardModel
from depsue.savable import hash_of

RELATIVE, ABSOLUTE = 1e-6, 1e-7
"""What counts as equal: policies answer in single precision, and machines add in other orders."""


@dataclass(frozen=True)
class Verification:
    """What came of recomputing a certificate.

    Args:
        differences: what differs, in words; empty if nothing does.
        missing: what cannot be recomputed because users had rows erased after the verdict, in
            words; empty if all of it can.
        erased: how many rows were erased after the verdict.
    """

    differences: tuple[str, ...]
    missing: tuple[str, ...] = ()
    erased: int = 0

    @property
    def equal(self) -> bool:
        """Whether all of the verdict was recomputed, and is as the certificate says."""
        return not self.differences and not self.missing

    def __str__(self) -> str:
        if self.differences:
            return "differs: " + "; ".join((*self.differences, *self.missing))
        if self.missing:
            return "no difference in what is left: " + "; ".join(self.missing)
        if self.erased:
            return (
                f"equal: {counted(self.erased, 'row')} erased after the verdict, none of which it "
                "had read; folds, policy, terms, bounds and verdict are as certified"
            )
        return "equal: data, folds, policy, terms, bounds and verdict are as certified"


def verify(
    certificate: Certificate,
    logs: LoggedData | LogStream,
    policy: Policy,
    *,
    logging_policy: Policy | None = None,
    base: Policy | None = None,
    model: RewardModel | None = None,
    groups: Any = None,
    earlier: Mapping[int, tuple[LoggedData, Policy]] | None = None,
) -> Verification:
    """Recompute a strict certificate.

    Args:
        certificate: what was claimed.
        logs: all rows of the round that it was certified on, in memory or as a stream: it does not
            matter which of the two it was certified from.
        policy: the policy that it is about.
        logging_policy: pi0, where the terms are paired and another policy logged the rows.
        base: the policy that logged the rows, where there is a control variate or groups, or
            where rows of earlier rounds were pooled.
        model: the reward model of the control variate.
        groups: (A,) the group of each action, where weights are marginal.
        earlier: by round, all rows and the policy that logged them, of the rounds that were pooled
            with the newest (`certificate.strata`).

    The verdict is recomputed in full. Ceilings on V(pi0) and margins rest on other rounds' rows
    and are taken as the certificate states them.

    Where users had rows erased after the verdict (`logs.erased`, which the logs of a campaign
    bring), what is left is recomputed: the certified number of values must be those that are left
    and those that were erased, and the certified mean must be one that the erased values allow.
    """
    require(
        certificate.kind != "paper",
        "verify recomputes strict certificates, and those on declared assumptions",
        found=f"a {short(certificate.kind)} certificate",
        cure="a paper certificate has no folds that could be drawn again",
        error=ConfigError,
    )
    if certificate.registration is None or certificate.rules != RULES:
        raise ConfigError(
            "a certificate is recomputed by the rules that it was reached by",
            found=f"rules of version {certificate.rules}, this depsue has {RULES}",
            cure="verify it with the version of depsue that wrote it: "
            f"pip install depsue=={certificate.version}",
        )
    erased = _erased_since(certificate.data, logs)
    if logs.hash != certificate.data and not erased:
        words = f"the logs have the hash {logs.hash[:12]}, certified was {certificate.data[:12]}"
        return Verification((words,))
    differences = []
    own = hash_of(policy)
    if certificate.policy is not None and own != certificate.policy:
        differences.append(
            f"the policy has the hash {(own or 'none')[:12]}, certified was "
            f"{certificate.policy[:12]}"
        )
    differences += _different_shares(certificate, policy)
    if certificate.fractions != certificate.registration.fractions:
        differences.append(
            f"fractions are {certificate.registration.fractions} as registered, certified "
            f"{certificate.fractions}"
        )
    folds: Folds | StreamedFolds = three_folds(
        logs,
        certificate.registration,
        units=certificate.units,
        group=certificate.group,
        reserve=certificate.reserve,
    )
    if certificate.strata and (lost := _erased_of_pool(certificate, logs, earlier or {})):
        return Verification(tuple(differences), (_words_on_pool(lost),), sum(lost.values()))
    if certificate.strata:
        folds, base, unlike = _pooled_again(certificate, folds, base, earlier or {})
        if unlike:
            return Verification((*differences, *unlike))
    if folds.round != certificate.round:
        differences.append(f"the rows are of round {folds.round}, certified {certificate.round}")
    rules = _rules(certificate, base, model, groups)
    if certificate.assumed is not None:
        rules = replace(rules, **_on_items(certificate, logs.catalogue, policy, base))
    rules = replace(rules, credits=_with_surplus(rules, folds.certify))
    differences += _different_knowledge(certificate, rules)
    spent = rules.spent(certificate.delta)
    if spent != certificate.spent:
        differences.append(f"delta's parts are {spent!r}, certified {certificate.spent!r}")
    ladder = _ladder(certificate, policy)
    gone = sum(erasure.certifying for erasure in erased)
    levels = list(verdicts_on(ladder, folds.certify, rules, certificate.delta, logging_policy))
    for level, verdicts in enumerate(levels[:-1], 1):
        if not gone and not all(verdict.passed for verdict in verdicts):
            differences.append(f"level {level} of the list does not pass: it ends there")
    missing: list[str] = []
    for claimed, verdict in zip(certificate.verdicts, levels[-1], strict=True):
        if gone:
            differences += _impossible(claimed, verdict, gone, certificate, folds.certify.r_max)
            missing.append(_left(claimed, verdict, gone))
        else:
            differences += _different(claimed, verdict)
    rows = sum(erasure.rows for erasure in erased)
    if gone:
        dates = ", ".join(dict.fromkeys(erasure.at[:10] for erasure in erased))
        words = f"{counted(rows, 'row')} of round {folds.round} erased after the verdict ({dates})"
        missing.insert(0, words)
    return Verification(tuple(differences), tuple(missing), rows)


def _erased_since(data: str, logs: LoggedData | LogStream) -> tuple[ErasedRows, ...]:
    """What was erased from rows since they had this hash; () if nothing was."""
    if isinstance(logs, LogStream):
        return ()
    for place, erasure in enumerate(logs.erased):
        if erasure.data == data:
            return logs.erased[place:]
    return ()


def _erased_of_pool(
    certificate: Certificate,
    newest: LoggedData | LogStream,
    earlier: Mapping[int, tuple[LoggedData, Policy]],
) -> dict[int, int]:
    """How many rows were erased since the verdict from each round that was pooled."""
    logs = {round: rows for round, (rows, _) in earlier.items()}
    lost = {}
    for stratum in certificate.strata:
        erased = _erased_since(stratum.data, logs.get(stratum.round, newest))
        if erased:
            lost[stratum.round] = sum(erasure.rows for erasure in erased)
    return lost


def _words_on_pool(lost: Mapping[int, int]) -> str:
    rows = ", ".join(f"{counted(n, 'row')} of round {round}" for round, n in lost.items())
    return (
        f"{rows} erased after the verdict, which pooled rows of several rounds by lot: without "
        "them the lot cannot be drawn again"
    )


def _left(claimed: Verdict, recomputed: Verdict, gone: int) -> str:
    """What the rows that are left say of a promise."""
    name = claimed.promise.name
    if not claimed.shown:
        return f"{name}: {gone:,} of the values that it read are gone"
    return (
        f"{name}: {claimed.n - recomputed.n:,} of {claimed.n:,} values are gone; on the others the "
        f"mean is {recomputed.mean:.6g} (certified {claimed.mean:.6g}) and the bound "
        f"{recomputed.bound:.6g} (certified {claimed.bound:.6g})"
    )


def _impossible(
    claimed: Verdict, recomputed: Verdict, gone: int, certificate: Certificate, r_max: float
) -> list[str]:
    """What the certificate says, and no values in place of the erased ones could make true."""
    name, out = claimed.promise.name, []
    missing = claimed.n - recomputed.n
    exact = claimed.promise.segment is None
    if missing != gone if exact else not 0 <= missing <= gone:
        out.append(
            f"{name}: {recomputed.n:,} values are left and {gone:,} were erased, certified were "
            f"{claimed.n:,}"
        )
    for what in ("delta", "need"):
        a, b = getattr(claimed, what), getattr(recomputed, what)
        if claimed.shown and not math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            out.append(f"{name}: {what} is {b:.9g}, certified was {a:.9g}")
    if out or not claimed.shown:
        return out
    lower, upper = _limits(claimed.promise, certificate, r_max)
    total = recomputed.mean * recomputed.n
    low, high = ((total + missing * limit) / claimed.n for limit in (lower, upper))
    slack = ABSOLUTE + RELATIVE * abs(claimed.mean)
    if not low - slack <= claimed.mean <= high + slack:
        out.append(
            f"{name}: with what was erased the mean lies between {low:.9g} and {high:.9g}, "
            f"certified was {claimed.mean:.9g}"
        )
    return out


def _limits(promise: Promise, certificate: Certificate, r_max: float) -> tuple[float, float]:
    """What no term of a promise can fall below, and what none can exceed."""
    most = r_max if promise.r_max is None else promise.r_max
    paired = any(v.promise.name == promise.name and v.paired for v in certificate.verdicts)
    rho = promise.floor.ratio if paired and promise.floor.ratio is not None else 0.0
    lower = -rho * certificate.largest * (1 + SINGLE) * most
    coefficient = (certificate.control or {}).get(promise.name, 0.0)
    q = coefficient * (certificate.control_most or 0.0)
    slack = 2 * ROUNDING * q * (1 + rho) * (1 + certificate.largest + certificate.clip)
    return (
        lower - q * (certificate.clip + rho) - slack,
        certificate.clip * most + q * (1 + rho * certificate.largest) + slack,
    )


def _pooled_again(
    certificate: Certificate,
    newest: Folds | StreamedFolds,
    base: Policy | None,
    earlier: Mapping[int, tuple[LoggedData, Policy]],
) -> tuple[Folds | StreamedFolds, Policy | None, list[str]]:
    """The pooled folds, the mixture that their rows count as drawn by, and what differs."""
    *before, last = certificate.strata
    missing = [stratum.round for stratum in before if stratum.round not in earlier]
    if base is None or missing or not isinstance(newest, Folds):
        raise ConfigError(
            "a certificate on pooled rows is recomputed from the rows of all rounds in it, in "
            "memory, and from the policies that logged them",
            found=f"base {short(base)}, no rows of the rounds {missing}",
            cure="verify(..., base=..., earlier={round: (logs, policy)})",
        )
    own = hash_of(base)
    unlike = [] if own == last.policy else [f"round {last.round} was logged by another policy"]
    rounds = []
    for stratum in before:
        logs, policy = earlier[stratum.round]
        if logs.hash != stratum.data:
            unlike.append(
                f"the logs of round {stratum.round} have the hash {logs.hash[:12]}, pooled were "
                f"{stratum.data[:12]}"
            )
        if hash_of(policy) != stratum.policy:
            unlike.append(f"round {stratum.round} was logged by another policy")
        rounds.append(LoggedRound(logs, stratum.registration, policy))
    pool = None if unlike else pooled(newest, base, rounds)
    if pool is None or pool.folds.strata != certificate.strata:
        return newest, base, unlike or ["other rows are pooled than were certified on"]
    return pool.folds, pool.policy, []


def _ladder(certificate: Certificate, policy: Policy) -> MixtureLadder:
    """The levels up to the certified one, mixed of the policy's parts; the policy alone else.

    A level before it that has a part which the policy does not have cannot be built again.
    """
    shown = [place for place, share in enumerate(certificate.shares) if share > 0]
    if not isinstance(policy, Mixture) or len(shown) < 2 or len(policy.parts) != len(shown):
        return MixtureLadder((policy,), np.ones((1, 1)))
    own = np.asarray(policy.weights)[None, :]
    path = certificate.path
    if certificate.shares not in path:
        return MixtureLadder(tuple(policy.parts), own)
    before = np.asarray(path[: path.index(certificate.shares)], dtype=np.float64)
    before = before.reshape(-1, len(certificate.shares))
    known = before[np.delete(before, shown, axis=1).sum(axis=1) == 0][:, shown]
    return MixtureLadder(tuple(policy.parts), np.concatenate([known, own]))


def _rules(
    certificate: Certificate, base: Policy | None, model: RewardModel | None, groups: Any
) -> Rules:
    """The rules that the certificate states."""
    control, marginal = None, None
    if certificate.control is not None:
        if base is None or model is None:
            raise ConfigError(
                "a certificate with a control variate rests on a reward model and on the policy "
                "that logged the rows",
                found=f"base {short(base)}, model {short(model)}",
                cure="verify(..., base=..., model=...)",
            )
        control = Control(base, model, certificate.control_most or 0.0, certificate.control)
    if certificate.groups is not None and certificate.assumed is None:
        if base is None or groups is None:
            raise ConfigError(
                "a certificate with marginal weights rests on groups and on the policy that "
                "logged the rows",
                found=f"base {short(base)}, groups {short(groups)}",
                cure="verify(..., base=..., groups=...)",
            )
        marginal = MIPS(base, groups)
    ceilings, credits, spent = {}, {}, certificate.spent
    bets, pilots, taus = {}, {}, {}
    for verdict in certificate.verdicts:
        name, constants = verdict.promise.name, verdict.constants
        _require_constants(certificate, constants)
        if certificate.bound == "betting" and certificate.fixed_length:
            (bets[name],) = constants["bets"]
        if certificate.bound == "normal":
            pilots[name] = Pilot(**constants["pilot"])
        if certificate.bound == "hcope":
            taus[name] = constants["tau"]
        if verdict.ceiling is not None:
            ceilings[name] = Ceiling(verdict.ceiling, spent.ceilings.get(name, 0.0), 0, "")
        if name in spent.margins:
            credits[name] = Credit(verdict.credit, spent.margins[name], fewest=verdict.fewest)
    return Rules(
        promises=tuple(verdict.promise for verdict in certificate.verdicts),
        delta=certificate.delta,
        bound=certificate.bound,
        clip=certificate.clip,
        ceilings=ceilings,
        largest=certificate.largest,
        credits=credits,
        control=control,
        marginal=marginal,
        bets=bets,
        pilots=pilots,
        taus=taus,
        fixed_length=certificate.fixed_length,
        erased=certificate.erased,
    )


def _on_items(
    certificate: Certificate, catalogue: Catalogue, policy: Policy, base: Policy | None
) -> dict[str, Any]:
    """What the declared assumption adds to the rules."""
    if certificate.assumed is None or certificate.registration is None:
        return {}
    if certificate.shares[-1] == 0:  # nothing was shown by what is assumed, so it does not count
        worth = {v.promise.name: v.worth or 0.0 for v in certificate.verdicts}
        return {"assumed": AssumedRung(certificate.assumed.rung, catalogue, worth=worth)}
    assumed = AssumedRung.by(certificate.assumed, catalogue, certificate.registration, policy)
    if assumed.groups is None:
        return {"assumed": assumed}
    if base is None:
        raise ConfigError(
            "a certificate with groups rests on the policy that logged the rows",
            found="base None",
            cure="verify(..., base=...)",
        )
    return {"assumed": assumed, "marginal": MIPS(base, assumed.groups)}


def _require_constants(certificate: Certificate, constants: Mapping[str, Any]) -> None:
    """Refuse a certificate whose bound was tuned on the certifying rows themselves."""
    needed = {"betting": "bets", "normal": "pilot", "hcope": "tau"}.get(certificate.bound)
    require(
        needed is None or needed in constants,
        f"a certificate records the constants of its bound ({needed}), from the select fold",
        found=f"a certificate of depsue {certificate.version} without them",
        cure="recompute it with the version that made it, or certify on new rows",
    )


def _with_surplus(rules: Rules, rows: LoggedData | StreamedFold) -> dict[str, Credit]:
    """The credits, with what the certifying rows earned above the floor where they rest on it."""
    credits, promises = dict(rules.credits), {promise.name: promise for promise in rules.promises}
    for name, credit in rules.credits.items():
        if credit.fewest is not None:
            parts = [rows] if isinstance(rows, LoggedData) else rows.partitions()
            total = sum(surplus(promises[name], part) for part in parts)
            credits[name] = replace(credit, surplus=total)
    return credits


def _different_knowledge(certificate: Certificate, rules: Rules) -> list[str]:
    """Whether model and groups are those of the certificate."""
    out = []
    if rules.control is not None and certificate.model is not None:
        own = hash_of(rules.control.model)
        if own != certificate.model:
            certified = certificate.model[:12]
            out.append(f"the model has the hash {(own or 'none')[:12]}, certified was {certified}")
    if rules.marginal is not None and rules.marginal.groups_hash != certificate.groups:
        out.append("the groups of actions are not those of the certificate")
    return out


def _different_shares(certificate: Certificate, policy: Policy) -> list[str]:
    """Whether a mixture has the shares that the certificate states."""
    certified = [share for share in certificate.shares if share > 0]
    if certificate.policy is None or len(certified) < 2 or not isinstance(policy, Mixture):
        return []
    own = policy.weights.tolist()
    if own == certified:
        return []
    return [f"the policy's shares are {short(own)}, certified were {short(certified)}"]


def _different(claimed: Verdict, recomputed: Verdict) -> list[str]:
    out: list[str] = []
    if not claimed.shown and not recomputed.passed:
        return out  # it failed, which is all that was said
    for name in ("n", "delta", "mean", "bound", "need", "surplus", "worth"):
        a, b = (getattr(verdict, name) or 0.0 for verdict in (claimed, recomputed))
        if not math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            out.append(f"{claimed.promise.name}: {name} is {b:.9g}, certified was {a:.9g}")
    if claimed.passed != recomputed.passed:
        out.append(
            f"{claimed.promise.name}: the verdict is {'passed' if recomputed.passed else 'failed'}"
        )
    return out
