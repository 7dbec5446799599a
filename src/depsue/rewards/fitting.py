"""How the ensemble of MLPs is fitted: the bootstrapped members, and CQL.

One loop fits both. They minimise binary cross entropy on r / r_max and keep the weights of the
epoch with the lowest held-out loss, CQL's part included. CQL (Kumar et al., 2020) adds
alpha E[q(x, a') - q(x, a)] with a' drawn uniformly from all actions, as in the paper's appendix,
which pushes down what was not logged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from depsue import rng
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.progress import Watch, silent
from depsue.rewards.base import RewardSettings, action_features
from depsue.rewards.mlp import BatchedMlp, FitReport, MlpRewardModel, held


def fit_rewards(
    logs: LoggedData, settings: RewardSettings | None = None, *, seed: int, watch: Watch = silent
) -> MlpRewardModel:
    """Fit q-hat on logs; the model's `report` has held-out loss and calibration.

    Args:
        logs: the rows; their catalogue must have action features.
        settings: how; the default is the paper's five bootstrapped MLPs.
        seed: of weights, bootstrap, batches and held-out rows.
        watch: shows progress.
    """
    settings = settings or RewardSettings()
    features = action_features(logs)
    train, heldout = heldout_split(logs, settings, seed=seed)
    mlp = BatchedMlp.initial(
        logs.contexts, features, members=settings.members, hidden=settings.hidden, seed=seed
    )
    model = MlpRewardModel(mlp, features, logs.r_max, settings.combine)
    fit = _Fit(mlp, train, settings, seed)
    train_loss: list[float] = []
    heldout_loss: list[float] = []
    best_weights: list[torch.Tensor] = []
    for epoch in range(settings.max_epochs):
        train_loss.append(fit.epoch())
        heldout_loss.append(_heldout_loss(model, heldout, settings, seed))
        best = int(np.argmin(heldout_loss))
        if best == epoch:
            best_weights = [p.detach().clone() for p in mlp.parameters()]
        name = "reward model" if not settings.conservatism else "reward model (CQL)"
        stop = epoch - best >= settings.patience
        total = epoch + 1 if stop else settings.max_epochs
        watch(name, epoch + 1, total, f"held-out loss {heldout_loss[-1]:.4f}")
        if stop:
            break
    layers = len(mlp.weights)
    mlp.weights, mlp.biases = best_weights[:layers], best_weights[layers:]
    model.report = _report(model, train, heldout, train_loss, heldout_loss)
    return model


def heldout_split(
    logs: LoggedData, settings: RewardSettings, *, seed: int
) -> tuple[LoggedData, LoggedData]:
    """The rows that `fit_rewards` fits on, and those that it holds out and stops by."""
    shares = (1 - settings.heldout, settings.heldout)
    train, heldout = logs.split(shares, salt=f"reward model {seed}")
    return train, heldout


class Adam:
    """Adam (Kingma & Ba, 2015), bit for bit as torch.optim has it, which takes 3 s to load.

    Args:
        parameters: what is learned, in place.
        rate: the step size.
    """

    def __init__(self, parameters: list[torch.Tensor], rate: float) -> None:
        self.parameters, self._rate, self._steps = parameters, rate, 0
        self._moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[torch.Tensor]) -> None:
        """One step along the gradients, one for each parameter."""
        self._steps += 1
        first, second = (1 - beta**self._steps for beta in (0.9, 0.999))
        for p, g, (mean, square) in zip(self.parameters, gradients, self._moments, strict=True):
            mean.lerp_(g, 1 - 0.9)
            square.mul_(0.999).addcmul_(g, g, value=1 - 0.999)
            p.addcdiv_(mean, (square.sqrt() / second**0.5).add_(1e-8), value=-self._rate / first)


class PlainSteps:
    """Plain gradient descent.

    Args:
        parameters: what is learned, in place.
        rate: the step size.
    """

    def __init__(self, parameters: list[torch.Tensor], rate: float) -> None:
        self.parameters, self._rate = parameters, rate

    @torch.no_grad()
    def step(self, gradients: Sequence[torch.Tensor]) -> None:
        """One step along the gradients, one for each parameter."""
        for p, g in zip(self.parameters, gradients, strict=True):
            p.sub_(g, alpha=self._rate)


class _Fit:
    """The optimiser, and the bootstrap sample of every member."""

    def __init__(
        self, mlp: BatchedMlp, logs: LoggedData, settings: RewardSettings, seed: int
    ) -> None:
        self.mlp, self.settings = mlp, settings
        self.draw = rng.generator(seed, "reward batches")
        n, b = len(logs), settings.members
        self.batch = min(settings.batch, max(32, n // 100))
        self.sample: IntArray = self.draw.integers(0, n, (b, n)) if b > 1 else np.arange(n)[None]
        self.contexts, self.features = held(logs.contexts), held(action_features(logs))
        self.context = torch.from_numpy(logs.context.astype(np.int64))
        self.action = torch.from_numpy(logs.action.astype(np.int64))
        self.target = torch.from_numpy((logs.reward / logs.r_max).astype(np.float32))
        for parameter in mlp.parameters():
            parameter.requires_grad_(True)
        steps = Adam if settings.optimiser == "adam" else PlainSteps
        self.optimiser = steps(mlp.parameters(), settings.rate)

    def epoch(self) -> float:
        """One pass over every member's sample; the mean loss (without CQL's part)."""
        self.sample = self.draw.permuted(self.sample, axis=1)
        losses = []
        for start in range(0, self.sample.shape[1], self.batch):
            rows = torch.from_numpy(self.sample[:, start : start + self.batch])
            x, target = self.contexts[self.context[rows]], self.target[rows]
            logits = self.mlp.logits(self.mlp.standardised(x, self.features[self.action[rows]]))
            fit = cross_entropy(logits, target)
            loss = fit * self.settings.members  # a mean over members; each has its own gradient
            if self.settings.conservatism:
                loss = loss + self.settings.conservatism * self._overestimation(x, logits)
            self.optimiser.step(torch.autograd.grad(loss, self.optimiser.parameters))
            losses.append(fit.detach())
        return float(torch.stack(losses).mean())

    def _overestimation(self, x: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """E[q(x, a') - q(x, a)] with a' uniform over all actions, summed over members."""
        other = torch.from_numpy(self.draw.integers(0, len(self.features), tuple(x.shape[:2])))
        negatives = self.mlp.logits(self.mlp.standardised(x, self.features[other]))
        return (negatives.sigmoid() - logits.sigmoid()).mean(dim=1).sum()


def _heldout_loss(
    model: MlpRewardModel, heldout: LoggedData, settings: RewardSettings, seed: int
) -> float:
    """What is minimised, on held-out rows (with the same negatives in every epoch)."""
    q = _predicted(model, heldout, heldout.action)
    loss = _cross_entropy(q, heldout.reward / heldout.r_max)
    if settings.conservatism:
        draw = rng.generator(seed, "held-out negatives")
        other = draw.integers(0, len(heldout.catalogue), len(heldout))
        loss += settings.conservatism * float((_predicted(model, heldout, other) - q).mean())
    return loss


def _predicted(model: MlpRewardModel, logs: LoggedData, actions: IntArray) -> FloatArray:
    """(n,) predictions as shares of r_max."""
    return model.predict_pairs(logs.contexts, actions, logs.context) / model.r_max


def _cross_entropy(predicted: FloatArray, target: FloatArray) -> float:
    q = np.clip(np.asarray(predicted, dtype=np.float64), 1e-7, 1 - 1e-7)
    return float(-(target * np.log(q) + (1 - target) * np.log1p(-q)).mean())


def _report(
    model: MlpRewardModel,
    train: LoggedData,
    heldout: LoggedData,
    train_loss: list[float],
    heldout_loss: list[float],
) -> FitReport:
    q = _predicted(model, heldout, heldout.action)
    target = heldout.reward / heldout.r_max
    bins = [rows for rows in np.array_split(np.argsort(q, kind="stable"), 10) if len(rows)]
    return FitReport(
        train_loss=tuple(train_loss),
        heldout_loss=tuple(heldout_loss),
        best_epoch=int(np.argmin(heldout_loss)) + 1,
        cross_entropy=_cross_entropy(q, target),
        baseline=_cross_entropy(np.full(len(q), train.mean_reward() / train.r_max), target),
        predicted=tuple(float(q[rows].mean()) * model.r_max for rows in bins),
        observed=tuple(float(heldout.reward[rows].mean()) for rows in bins),
    )
