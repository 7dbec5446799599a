"""Two ways to more rows for a verdict: pooling, which is built, and blocks, which do not pay.

**Pooling** (`pooling_lines`): a campaign of certified exploration is run in one of the paper's
worlds. Then, with the true mean rewards in place of rows, it is asked of each of its verdicts how
far down its ladder a bound would go: on the newest certifying rows, and on these joined with slices
that earlier rounds reserved, each row's propensity replaced by that of the mixture of the policies
that logged the slices. What a round reserves, its own verdict does not have, and some rows are
left out by lot (`depsue.certificates.pooling`).

**Blocks** (`block_lines`): policies are learned block by block on the blocks before, and their
mixture is certified on all blocks but the first with a constant bet; against one policy that is
learned on .35 of the rows and certified by `normal` on .6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from depsue import rng
from depsue.bounds import BaseBound, Betting, Normal, Pilot, best_bet
from depsue.certificates import FRACTIONS
from depsue.certificates.pooling import expected_rows
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.data.terms import ConservativeTerms
from depsue.estimators.weights import importance_weights
from depsue.exploration.headroom import clip_for
from depsue.exploration.rounds import Exploration, run_exploration
from depsue.policies.base import whole
from depsue.policies.tilted import Tilted
from depsue.promises import Floor, Promise
from depsue.protocols import Policy
from depsue.rewards import fit_linear
from depsue.world import SyntheticSettings, World, synthetic_world
from depsue_research.paper.recipe import Recipe
from depsue_research.paper.worlds import worlds_of

COST = 1.75
"""Standard errors that `normal` costs with this many rows, at delta .05."""
RESERVES = (0.0, 0.1, 0.25, 0.5)
"""Shares of every certifying fold but the last that are reserved for later verdicts."""
NOVELTIES = np.arange(0.0, 0.5005, 0.001)
HOLDOUT = 0.05
"""Share of a round's decisions that pi0 takes."""
HELD_OUT = "0% reserved, and a holdout of pi0"
DELTA, RHO = 0.05, 0.95
STRENGTH, CLIP = 1.0, 5.0
"""Of the tilt that is certified block by block, and the largest weight that counts."""


@dataclass(frozen=True)
class ShownRows:
    """Rows that one policy logged: their number, and (u, A) its probabilities."""

    rows: float
    shown: FloatArray


def reserved_rows(
    deployments: int, rows: float, reserve: float, *, first: bool = False
) -> list[list[float]]:
    """By verdict k, the rows that it reads of D_0 .. D_{k-1}; a slice for each later verdict.

    Args:
        deployments: K.
        rows: of a certifying fold.
        reserve: the share of it that is reserved.
        first: whether D_0 reserves too.
    """
    out = []
    for k in range(1, deployments + 1):
        slices = [reserve * rows / (deployments - 1 - j) for j in range(k - 1)]
        if slices and not first:
            slices[0] = 0.0
        whole = k == deployments or (k == 1 and not first)
        last = rows if whole else (1 - reserve) * rows
        out.append(_by_lot([*slices, last], deployments))
    return out


def _by_lot(rows: list[float], deployments: int) -> list[float]:
    """What is read of the rows that slices and the newest fold have, as far as it is worth it."""
    *slices, newest = (round(n) for n in rows)
    read = [max(expected_rows(n, deployments), 0) for n in slices]
    others = sum(n for n, taken in zip(slices, read, strict=True) if taken)
    left = expected_rows(newest, deployments, others)
    if not others or sum(read) + left <= newest:
        return [0.0] * len(slices) + [float(newest)]
    return [float(n) for n in (*read, left)]


def certified_novelty(
    strata: Sequence[ShownRows],
    parts: tuple[FloatArray, FloatArray],
    q: FloatArray,
    need: float,
    pi0: FloatArray | None,
) -> float:
    """The boldest mixture of two parts that would pass, if means and variances are the true ones.

    Args:
        strata: of the rows that a verdict reads, the newest last.
        parts: (u, A) pi_old and pi_new, which share no action.
        q: (u, A) mean rewards.
        need: what the bound must reach.
        pi0: (u, A), where terms are paired with it: then the need is 0.
    """
    n, newest = sum(stratum.rows for stratum in strata), strata[-1].rows
    base = np.sum([stratum.rows / n * stratum.shown for stratum in strata], axis=0)
    inverse = np.divide(1.0, base, out=np.zeros_like(base), where=base > 0)
    clip = clip_for(newest) * n / newest  # rows of others make the weights of new items larger
    old, new = (np.minimum(part * inverse, clip) for part in parts)
    first = np.zeros_like(old) if pi0 is None else RHO * pi0 * inverse
    value, noise = base * q / len(q), base * q * (1 - q) / len(q)
    mean = [float((value * weight).sum()) for weight in (old, new, first)]
    square = [float((noise * weight**2).sum()) for weight in (old, new, first)]
    cross = float((noise * old * first).sum())
    nu = NOVELTIES
    means = (1 - nu) * mean[0] + nu * mean[1] - mean[2]
    squares = (1 - nu) ** 2 * square[0] + nu**2 * square[1] + square[2] - 2 * (1 - nu) * cross
    passed = means - COST * np.sqrt(np.maximum(squares, 0.0) / n) >= need
    return float(nu[passed].max()) if passed.any() else 0.0


def pooled(world: World, rows: int, ran: Sequence[Exploration]) -> dict[str, list[float]]:
    """By what its verdicts read, the novelty that each verdict of a campaign would certify."""
    users, q, certifying = Requests(world.contexts), world.q, FRACTIONS[2] * rows
    policies = (world.logging_policy, *(d.explored.policy for d in ran[:-1]))
    shown = [whole(policy, users) for policy in policies]
    ways = {
        f"{reserve:.0%} reserved": reserved_rows(len(ran), certifying, reserve)
        for reserve in RESERVES
    }
    most = RESERVES[1]
    ways[f"{most:.0%} reserved, of the first logs too"] = reserved_rows(
        len(ran), certifying, most, first=True
    )
    ways["all earlier folds, at no cost"] = [[certifying] * (k + 1) for k in range(len(ran))]
    found: dict[str, list[float]] = {name: [] for name in (*ways, HELD_OUT)}
    for k, d in enumerate(ran):
        parts, need = _parts(d, users), d.explored.certificate.verdicts[0].need
        paired = shown[0] if abs(need) < 1e-9 else None
        strata = {
            name: [ShownRows(n, pi) for n, pi in zip(counts[k], shown, strict=False) if n > 0]
            for name, counts in ways.items()
        }
        newest = ShownRows(certifying, shown[k])
        strata[HELD_OUT] = [ShownRows(HOLDOUT * rows, shown[0]), newest] if k else [newest]
        for name, own in strata.items():
            found[name].append(certified_novelty(own, parts, q, need, paired))
    return found


def _parts(d: Exploration, users: Requests) -> tuple[FloatArray, FloatArray]:
    """What a verdict's ladder mixes, on all users."""
    old, new = (
        whole(part, users) for part in d.explored.candidate.levels.parts if part is not None
    )
    return old, new


def pooling_lines(
    recipe: Recipe,
    levels: Sequence[float],
    seeds: Sequence[int],
    deployments: int,
    data: Path | None = None,
) -> Iterator[str]:
    """A table: novelty by verdict, over levels and seeds, for every reserve."""
    settings = replace(
        recipe.exploration,
        promises=(Promise(Floor(recipe.floor)),),
        deployments=deployments,
        reserve=0.0,
        rewards=replace(recipe.rewards, members=recipe.exploration.rewards.members),
    )
    heads = " | ".join(f"k={k}" for k in range(1, deployments + 1))
    yield f"| beta | rows of a verdict | {heads} | mean |"
    yield "|--:|---|" + "--:|" * (deployments + 1)
    for level in levels:
        found: dict[str, list[list[float]]] = {}
        for seed in seeds:
            with rng.one_thread():
                world = worlds_of(recipe, level, seed, data)[0]
                ran = run_exploration(world, recipe.rows, settings, seed=seed).deployments
                for name, by_k in pooled(world, recipe.rows // deployments, ran).items():
                    found.setdefault(name, []).append(by_k)
        for name, novelties in found.items():
            means = np.mean(novelties, axis=0)
            figures = " | ".join(f"{value:.3f}" for value in (*means, means.mean()))
            yield f"| {level:g} | {name} | {figures} |"


WORLD = SyntheticSettings(users=400, supported=60, novel=15, d=6)
LADDER = np.arange(0.0, 0.4, 0.002)
BLOCKS = (5, 10, 20)
"""In how many blocks the rows are divided."""


def one_policy(logs: LoggedData, pi0: Policy, bound: str) -> float:
    """The novelty beside a tilt learned on .35 of the rows, certified on .6 of them."""
    n = len(logs)
    learn, select = slice(0, int(0.35 * n)), slice(int(0.35 * n), int(0.4 * n))
    policy = _tilted(logs.take(learn), pi0)
    return _boldest(
        _weights(policy, logs.take(select)),
        _weights(policy, logs.take(slice(int(0.4 * n), n))),
        bound,
    )


def block_by_block(logs: LoggedData, pi0: Policy, blocks: int) -> float:
    """The novelty beside the mixture of the tilts learned on the blocks before each block.

    Given the blocks before it, a block's terms have the mean of its own tilt, so that the mean over
    blocks is that of the mixture; a constant bet needs no more.
    """
    ends = np.linspace(0, len(logs), blocks + 1).astype(int).tolist()
    policies = [_tilted(logs.take(slice(0, end)), pi0) for end in ends[1:-1]]
    parts = [
        _weights(policy, logs.take(slice(first, last)))
        for policy, first, last in zip(policies, ends[1:-1], ends[2:], strict=True)
    ]
    pilot = _weights(policies[0], logs.take(slice(0, ends[1])))
    return _boldest(pilot, np.concatenate(parts, axis=1), "betting")


def _tilted(rows: LoggedData, pi0: Policy) -> Tilted:
    model = fit_linear(rows)
    users = Requests(rows.contexts)
    shown, q_hat = whole(pi0, users), model.predict(rows.contexts)
    centred = q_hat - (shown * q_hat).sum(axis=1, keepdims=True)
    scale = float(np.sqrt((shown * centred**2).sum(axis=1).mean()))
    return Tilted(pi0, model, strength=STRENGTH, cap=CLIP, scale=max(scale, 1e-9))


def _weights(policy: Policy, rows: LoggedData) -> FloatArray:
    """(2, n) weights up to the clip, and rewards."""
    return np.stack([np.minimum(importance_weights(policy, rows), CLIP), rows.reward])


def _boldest(pilot: FloatArray, rows: FloatArray, bound: str) -> float:
    """The last level of the ladder that passes: paired terms ((1 - nu) w - rho) r, need 0."""
    reached, n = 0.0, rows.shape[1]
    for nu in LADDER.tolist():
        before, values = (((1 - nu) * w - RHO) * r for w, r in (pilot, rows))
        terms = ConservativeTerms(values, -RHO, proof="paired with pi0")
        test: BaseBound = Normal(upper=(1 - nu) * CLIP - RHO, pilot=Pilot.of(before))
        if bound == "betting":
            test = Betting(bets=(best_bet(float(before.var()), n, DELTA),))
        if test.lower(terms, DELTA).value < 0:
            break
        reached = nu
    return reached


def block_lines(rows: Sequence[int], worlds: int) -> Iterator[str]:
    """A table: mean novelty over worlds, by how the rows are used."""
    names = ["one policy, `normal`", "one policy, constant bet"]
    names += [f"{blocks} blocks, constant bet" for blocks in BLOCKS]
    yield f"| rows | {' | '.join(names)} |"
    yield "|--:|" + "--:|" * len(names)
    for n in rows:
        runs = []
        for seed in range(worlds):
            with rng.one_thread():
                world = synthetic_world(WORLD, seed=seed)
                pi0 = world.logging_policy
                logs = world.deploy(pi0, n, round=0)
                one = [one_policy(logs, pi0, bound) for bound in ("normal", "betting")]
                runs.append([*one, *(block_by_block(logs, pi0, blocks) for blocks in BLOCKS)])
        means = " | ".join(f"{value:.3f}" for value in np.mean(runs, axis=0))
        yield f"| {n:,} | {means} |"
