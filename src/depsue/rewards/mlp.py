"""The paper's reward model: an ensemble of small MLPs, and how it is fitted.

The B members q-hat_j(x, e_a) are held, and computed, as one batch (`BatchedMlp`).

One loop fits the bootstrapped ensemble and CQL. Both minimise binary cross entropy on r / r_max and
keep the weights of the epoch with the lowest held-out loss, CQL's part included. CQL (Kumar et al.,
2020) adds alpha E[q(x, a') - q(x, a)] with a' drawn uniformly from all actions, as in the paper's
appendix, which pushes down what was not logged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from depsue import rng
from depsue.data.checks import FloatArray, IntArray, Unlocked
from depsue.data.logs import LoggedData
from depsue.errors import require, short
from depsue.progress import Watch, silent
from depsue.rewards.base import (
    AT_ONCE,
    BaseRewardModel,
    Combine,
    RewardSettings,
    action_features,
    mean_and_scale,
)
from depsue.savable import State

FEW = 256
"""Contexts whose predictions are kept until others are asked about."""
ACTIONS_AT_ONCE = 2000
"""Actions whose first hidden layer is held at once: small enough to stay near the processor."""
PAIRS_AT_ONCE = 1 << 11
"""Pairs whose hidden layers are held at once, for the same reason."""
PAIRS_A_TASK = 1 << 17
"""Pairs that one core takes at a time."""
FEW_PARTS = 1 << 25
"""Numbers of the actions' first layers, over all members, that are worth keeping: 128 MiB."""


class MlpRewardModel(BaseRewardModel):
    """q-hat(x, a) = r_max times the mean (or min) over members of sigmoid(logit_j(x, e_a)).

    "optimistic" is the mean plus the members' standard deviation, at most r_max: it favours what
    the members, each on its own bootstrap sample, disagree on.

    Args:
        mlp: the B members.
        features: (A, d_a) features of the actions.
        r_max: the declared largest reward.
        combine: "mean", "min" or "optimistic" over members.
        report: how well it fits; None if it was loaded, or combined anew.
    """

    kind = "mlp"

    def __init__(
        self,
        mlp: BatchedMlp,
        features: FloatArray,
        r_max: float,
        combine: Combine = "mean",
        report: FitReport | None = None,
    ) -> None:
        require(
            combine in ("mean", "min", "optimistic"),
            "combine must be 'mean', 'min' or 'optimistic'",
            found=short(combine),
        )
        self._mlp, self._features = mlp, _held(features)
        self.r_max, self.combine, self.report = float(r_max), combine, report
        self._members = _Members(mlp, self._features, self.r_max)

    def combined(self, combine: Combine) -> MlpRewardModel:
        """The same members, combined otherwise; the report is of one combination."""
        report = self.report if combine == self.combine else None
        same = MlpRewardModel(self._mlp, self._features.numpy(), self.r_max, combine, report)
        same._members = self._members
        return same

    def members(self, contexts: FloatArray) -> FloatArray:
        """(B, m, A) predictions of each member."""
        return self._members(contexts)

    def predict(self, contexts: FloatArray) -> FloatArray:
        """(m, A) predictions for every action."""
        return _over_members(self.members(contexts), self.combine, self.r_max)

    def predict_pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) predictions for pairs: `rows` points into the (u, d) contexts."""
        which = np.arange(len(actions)) if rows is None else np.asarray(rows)
        some = SomePairs(self._mlp, self._features, np.asarray(contexts), len(actions))
        out = np.empty(len(actions), dtype=np.float32)

        def work(piece: slice) -> None:
            for start in range(piece.start, piece.stop, PAIRS_AT_ONCE):
                block = slice(start, min(start + PAIRS_AT_ONCE, piece.stop))
                members = some(which[block], np.asarray(actions[block])).numpy()
                out[block] = _over_members(members * self.r_max, self.combine, self.r_max)

        rng.on_all_cores(work, len(actions), PAIRS_A_TASK)
        return out

    def state(self) -> State:
        mlp = self._mlp
        arrays = {"features": self._features, "shift": mlp.shift, "scale": mlp.scale}
        for k, (w, b) in enumerate(zip(mlp.weights, mlp.biases, strict=True)):
            arrays[f"weight{k}"], arrays[f"bias{k}"] = w, b
        settings = {"d": mlp.d, "layers": len(mlp.weights), "r_max": self.r_max}
        return State(
            settings | {"combine": self.combine}, {name: a.numpy() for name, a in arrays.items()}
        )

    @classmethod
    def from_state(cls, state: State) -> MlpRewardModel:
        settings, arrays = state.settings, state.arrays
        tensors = {name: torch.from_numpy(a.copy()) for name, a in arrays.items()}
        layers = range(settings["layers"])
        mlp = BatchedMlp(
            [tensors[f"weight{k}"] for k in layers],
            [tensors[f"bias{k}"] for k in layers],
            settings["d"],
            tensors["shift"],
            tensors["scale"],
        )
        model = cls(mlp, arrays["features"], settings["r_max"], settings["combine"])
        model._members = _LOADED.setdefault(_digest(arrays, model.r_max), model._members)
        return model


@dataclass(frozen=True)
class FitReport:
    """How a reward model fits rows that it was not trained on.

    Args:
        train_loss: binary cross entropy in each epoch, on the rows it was trained on.
        heldout_loss: what is minimised (with CQL's part), after each epoch, on held-out rows.
        best_epoch: the epoch (from 1) with the lowest held-out loss, whose weights were kept.
        cross_entropy: of the kept weights on held-out rows.
        baseline: the same of predicting the mean reward always.
        predicted: mean prediction in each of ten equally filled bins of the held-out rows.
        observed: mean reward in these bins.
    """

    train_loss: tuple[float, ...]
    heldout_loss: tuple[float, ...]
    best_epoch: int
    cross_entropy: float
    baseline: float
    predicted: tuple[float, ...]
    observed: tuple[float, ...]

    @property
    def calibration_error(self) -> float:
        """Mean gap between prediction and reward over the bins."""
        return float(np.mean(np.abs(np.subtract(self.predicted, self.observed))))

    def __str__(self) -> str:
        return (
            f"held-out cross entropy {self.cross_entropy:.4f} (mean reward alone: "
            f"{self.baseline:.4f}) after epoch {self.best_epoch} of {len(self.heldout_loss)}, "
            f"calibration error {self.calibration_error:.4f}"
        )


class _Members:
    """(B, m, A) predictions of each member; those of a few contexts are kept until the next.

    The parts of a policy combine the same members differently, and ask one after the other.
    """

    def __init__(self, mlp: BatchedMlp, features: torch.Tensor, r_max: float) -> None:
        self._mlp, self._features, self._r_max = mlp, features, r_max
        self._logits: AllPairs | None = None
        self._last: tuple[FloatArray, FloatArray] | None = None

    def __call__(self, contexts: FloatArray) -> FloatArray:
        last = self._last
        if last is not None and np.array_equal(last[0], contexts):
            return last[1]
        with torch.no_grad():
            if self._logits is None:
                self._logits = AllPairs(self._mlp, self._features)
            logits = self._logits(_tensor(contexts))
            predictions = np.asarray(logits.sigmoid_().mul_(self._r_max).numpy())
        if len(contexts) <= FEW:
            predictions.flags.writeable = False
            self._last = np.array(contexts), predictions
        return predictions


_LOADED: WeakValueDictionary[str, _Members] = WeakValueDictionary()
"""Members of models that were loaded: the same arrays, in several parts of a policy, are one."""


def _digest(arrays: Mapping[str, np.ndarray[Any, Any]], r_max: float) -> str:
    whole = hashlib.sha256(repr(r_max).encode())
    for name in sorted(arrays):
        whole.update(f"{name}{arrays[name].shape}{arrays[name].dtype}".encode())
        whole.update(np.ascontiguousarray(arrays[name]).tobytes())
    return whole.hexdigest()


def _over_members(values: FloatArray, combine: Combine, r_max: float) -> FloatArray:
    if combine == "min":
        return np.asarray(values.min(axis=0))
    mean: FloatArray = values.mean(axis=0)
    return mean if combine == "mean" else np.minimum(mean + values.std(axis=0), r_max)


def _tensor(contexts: FloatArray) -> torch.Tensor:
    return torch.from_numpy(np.array(contexts, dtype=np.float32))


def _held(values: FloatArray) -> torch.Tensor:
    """A tensor in single precision, never written to: of a locked array without a copy."""
    array = np.asarray(values)
    plain = array.dtype == np.float32 and array.flags.c_contiguous
    if plain and not array.flags.writeable:
        return torch.from_numpy(np.asarray(Unlocked(array)))
    return _tensor(array)


class BatchedMlp:
    """B MLPs of the same shape on (context, action features), ReLU between, one logit out.

    The first layer is a part for the context and a part for the action, so that all pairs of m
    contexts and A actions need m + A first-layer products, not m A (`AllPairs`).

    Args:
        weights: each (B, in, out); the first has in = d + the number of action features.
        biases: each (B, 1, out).
        d: features of a context.
        shift: (in,) subtracted from the inputs before the first layer.
        scale: (in,) multiplied after that.
    """

    def __init__(
        self,
        weights: list[torch.Tensor],
        biases: list[torch.Tensor],
        d: int,
        shift: torch.Tensor,
        scale: torch.Tensor,
    ) -> None:
        self.weights, self.biases, self.d = weights, biases, d
        self.shift, self.scale = shift, scale

    @classmethod
    def initial(
        cls,
        contexts: FloatArray,
        features: FloatArray,
        *,
        members: int,
        hidden: Sequence[int],
        seed: int,
    ) -> BatchedMlp:
        """Random weights, uniform in +-1/sqrt(fan in); inputs standardised to the given data.

        Args:
            contexts: (u, d).
            features: (A, d_a).
            members: B.
            hidden: widths of the hidden layers.
            seed: of the weights.
        """
        generator = rng.torch_generator(seed, "reward mlp")
        d, d_a = contexts.shape[1], features.shape[1]
        weights, biases = [], []
        for fan_in, fan_out in pairwise((d + d_a, *hidden, 1)):
            values = torch.rand(members, fan_in + 1, fan_out, generator=generator) * 2 - 1
            values /= fan_in**0.5
            weights.append(values[:, :-1].contiguous())
            biases.append(values[:, -1:].contiguous())
        of_both = [_mean_and_deviation(values) for values in (contexts, features)]
        mean, deviation = (np.concatenate(both) for both in zip(*of_both, strict=True))
        scale = 1 / np.where(deviation > 1e-8, deviation, 1)
        as_tensor = [torch.as_tensor(v, dtype=torch.float32) for v in (mean, scale)]
        return cls(weights, biases, d, *as_tensor)

    @property
    def members(self) -> int:
        """B."""
        return int(self.weights[0].shape[0])

    def parameters(self) -> list[torch.Tensor]:
        """All weights and biases."""
        return [*self.weights, *self.biases]

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B, m) logits of m standardised inputs: (B, m, in), or (m, in) for all members."""
        h = inputs if inputs.ndim == 3 else inputs.expand(self.members, -1, -1)
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            if place + 1 < len(self.weights):
                h = h.relu()
        return h[..., 0]

    def standardised(self, contexts: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """(..., in) inputs of aligned contexts (..., d) and action features (..., d_a)."""
        return (torch.cat([contexts, features], dim=-1) - self.shift) * self.scale


def _mean_and_deviation(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of the columns; where rows are many, a sum in single precision would be rough, and large."""
    if len(values) <= AT_ONCE:
        return values.mean(axis=0), values.std(axis=0)
    mean, scale = mean_and_scale(values)
    return mean, 1 / scale


class AllPairs:
    """Logits of every pair of a context and one of A actions; the actions' part is kept.

    With u the context's part of the first layer and v the action's, relu(u + v) is max(v, -u) + u:
    one pass over the pairs, and u's share is added once a context. Actions lie along the last axis
    throughout, which the products with few hidden units like best.

    Args:
        mlp: the members; their weights must not change any more.
        features: (A, d_a) features of the actions.
    """

    def __init__(self, mlp: BatchedMlp, features: torch.Tensor) -> None:
        self._mlp, self._n = mlp, len(features)
        d, first = mlp.d, mlp.weights[0]
        e = (features - mlp.shift[d:]) * mlp.scale[d:]
        self._pieces = [
            slice(k, min(k + ACTIONS_AT_ONCE, self._n)) for k in range(0, self._n, ACTIONS_AT_ONCE)
        ]
        self._weights = [[w[j].T.contiguous() for w in mlp.weights[1:]] for j in range(mlp.members)]
        self._biases = [[b[j].T for b in mlp.biases[1:]] for j in range(mlp.members)]
        self._of_action = []
        for j in range(mlp.members):
            of_action = torch.addmm(mlp.biases[0][j], e, first[j, d:]).T
            self._of_action.append([of_action[:, piece].contiguous() for piece in self._pieces])

    def __call__(self, contexts: torch.Tensor) -> torch.Tensor:
        """(B, m, A) logits of m contexts (m, d) with every action."""
        mlp, d = self._mlp, self._mlp.d
        x = (contexts - mlp.shift[:d]) * mlp.scale[:d]
        out = torch.empty(mlp.members, len(x), self._n)
        for j, (weights, biases) in enumerate(zip(self._weights, self._biases, strict=True)):
            of_context = x @ mlp.weights[0][j, :d]
            second = torch.addmm(biases[0], weights[0], of_context.T)  # (out, m) biases of layer 2
            least = (-of_context)[:, :, None].unbind()
            starts = second.T[:, :, None].unbind()
            for piece, v in zip(self._pieces, self._of_action[j], strict=True):
                h = torch.empty_like(v)
                g = torch.empty(len(weights[0]), len(v[0]))
                for row, u, start in zip(out[j, :, None, piece], least, starts, strict=True):
                    torch.maximum(v, u, out=h)
                    if len(weights) == 1:
                        torch.addmm(start, weights[0], h, out=row)
                        continue
                    torch.addmm(start, weights[0], h, out=g)
                    last = g.relu_()
                    for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
                        last = torch.addmm(bias, weight, last).relu_()
                    torch.addmm(biases[-1], weights[-1], last, out=row)
        return out


class SomePairs:
    """Predictions of some pairs of a context and an action, a block of them at a time.

    The first layer is worked out in its two parts: the context's once for each context that follows
    another in the pairs, the action's once for each action where they are few beside the pairs.
    Blocks stay near the processor, and their products lie along the last axis, as in `AllPairs`.

    Args:
        mlp: the members; their weights must not change meanwhile.
        features: (A, d_a) features of the actions.
        contexts: (u, d).
        n: how many pairs there will be.
    """

    def __init__(
        self, mlp: BatchedMlp, features: torch.Tensor, contexts: FloatArray, n: int
    ) -> None:
        self._mlp, self._features, self._contexts = mlp, features, contexts
        d = mlp.d
        with torch.no_grad():
            self._weights = [
                [w[j].T.contiguous() for w in mlp.weights[1:]] for j in range(mlp.members)
            ]
            self._biases = [[b[j].T for b in mlp.biases[1:]] for j in range(mlp.members)]
            self._first = [
                (w[:d].contiguous(), w[d:].contiguous(), b)
                for w, b in zip(mlp.weights[0].detach(), mlp.biases[0].detach(), strict=True)
            ]
            self._of_action: list[torch.Tensor] = []
            if len(features) < n and mlp.weights[0][..., 0, :].numel() * len(features) <= FEW_PARTS:
                e = self._scaled(features.clone(), slice(d, None))
                self._of_action = [torch.mm(e, w) for _, w, _ in self._first]

    def _scaled(self, values: torch.Tensor, part: slice) -> torch.Tensor:
        return values.sub_(self._mlp.shift[part]).mul_(self._mlp.scale[part])

    def __call__(self, rows: IntArray, actions: IntArray) -> torch.Tensor:
        """(B, m) probabilities of m pairs; `rows` points into the contexts."""
        with torch.no_grad():
            return self._predicted(rows, torch.from_numpy(actions.astype(np.int64)))

    def _predicted(self, rows: IntArray, actions: torch.Tensor) -> torch.Tensor:
        first, last, at = int(rows.min()), int(rows.max()) + 1, None
        if last - first <= len(rows):  # neighbours: each context once
            at = torch.from_numpy(rows.astype(np.int64) - first)
        mine = self._contexts[rows] if at is None else self._contexts[first:last]
        x = self._scaled(_tensor(mine), slice(0, self._mlp.d))
        e = None
        if not self._of_action:
            e = self._scaled(self._features.index_select(0, actions), slice(self._mlp.d, None))
        out = torch.empty(len(self._first), len(actions))
        for j, (of_x, of_e, bias) in enumerate(self._first):
            h = self._of_action[j].index_select(0, actions) if e is None else torch.mm(e, of_e)
            u = torch.addmm(bias, x, of_x)
            g = h.add_(u if at is None else u.index_select(0, at)).relu_().T
            weights, biases = self._weights[j], self._biases[j]
            for weight, b in zip(weights[:-1], biases[:-1], strict=True):
                g = torch.addmm(b, weight, g).relu_()
            torch.addmm(biases[-1], weights[-1], g, out=out[j, None])
        return out.sigmoid_()


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
        name = "reward model (CQL)" if settings.conservatism else "reward model"
        stop = epoch - best >= settings.patience
        total = epoch + 1 if stop else settings.max_epochs
        watch(name, epoch + 1, total, f"held-out loss {heldout_loss[-1]:.4f}")
        if stop:
            break
    mlp.weights, mlp.biases = best_weights[: len(mlp.weights)], best_weights[len(mlp.weights) :]
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
        plain: take plain gradient steps instead.
    """

    def __init__(self, parameters: list[torch.Tensor], rate: float, plain: bool = False) -> None:
        self.parameters, self._rate, self._plain, self._steps = parameters, rate, plain, 0
        self._moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[torch.Tensor]) -> None:
        """One step along the gradients, one for each parameter."""
        self._steps += 1
        first, second = (1 - beta**self._steps for beta in (0.9, 0.999))
        for p, g, (mean, square) in zip(self.parameters, gradients, self._moments, strict=True):
            if self._plain:
                p.sub_(g, alpha=self._rate)
                continue
            mean.lerp_(g, 1 - 0.9)
            square.mul_(0.999).addcmul_(g, g, value=1 - 0.999)
            p.addcdiv_(mean, (square.sqrt() / second**0.5).add_(1e-8), value=-self._rate / first)


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
        self.contexts, self.features = _held(logs.contexts), _held(action_features(logs))
        self.context = torch.from_numpy(logs.context.astype(np.int64))
        self.action = torch.from_numpy(logs.action.astype(np.int64))
        self.target = torch.from_numpy((logs.reward / logs.r_max).astype(np.float32))
        for parameter in mlp.parameters():
            parameter.requires_grad_(True)
        self.optimiser = Adam(mlp.parameters(), settings.rate, settings.optimiser == "sgd")

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
