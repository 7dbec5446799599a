"""Algorithm 1 as it is written against ours, at the paper's size, in one run.

    python benchmarks/safe_opg.py

The direct implementation does what the text says: an autograd step on a minibatch of 256 rows of
S1, then the bound (Eq. 4) from a forward pass of the policy for every row of S2, at every step.
Ours keeps each distinct context once. Both recompute the bound at every step, start from the same
weights, see the same minibatches and the same q-hat, and must agree to 1e-5 after 20 steps.

The forward pass of the direct implementation is timed in one piece (all rows of S2 at once) and in
batches of several sizes, since that choice is ours and matters.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from depsue.bounds import Hcope, RewardedRows, tuning_rows
from depsue.bounds.hcope import hcope_from_rewarded
from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray, IntArray
from depsue.learners.gradient import PolicyGradient
from depsue.learners.safe_opg import BoundOnLogs, SafeOpgSettings
from depsue.policies import ScoreTable
from depsue.policies.network import NetworkPolicy
from depsue.rewards import OwnRewardModel

ROWS, ACTIONS, NOVEL, FEATURES, CONTEXTS = 500_000, 1000, 200, 30, 4832
SETTINGS = SafeOpgSettings(standardise=False)
STEPS_COMPARED = 20


def paper_sized_logs(seed: int) -> tuple[LoggedData, ScoreTable]:
    """Logs of the paper's size from a softmax logging policy, and a q-hat table."""
    draw = np.random.default_rng(seed)
    contexts = draw.normal(size=(CONTEXTS, FEATURES)).astype(np.float32)
    features = draw.normal(size=(FEATURES, ACTIONS)) / FEATURES**0.5
    logit = -1.1 + 0.11 * contexts @ features
    q = 1 / (1 + np.exp(-logit))
    weight = np.exp(8 * logit[:, : ACTIONS - NOVEL])
    cumulative = np.cumsum(weight / weight.sum(axis=1, keepdims=True), axis=1)
    users = draw.integers(0, CONTEXTS, ROWS)
    actions = np.empty(ROWS, dtype=np.int64)
    for start in range(0, ROWS, 50_000):
        piece = slice(start, start + 50_000)
        uniform = draw.random(len(users[piece]))
        actions[piece] = (cumulative[users[piece]] < uniform[:, None]).sum(axis=1)
    actions = np.minimum(actions, ACTIONS - NOVEL - 1)
    probability = weight / weight.sum(axis=1, keepdims=True)
    logs = LoggedData.from_arrays(
        contexts=contexts,
        context_rows=users,
        actions=actions,
        rewards=draw.random(ROWS) < q[users, actions],
        propensities=probability[users, actions],
        catalogue=Catalogue(np.arange(ACTIONS), np.arange(ACTIONS) >= ACTIONS - NOVEL),
        r_max=1.0,
    )
    q_hat = np.clip(q + draw.normal(size=q.shape) * 0.02, 0, 1)
    return logs, ScoreTable(contexts, q_hat.astype(np.float32))


class Direct:
    """Algorithm 1 line by line, in batched torch with autograd."""

    def __init__(
        self,
        policy: NetworkPolicy,
        s1: LoggedData,
        s2: LoggedData,
        q: FloatArray,
        need: float,
        batch: int,
    ) -> None:
        hidden, last = policy.layers
        first, second = torch.nn.Linear(FEATURES, 100), torch.nn.Linear(100, ACTIONS)
        with torch.no_grad():
            for layer, (weight, bias) in ((first, hidden), (second, last)):
                layer.weight.copy_(weight.T)
                layer.bias.copy_(bias)
        self.network = torch.nn.Sequential(first, torch.nn.ReLU(), second)
        self.x1, self.x2 = (torch.from_numpy(s.contexts[s.context]) for s in (s1, s2))
        self.a1, self.a2 = (torch.from_numpy(s.action.astype(np.int64)) for s in (s1, s2))
        self.r1 = torch.from_numpy(s1.reward.astype(np.float32))
        self.context1, self.q = s1.context, torch.from_numpy(np.array(q))
        self.s2, self.need, self.batch, self.lambda_ = s2, need, batch, 0.0
        self.tuning = np.zeros(len(s2), dtype=bool)
        self.tuning[tuning_rows(len(s2))] = True

    def step(self, rows: IntArray) -> None:
        """Eq. 7: one step of gradient ascent, scaled by 1 / max pi."""
        index = torch.from_numpy(rows)
        log_pi = torch.log_softmax(self.network(self.x1[index]), dim=1)
        pi = log_pi.exp()
        q = self.q[torch.from_numpy(self.context1[rows].astype(np.int64))]
        objective = (0.9 * pi * q - 0.1 * pi * log_pi).sum(dim=1)
        chosen = log_pi.gather(1, self.a1[index, None])[:, 0]
        loss = -(objective + self.lambda_ * self.r1[index] * chosen).mean()
        self.network.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in self.network.parameters():
                if parameter.grad is not None:
                    parameter.sub_(SETTINGS.rate / pi.max() * parameter.grad)

    def bound(self) -> float:
        """Eq. 4 from a forward pass for every row of S2."""
        chosen = []
        with torch.no_grad():
            for start in range(0, len(self.x2), self.batch):
                piece = slice(start, start + self.batch)
                pi = torch.softmax(self.network(self.x2[piece]), dim=1)
                chosen.append(pi.gather(1, self.a2[piece, None])[:, 0])
        weights = torch.cat(chosen).numpy() / self.s2.propensity
        parts = [
            RewardedRows(weights[part], self.s2.reward[part], int(part.sum()))
            for part in (self.tuning, ~self.tuning)
        ]
        return hcope_from_rewarded(*parts, r_max=1.0, delta=SETTINGS.delta).value

    def update(self, rows: IntArray) -> float:
        """Lines 4 and 5 of Algorithm 1."""
        self.step(rows)
        bound = self.bound()
        self.lambda_ = max(self.lambda_ - SETTINGS.rate_lambda * (bound - self.need), 0.0)
        return bound


class Ours:
    """The two lines of `safe_opg`'s loop, with minibatches handed in."""

    def __init__(
        self, policy: NetworkPolicy, s1: LoggedData, s2: LoggedData, q: FloatArray, need: float
    ) -> None:
        model = OwnRewardModel(lambda _: q, ACTIONS)
        self.policy, self.need, self.lambda_ = policy, need, 0.0
        self.gradient = PolicyGradient(policy, s1, model, SETTINGS, seed=0)
        self.bound_on_s2 = BoundOnLogs(s2, Hcope(), SETTINGS.delta)

    def update(self, rows: IntArray) -> float:
        """Lines 4 and 5 of Algorithm 1."""
        self.gradient.step(rows, self.lambda_)
        bound = self.bound_on_s2.value(self.policy)
        self.lambda_ = max(self.lambda_ - SETTINGS.rate_lambda * (bound - self.need), 0.0)
        return bound


def seconds_per_step(update: Callable[[IntArray], float], batches: Sequence[IntArray]) -> float:
    """Median time of a step, after one that warms up."""
    times = []
    for rows in batches:
        start = time.perf_counter()
        update(rows)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> int:
    """Compare results, then speed; print a table and figures; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    logs, q_hat = paper_sized_logs(seed)
    s1, s2 = logs.split((0.5, 0.5), salt="benchmark")
    q_s1 = q_hat(s1.contexts)
    need = 0.95 * logs.mean_reward()
    initial = NetworkPolicy.initial(FEATURES, ACTIONS, seed=seed)
    print(
        f"{len(logs):,} rows, {len(s2):,} of them in S2, {len(s2.contexts):,} distinct contexts, "
        f"{ACTIONS} actions, {torch.get_num_threads()} threads"
    )

    draw = np.random.default_rng(seed + 1)
    batches = [draw.integers(0, len(s1), SETTINGS.batch) for _ in range(60)]
    fast = seconds_per_step(Ours(initial.copy(), s1, s2, q_s1, need).update, batches)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of ours, data included: {peak:.2f} GiB")

    ours = Ours(initial.copy(), s1, s2, q_s1, need)
    direct = Direct(initial.copy(), s1, s2, q_s1, need, 4096)
    for rows in batches[:STEPS_COMPARED]:
        bounds = ours.update(rows), direct.update(rows)
    sample = s2.contexts[:500]
    with torch.no_grad():
        theirs = torch.softmax(direct.network(torch.from_numpy(np.array(sample))), dim=1).numpy()
    apart = float(np.abs(theirs - ours.policy.probabilities(sample)).max())
    print(
        f"after {STEPS_COMPARED} steps: bound {bounds[0]:.8f} and {bounds[1]:.8f}, apart "
        f"{abs(bounds[0] - bounds[1]):.1e}; policy apart {apart:.1e}"
    )

    figures = {
        "seed": seed,
        "peak_gib": peak,
        "bound_apart": abs(bounds[0] - bounds[1]),
        "policy_apart": apart,
        "ours_ms": 1000 * fast,
    }
    print(f"{'':34}{'ms / step':>12}{'ratio':>9}")
    print(f"{'ours':34}{1000 * fast:>12.1f}{1:>9.0f}")
    for batch in (len(s2), 16_384, 4096, 1024):
        direct = Direct(initial.copy(), s1, s2, q_s1, need, batch)
        slow = seconds_per_step(direct.update, batches[:6])
        fast = seconds_per_step(ours.update, batches[:20])  # again, under the same load
        name = "all rows at once" if batch == len(s2) else f"batches of {batch:,} rows"
        figures[f"ratio, {name}"] = slow / fast
        print(f"{'direct, ' + name:34}{1000 * slow:>12.1f}{slow / fast:>9.0f}")
    print(json.dumps(figures))
    met = {
        "100 times faster than S2 in one batch": figures["ratio, all rows at once"] >= 100,
        "bound and policy equal to 1e-5": max(abs(bounds[0] - bounds[1]), apart) <= 1e-5,
        "peak memory under 2 GiB": peak < 2,
    }
    for name, reached in met.items():
        print(f"{name}: {'met' if reached else 'MISSED'}")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
