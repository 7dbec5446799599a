"""The objective F (Eq. 1 and 2), and the gradient step on F + lambda R (Eq. 7).

OPG and Safe OPG share both: OPG takes steps with lambda = 0. The parts, in order: objectives, the
settings of training, `PolicyGradient`, and the two ways in which a step gets its predictions q-hat.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch

from depsue import rng
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.errors import is_whole, require, require_positive, short
from depsue.policies.network import NetworkPolicy
from depsue.protocols import RewardModel


class Objective(Protocol):
    """F(pi) as a mean over contexts of a function of pi(.|x) and q-hat(x, .)."""

    def __call__(
        self, log_pi: torch.Tensor, pi: torch.Tensor, q: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(m,) values of F at m contexts and its derivative (m, A) by log pi.

        Args:
            log_pi: (m, A) log-probabilities.
            pi: (m, A) probabilities.
            q: (m, A) predicted rewards.
        """
        ...


@dataclass(frozen=True)
class ValueWithEntropy:
    """Eq. 2: the value of the policy, by the direct estimate of Eq. 1, and its entropy.

    F at a context x is (1 - alpha) sum_a pi(a|x) q(x, a) - alpha sum_a pi(a|x) log pi(a|x).

    Args:
        alpha: the weight of the entropy, which pulls pi towards uniform; the paper's is 0.1.
        entropy: how the entropy enters the gradient. "exact" differentiates the sum above. "one
            action" differentiates -alpha log pi(a|x) of one action a, drawn from pi, as it stands:
            that has mean zero, so it adds noise and pulls nowhere. The paper does not say.
    """

    alpha: float = 0.1
    entropy: Literal["exact", "one action"] = "exact"

    def __post_init__(self) -> None:
        require(0 <= self.alpha <= 1, "alpha must lie in [0, 1]", found=self.alpha)
        require(
            self.entropy in ("exact", "one action"),
            "entropy must be 'exact' or 'one action'",
            found=short(self.entropy),
            cure="'exact' is Eq. 2",
        )

    def __call__(
        self, log_pi: torch.Tensor, pi: torch.Tensor, q: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # The derivative of pi by log pi is pi: of each summand it is the summand, less alpha pi.
        gain = pi * torch.sub(q * (1 - self.alpha), log_pi, alpha=self.alpha)
        if self.entropy == "exact":
            return gain.sum(dim=1), torch.sub(gain, pi, alpha=self.alpha)
        return gain.sum(dim=1), pi * q * (1 - self.alpha)  # `PolicyGradient` draws the action


@dataclass(frozen=True)
class OwnObjective:
    """Any objective: a torch function of log pi (m, A) and q (m, A) that returns (m,) values.

    Its derivative is found by autograd, so it must be differentiable in log pi.
    """

    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def __call__(
        self, log_pi: torch.Tensor, pi: torch.Tensor, q: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            leaf = log_pi.detach().requires_grad_(True)
            values = self.function(leaf, q)
            cure = "sum over actions: lambda log_pi, q: (log_pi.exp() * q).sum(dim=1)"
            require(
                isinstance(values, torch.Tensor) and values.requires_grad,
                "an objective must return a torch tensor that depends on log_pi",
                found=type(values).__name__,
                cure=cure,
            )
            require(
                values.shape == (len(log_pi),) and bool(values.isfinite().all()),
                f"an objective must return one finite value per context, {len(log_pi)} here",
                found=f"shape {tuple(values.shape)}",
                cure=cure,
            )
            (gradient,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach(), gradient


MAX_EVERY = 100
"""With `factor="contexts"` the largest probability is looked up anew after so many steps."""
CONTEXTS_AT_ONCE = 256
"""Contexts whose distributions are held at once for that."""


LARGEST_TABLE = 1 << 26
"""Up to this many predictions (contexts times actions, 256 MB) are computed once, before the first
step; beyond it each step computes those of its minibatch."""


@dataclass(frozen=True)
class OpgSettings:
    """How a network is trained; defaults are the paper's for naive OPG, but for `standardise`."""

    steps: int = 10_000
    """S: gradient steps."""
    rate: float = 0.1
    """eta_psi: step size of the policy."""
    batch: int = 256
    """Rows per step."""
    objective: Objective = ValueWithEntropy()
    """F: what is maximised."""
    hidden: tuple[int, ...] = (100,)
    """Widths of the hidden layers."""
    standardise: bool = True
    """Standardise contexts to the training contexts' mean and deviation (the paper does not)."""
    sampled_actions: int | None = None
    """Ask q-hat about so many actions a row, sampled from pi; None: about all. For catalogues so
    large that predictions for all pairs would cost too much. Unbiased where F is linear in q."""
    baseline: bool = True
    """Subtract the mean reward from q-hat at sampled actions: the same mean, less noise. False is
    Eq. 1 as it stands, with the inner mean taken over sampled actions."""
    factor: Literal["minibatch", "contexts", "none"] = "minibatch"
    """1 / max pi, by which the paper multiplies gradients: over the contexts of the minibatch, over
    all contexts of the logs (the paper's appendix has X x A), or no factor."""
    factor_on: Literal["all", "objective"] = "all"
    """What the factor multiplies: the gradient of F + lambda R, or that of F alone."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "sampled_actions"):
            value = getattr(self, name)
            require(
                (is_whole(value) and value >= 1) or (value is None and name == "sampled_actions"),
                f"{name} must be a whole number, at least 1",
                found=short(value),
                cure="the paper's steps are 10_000",
            )
        require(
            self.sampled_actions is None or isinstance(self.objective, ValueWithEntropy),
            "sampled_actions needs an objective that is linear in q-hat",
            found=short(self.objective),
            cure="use ValueWithEntropy, or sampled_actions=None",
        )
        require(
            isinstance(self.hidden, tuple) and all(is_whole(h) and h >= 1 for h in self.hidden),
            "hidden must be a tuple of widths, each at least 1",
            found=short(self.hidden),
            cure="the paper's is (100,)",
        )
        for name in ("standardise", "baseline"):
            require(
                type(getattr(self, name)) is bool,
                f"{name} must be True or False",
                found=short(getattr(self, name)),
            )
        for name, known in (
            ("factor", ("minibatch", "contexts", "none")),
            ("factor_on", ("all", "objective")),
        ):
            require(
                getattr(self, name) in known,
                f"{name} must be one of {', '.join(map(repr, known))}",
                found=short(getattr(self, name)),
                cure="the default is " + repr(known[0]),
            )
        require_positive(self.rate, "rate", "the paper's is 0.1 for OPG and 0.001 for Safe OPG")
        require(
            callable(self.objective),
            "objective must be an Objective",
            found=short(self.objective),
            cure="use ValueWithEntropy(alpha), or OwnObjective(function)",
        )


@dataclass(frozen=True)
class StepFacts:
    """Means over one minibatch, before the step: the objective F, R(pi) and the novelty."""

    objective: float
    regulariser: float
    novelty: float


class PolicyGradient:
    """Stochastic gradient ascent on F + lambda R (Eq. 6) over minibatches of logged rows.

    The gradient by the logits (Eq. 1) is exact, a sum over all actions, unless `sampled_actions` is
    set. It is multiplied by 1 / max pi, as in the paper's appendix; the settings say over what.

    Args:
        policy: the network, changed in place.
        logs: the rows: D (OPG) or D^(S1) (Safe OPG).
        model: q-hat.
        settings: how to train.
        seed: of the minibatches.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        logs: LoggedData,
        model: RewardModel,
        settings: OpgSettings,
        *,
        seed: int,
    ) -> None:
        self.policy, self.settings = policy, settings
        self._draw = rng.generator(seed, "minibatches")
        self._inputs = policy.inputs(logs.contexts)
        self._context, self._action = logs.context, logs.action
        self._reward = torch.from_numpy(np.array(logs.reward, dtype=np.float32))
        self._q: PredictedRewards | SampledRewards
        if settings.sampled_actions is None:
            self._q = PredictedRewards(model, logs.contexts, policy.n_actions)
        else:
            baseline = logs.mean_reward() if settings.baseline else 0.0
            each = settings.sampled_actions
            self._q = SampledRewards(model, logs.contexts, baseline, each, seed=seed)
        self._novel = torch.from_numpy(logs.catalogue.novel.astype(np.float32))
        self._largest_of_all, self._steps = 1.0, 0
        self._one_action: tuple[float, np.random.Generator] | None = None
        objective = settings.objective
        if isinstance(objective, ValueWithEntropy) and objective.entropy == "one action":
            self._one_action = objective.alpha, rng.generator(seed, "entropy of one action")

    def draw_rows(self) -> IntArray:
        """(m,) rows of the next minibatch, drawn with replacement."""
        return self._draw.integers(0, len(self._context), self.settings.batch)

    def step(self, rows: IntArray, lambda_: float) -> StepFacts:
        """Line 4 of Algorithm 1 (Eq. 7): psi <- psi + eta_psi grad (F + lambda R) on these rows.

        R(pi) = mean of r_i log pi(a_i | x_i) makes pi imitate pi0 where the action was rewarded.

        Args:
            rows: (m,) rows of the logs.
            lambda_: the weight of R; 0 for OPG.
        """
        context = self._context[rows]
        places = torch.arange(len(rows))
        action = torch.from_numpy(self._action[rows].astype(np.int64))
        reward = self._reward[torch.from_numpy(rows)]
        outputs = self.policy.hidden(self._inputs[torch.from_numpy(context.astype(np.int64))])
        log_pi = torch.log_softmax(self.policy.logits(outputs[-1]), dim=1)
        pi = log_pi.exp()
        values, gradient = self.settings.objective(log_pi, pi, self._q.of(context, pi))
        facts = StepFacts(
            objective=float(values.mean()),
            regulariser=float((reward * log_pi[places, action]).mean()),
            novelty=float((pi @ self._novel).mean()),
        )
        require(
            math.isfinite(facts.objective) and math.isfinite(facts.regulariser),
            "training must not diverge",
            found=f"an objective of {facts.objective}",
            cure=f"lower the rate, which is {self.settings.rate:g}",
        )
        gradient = gradient.clone()  # an objective may hand out a view
        if self._one_action is not None:
            alpha, draw = self._one_action
            gradient[places, _drawn(pi, draw)] -= alpha
        largest = self._largest(pi)
        if lambda_:
            unscaled = largest if self.settings.factor_on == "objective" else 1.0
            gradient[places, action] += lambda_ * unscaled * reward
        # The derivative by the logits is the one by log pi, less pi times its sum over actions.
        gradient.addcmul_(pi, gradient.sum(dim=1, keepdim=True), value=-1)
        self.policy.ascend(outputs, gradient, self.settings.rate / (len(rows) * largest))
        return facts

    def _largest(self, pi: torch.Tensor) -> float:
        """max pi, over what the settings say; 1 where the gradient has no factor."""
        if self.settings.factor == "none":
            return 1.0
        if self.settings.factor == "minibatch":
            return float(pi.max())
        if self._steps % MAX_EVERY == 0:
            self._largest_of_all = 0.0
            for start in range(0, len(self._inputs), CONTEXTS_AT_ONCE):
                outputs = self.policy.hidden(self._inputs[start : start + CONTEXTS_AT_ONCE])
                pi = torch.softmax(self.policy.logits(outputs[-1]), dim=1)
                self._largest_of_all = max(self._largest_of_all, float(pi.max()))
        self._steps += 1
        return self._largest_of_all


def _drawn(pi: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
    """(m,) one action a row, drawn from pi (m, A)."""
    cumulative = pi.cumsum(dim=1)
    points = torch.from_numpy(draw.random((len(pi), 1), dtype=np.float32)) * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, points, right=True)
    return drawn.clamp_(max=pi.shape[1] - 1)[:, 0]


class PredictedRewards:
    """q-hat at the distinct contexts of the logs: a table where it fits, else per minibatch."""

    def __init__(self, model: RewardModel, contexts: FloatArray, n_actions: int) -> None:
        _require_model(model)
        self._model, self._contexts, self._n_actions = model, contexts, n_actions
        self._table: torch.Tensor | None = None
        if len(contexts) * n_actions <= LARGEST_TABLE:
            self._table = self._predict(contexts)

    def of(self, context: IntArray, pi: torch.Tensor) -> torch.Tensor:
        """(m, A) predictions at the given distinct contexts."""
        if self._table is not None:
            return self._table[torch.from_numpy(context.astype(np.int64))]
        distinct, back = np.unique(context, return_inverse=True)
        return self._predict(self._contexts[distinct])[torch.from_numpy(back)]

    def _predict(self, contexts: FloatArray) -> torch.Tensor:
        q = np.array(self._model.predict(contexts), dtype=np.float32)
        require(
            q.shape == (len(contexts), self._n_actions) and bool(np.isfinite(q).all()),
            f"a reward model must predict a finite reward for each of {self._n_actions} actions",
            found=f"shape {q.shape} for {len(contexts)} contexts",
            cure="use a model that was fitted on this catalogue",
        )
        return torch.from_numpy(q)


class SampledRewards:
    """An unbiased estimate of q-hat at all actions from predictions at a few, drawn from pi.

    With a_1 .. a_M drawn by systematic sampling, so that M pi(a) of them are a on average::

        q~(x, a) = b + sum_j 1{a_j = a} (q-hat(x, a) - b) / (M pi(a|x))

    has mean q-hat(x, a) for every a; the constant b only lowers its variance.
    """

    def __init__(
        self,
        model: RewardModel,
        contexts: FloatArray,
        baseline: float,
        each: int,
        *,
        seed: int,
    ) -> None:
        _require_model(model)
        self._model, self._contexts = model, contexts
        self._baseline, self._each = baseline, each
        self._draw = rng.generator(seed, "sampled actions")

    def of(self, context: IntArray, pi: torch.Tensor) -> torch.Tensor:
        """(m, A) estimates at the given distinct contexts, whose distributions are pi (m, A)."""
        m, each = len(pi), self._each
        cumulative = pi.cumsum(dim=1)
        offset = torch.from_numpy(1 - self._draw.random((m, 1), dtype=np.float32))  # in (0, 1]
        points = (offset + torch.arange(each)) / each * cumulative[:, -1:]  # never 0
        action = torch.searchsorted(cumulative, points).clamp_(max=pi.shape[1] - 1)
        rows = np.repeat(np.arange(m), each)
        pairs = self._model.predict_pairs(self._contexts[context], action.numpy().ravel(), rows)
        predicted = torch.from_numpy(np.asarray(pairs, dtype=np.float32)).view(m, each)
        out = torch.full_like(pi, self._baseline)
        weight = (predicted - self._baseline) / (each * pi.gather(1, action))
        return out.scatter_add_(1, action, weight)


def _require_model(model: RewardModel) -> None:
    require(
        isinstance(model, RewardModel),
        "model must be a reward model",
        found=short(model),
        cure="use fit_rewards(logs, seed=...), or OwnRewardModel(callable, n_actions)",
    )
