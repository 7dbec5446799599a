"""MIPS: importance weights over groups of actions instead of single actions."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.data.terms import Terms
from depsue.errors import require
from depsue.estimators.weights import distributions, mass_on, mean_estimate, unseen
from depsue.protocols import Estimate, Policy

AGREEMENT = 1e-3
"""How far, relatively, pi0 may be from a logged propensity (single precision, rounding)."""


@dataclass(frozen=True, eq=False)
class MIPS:
    """Marginalised IPS: the mean over rows of w(x, e) r, with w(x, e) = pi(e|x) / pi0(e|x).

    e is the declared group of the row's action, and pi(e|x) the sum of pi(a|x) over the group.
    It rests on an assumption that the logs cannot prove: given the context, the action has no
    effect on the reward beyond its group. Under it, a novel action in a group that pi0 shows is
    worth its group. Because of it, the terms are not conservative as they stand.

    Args:
        pi0: the policy that drew the rows, callable on the logged contexts.
        groups: (A,) the group of each action: integers or strings.

    Reference: Saito & Joachims, Off-policy evaluation for large action spaces via embeddings,
    2022.
    """

    pi0: Policy
    groups: Any

    def __post_init__(self) -> None:
        groups = np.asarray(self.groups)
        require(
            groups.ndim == 1 and groups.dtype.kind in "iuU",
            "groups must be one integer or string per action",
            found=f"{groups.dtype} of shape {groups.shape}",
            cure="give the category of each action of the catalogue, in its order",
        )
        object.__setattr__(self, "groups", groups)

    @property
    def groups_hash(self) -> str:
        """SHA-256 of the group of each action, by which a certificate knows them."""
        return hashlib.sha256(json.dumps(self.groups.tolist()).encode()).hexdigest()

    def terms(self, policy: Policy, logs: LoggedData) -> Terms:
        """(n,) terms w(x_i, e_i) r_i, never below 0."""
        return Terms(self.weights(policy, logs) * logs.reward, 0.0, unit=logs.unit)

    def weights(self, policy: Policy, logs: LoggedData) -> FloatArray:
        """(n,) w(x_i, e_i)."""
        self._check(logs)
        return np.asarray(self._group_mass(policy, logs) / self._group_mass(self.pi0, logs))

    def estimate(self, policy: Policy, logs: LoggedData) -> Estimate:
        """The mean of the terms."""
        terms = self.terms(policy, logs)
        away = unseen(policy, logs)
        hidden = ~np.isin(self._group, self._group[logs.action])  # (A,) in a group never shown
        lost = mass_on(policy, logs, away.actions[hidden[away.actions]])
        effect = (
            f"{lost:.4g} is in groups that the logs never show and counts as reward 0, "
            f"{max(away.mass - lost, 0.0):.4g} is in groups that they show and is assumed to be "
            "worth its group"
        )
        return mean_estimate("MIPS", terms, away, effect)

    @cached_property
    def _group(self) -> IntArray:
        """(A,) the groups numbered 0 .. G - 1."""
        return np.unique(self.groups, return_inverse=True)[1]

    def _group_mass(self, policy: Policy, logs: LoggedData) -> FloatArray:
        """(n,) the policy's probability of each row's group, at the row's context."""
        by_group = np.argsort(self._group, kind="stable")
        starts = np.searchsorted(self._group[by_group], np.arange(self._group.max() + 1))
        by_context = np.argsort(logs.context, kind="stable")
        ordered = logs.context[by_context]
        mass = np.empty(len(logs))
        for piece, probabilities in distributions(policy, logs):
            masses = np.add.reduceat(probabilities[:, by_group], starts, axis=1, dtype=np.float64)
            first, last = np.searchsorted(ordered, [piece.start, piece.stop])
            rows = by_context[first:last]
            mass[rows] = masses[logs.context[rows] - piece.start, self._group[logs.action[rows]]]
        return mass

    def _check(self, logs: LoggedData) -> None:
        require(
            logs.candidates is None,
            "MIPS groups the actions of a whole catalogue",
            found="logs whose requests bring candidates of their own",
            cure="use weights of single actions: IPS, DR",
        )
        require(
            len(self.groups) == len(logs.catalogue),
            "groups must be one integer or string per action",
            found=f"{len(self.groups)} groups for {len(logs.catalogue)} actions",
            cure="give the category of each action of the catalogue, in its order",
        )
        drawn = np.exp(self.pi0.log_prob(logs.requests, logs.action, logs.context))
        wrong = np.flatnonzero(~(np.abs(drawn - logs.propensity) <= AGREEMENT * logs.propensity))
        require(
            len(wrong) == 0,
            "pi0 must be the policy that drew the rows",
            found=""
            if len(wrong) == 0
            else f"row {wrong[0]} was drawn with propensity {logs.propensity[wrong[0]]:g}, pi0 "
            f"gives {drawn[wrong[0]]:g} ({len(wrong):,} such rows)",
            cure="pass the policy of these logs, and only the rows of its round",
        )
