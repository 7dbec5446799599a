"""A round on candidate sets out of a large catalogue: seconds by stage, and memory.

    python benchmarks/candidates.py [--items 1000000] [--rows 300000] [--candidates 200 50]
    python benchmarks/candidates.py --small    a smoke test of seconds

Logs as a ranker behind a retrieval writes them: every row is a request of its own with candidates
from all over the catalogue, pi0's probability of each is logged, four of them are new, one row in
thirty has a reward. One round runs through the Python API: logs and folds, learning and forecasting
(`look_ahead`), the frozen candidate, the certificate, the policy that it allows. Each number of
candidates has a process of its own; its CPU seconds and its peak memory, raw data included, are the
process's (resource.getrusage). On a machine that does other things CPU seconds tell more than
wall time. OMP_NUM_THREADS says how many cores are used, for pairs that are scored too.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np

from depsue import Catalogue, ExploreSettings, LoggedData, RewardSettings, rng
from depsue.certificates import Reads
from depsue.data import Candidates
from depsue.data.checks import FloatArray, IntArray
from depsue.exploration.round import RoundInputs, certify_round, look_ahead
from depsue.policies import BroughtPolicy
from depsue.testing.splits import split

ITEM_FEATURES, CONTEXT_FEATURES, NEW, NEW_IN_EACH = 64, 16, 200, 4
AT_ONCE = 20_000
"""Requests that are made at once."""
SECONDS, GIB, SHARE = 180.0, 4.0, 1 / 3
"""The bars: to train and certify; for memory; for 50 candidates, as a share of the CPU of 200."""


@dataclass
class Stages:
    """Wall and CPU seconds of each stage, printed as they end."""

    wall: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    last: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        self.last = time.perf_counter(), used()

    def end(self, name: str) -> None:
        """A stage is over."""
        now = time.perf_counter(), used()
        self.wall[name], self.cpu[name] = now[0] - self.last[0], now[1] - self.last[1]
        self.last = now
        print(
            f"  {name:28}{self.wall[name]:>9.1f} s{self.cpu[name]:>9.1f} s CPU{peak():>9.2f} GiB "
            "at most so far",
            flush=True,
        )


def used() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak() -> float:
    """The most memory that this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@dataclass(frozen=True)
class Raw:
    """What a team has: items, and rows with their candidates."""

    features: FloatArray
    contexts: FloatArray
    sizes: IntArray
    items: IntArray
    pi0: FloatArray
    action: IntArray
    reward: FloatArray
    propensity: FloatArray


def made(n_items: int, rows: int, candidates: int, seed: int = 0) -> Raw:
    """Logs of a softmax ranker over candidates that lie evenly over the catalogue."""
    draw = np.random.default_rng(seed)
    features = draw.standard_normal((n_items, ITEM_FEATURES), dtype=np.float32)
    contexts = draw.standard_normal((rows, CONTEXT_FEATURES), dtype=np.float32)
    quality = features @ (draw.normal(size=ITEM_FEATURES).astype(np.float32) / 10)
    old = candidates - NEW_IN_EACH
    starts = np.linspace(0, n_items - NEW, old + 1).astype(np.int32)
    new_starts = np.linspace(n_items - NEW, n_items, NEW_IN_EACH + 1).astype(np.int32)
    starts = np.concatenate([starts[:-1], new_starts])
    widths = np.diff(starts)  # one candidate out of each stretch: distinct, in order
    items = np.empty((rows, candidates), dtype=np.int32)
    pi0 = np.zeros((rows, candidates))
    action = np.empty(rows, dtype=np.int32)
    propensity, reward = np.empty(rows), np.empty(rows)
    for start in range(0, rows, AT_ONCE):
        piece = slice(start, min(start + AT_ONCE, rows))
        m = piece.stop - piece.start
        chosen = draw.random((m, candidates), dtype=np.float32) * widths
        items[piece] = starts[:-1] + np.minimum(chosen.astype(np.int32), widths - 1)
        noise = draw.standard_normal((m, old), dtype=np.float32)
        odds = np.exp(noise + quality[items[piece, :old]]).astype(np.float64)
        odds /= odds.sum(axis=1, keepdims=True)
        pi0[piece, :old] = odds
        place = (np.cumsum(odds, axis=1) < draw.random(m)[:, None]).sum(axis=1).clip(0, old - 1)
        each = np.arange(m)
        action[piece], propensity[piece] = items[piece][each, place], odds[each, place]
        taste = (contexts[piece] * features[action[piece], :CONTEXT_FEATURES]).sum(axis=1)
        logit = quality[action[piece]] + 0.1 * taste - 3.7
        reward[piece] = draw.random(m) < 1 / (1 + np.exp(-logit))
    sizes = np.full(rows, candidates)
    return Raw(
        features, contexts, sizes, items.reshape(-1), pi0.reshape(-1), action, reward, propensity
    )


def measured(n_items: int, rows: int, candidates: int, members: int) -> dict[str, float]:
    """One round, stage by stage, here."""
    stages = Stages()
    raw = made(n_items, rows, candidates)
    stages.end("(the raw data is made)")
    ids = np.arange(n_items) + 10_000_000
    catalogue = Catalogue(ids, np.arange(n_items) >= n_items - NEW, raw.features)
    stages.end("catalogue")
    logs = LoggedData.from_arrays(
        contexts=raw.contexts,
        actions=ids[raw.action],
        rewards=raw.reward,
        propensities=raw.propensity,
        catalogue=catalogue,
        r_max=1.0,
        candidates=Candidates.of_flat(raw.sizes, raw.items, raw.pi0),
    )
    del raw  # the logs hold what they need
    stages.end("logs")
    settings = ExploreSettings(rewards=RewardSettings(members=members))
    folds = split(logs, "benchmark", settings.fractions)
    stages.end("hash and folds")
    pi0 = BroughtPolicy(n_items)
    inputs = RoundInputs(folds, pi0)
    with rng.one_thread():  # as campaigns do; pairs are scored on all cores all the same
        prospect = look_ahead(inputs, settings, seed=0)
        stages.end("look ahead")
        candidate = prospect.frozen()
        stages.end("freeze")
        explored = certify_round(candidate, inputs, settings, reads=Reads())
        stages.end("certify")
    names = [name for name in stages.wall if not name.startswith("(")]
    seconds, cpu = (sum(of[name] for name in names) for of in (stages.wall, stages.cpu))
    pairs = rows * candidates
    print(
        f"  in all {seconds:.1f} s, {cpu:.1f} s of CPU, peak {peak():.2f} GiB; "
        f"{rows / seconds:,.0f} rows/s, {pairs / seconds:,.0f} pairs/s; {explored.choice.what}, "
        f"novelty {explored.novelty:.3f}",
        flush=True,
    )
    return {"seconds": seconds, "cpu": cpu, "peak": peak(), "novelty": explored.novelty}


def in_a_process(given: argparse.Namespace, candidates: int) -> dict[str, float]:
    """The same in a process of its own, whose lines are passed on."""
    command = [sys.executable, __file__, "--one", "--items", str(given.items)]
    command += ["--rows", str(given.rows), "--members", str(given.members)]
    command += ["--candidates", str(candidates)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = []
        for line in process.stdout or ():
            lines.append(line)
            if not line.startswith("{"):
                print(line, end="", flush=True)
    if process.returncode:
        sys.exit(process.returncode)
    figures: dict[str, float] = json.loads(lines[-1])
    return figures


def main() -> int:
    """Measure each number of candidates; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--candidates", type=int, nargs="+", default=[200, 50])
    parser.add_argument("--members", type=int, default=1, help="MLPs of q-hat")
    parser.add_argument("--small", action="store_true", help="5,000 items, 5,000 rows; no bars")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.small:
        given.items, given.rows, given.candidates = 5_000, 5_000, [20, 10]
    if given.one:
        figures = measured(given.items, given.rows, given.candidates[0], given.members)
        print(json.dumps(figures))
        return 0
    found = []
    for candidates in given.candidates:
        print(
            f"{given.items:,} items, {given.rows:,} rows, {candidates} candidates each; "
            f"{rng.cores()} cores, MLPs: {given.members}",
            flush=True,
        )
        found.append(in_a_process(given, candidates))
    if given.small:
        return 0
    met = {}
    for candidates, figures in zip(given.candidates, found, strict=True):
        met[f"{candidates} candidates under {SECONDS:.0f} s"] = figures["seconds"] < SECONDS
        met[f"{candidates} candidates under {GIB:g} GiB"] = figures["peak"] < GIB
    if given.candidates == [200, 50]:
        share = found[1]["cpu"] / found[0]["cpu"]
        met[f"50 take {share:.2f} of the CPU of 200, at most {SHARE:.2f}"] = share <= SHARE
    for name, reached in met.items():
        print(f"{name}: {'met' if reached else 'MISSED'}")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
