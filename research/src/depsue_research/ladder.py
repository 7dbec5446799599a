"""The ladder of assumptions, measured: what each rung certifies on the paper's data, and how often
it errs at its edge.

`run_cells` certifies the first round of every cell twice on the same rows, with nothing assumed and
with "exchangeable", and notes what the truth is. Finished cells are lines of a file, so the same
command goes on where it was cut short. `edges` draws worlds in which each rung holds and nothing
more, and a policy that just misses its floor there: it must not pass more than delta of the time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from depsue import rng
from depsue.assumptions import Rung
from depsue.certificates import AssumedRung, ItemSplit, MixtureLadder, Reads, Rules, certify
from depsue.certificates.assumed import item_draw
from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray
from depsue.exploration.round import explore
from depsue.policies import OwnPolicy, ScoreTable, Uniform
from depsue.policies.rule import ByRule
from depsue.progress import Watch, silent
from depsue.promises import Floor, Promise
from depsue.rewards import LinearRewardModel
from depsue_research.paper.recipe import Recipe
from depsue_research.paper.worlds import worlds_of

RUNGS: tuple[tuple[Rung, ...], ...] = ((), (Rung("exchangeable"),))
CONTEXT = np.zeros((1, 1), dtype=np.float32)
OLD, NEW, ROWS, DELTA = 120, 60, 6000, 0.05


@dataclass(frozen=True)
class LadderCell:
    """One cell on one rung: what was certified of the first round, and the truth.

    Args:
        recipe, level, seed, rung: which.
        rows: logged.
        certified: novelty of what passed; 0 if nothing did.
        novelty, value: of what would be served; value relative to V(pi0).
        certified_value: of what passed, relative to V(pi0); None if nothing did.
        kept: whether what passed keeps the floor; None if nothing did.
    """

    recipe: str
    level: float
    seed: int
    rung: str
    rows: int
    certified: float
    novelty: float
    value: float
    certified_value: float | None
    kept: bool | None


def run_cells(
    recipe: Recipe,
    levels: Sequence[float],
    seeds: Iterable[int],
    kept: Path,
    data: Path | None = None,
    watch: Watch = silent,
) -> list[LadderCell]:
    """All cells, those in `kept` read and the others run and added to it."""
    done = read_cells(kept)
    known = {(c.recipe, c.level, c.seed, c.rung, c.rows) for c in done}
    jobs = [(level, seed) for seed in seeds for level in levels]
    for place, (level, seed) in enumerate(jobs):
        watch("ladder", place, len(jobs), f"level {level:g}, seed {seed}")
        names = [_named(rungs) for rungs in RUNGS]
        if all((recipe.name, level, seed, name, recipe.rows) in known for name in names):
            continue
        for cell in _cell(recipe, level, seed, data):
            if (cell.recipe, cell.level, cell.seed, cell.rung, cell.rows) in known:
                continue
            kept.parent.mkdir(parents=True, exist_ok=True)
            with kept.open("a") as file:
                file.write(json.dumps(asdict(cell)) + "\n")
            done.append(cell)
    watch("ladder", len(jobs), len(jobs), "")
    return done


def read_cells(kept: Path) -> list[LadderCell]:
    """The finished cells."""
    if not kept.exists():
        return []
    return [LadderCell(**json.loads(line)) for line in kept.read_text().splitlines()]


def _named(rungs: tuple[Rung, ...]) -> str:
    return ", ".join(map(str, rungs)) or "nothing"


def _cell(recipe: Recipe, level: float, seed: int, data: Path | None) -> Iterator[LadderCell]:
    with rng.one_thread():
        world, _ = worlds_of(recipe, level, seed, data)
        pi0 = world.logging_policy
        logs, base = world.deploy(pi0, recipe.rows, round=0), world.value(pi0)
        for rungs in RUNGS:
            settings = replace(
                recipe.exploration,
                promises=(Promise(Floor(recipe.floor)),),
                deployments=1,
                assume=rungs,
                rewards=replace(recipe.rewards, members=recipe.exploration.rewards.members),
            )
            reads = Reads(secret=rng.secret(seed, "ladder"))
            found = explore(reads.folds(logs), pi0, settings, seed=seed, reads=reads)
            passed, value = found.certificate.passed, world.value(found.policy) / base
            of_passed = value
            if passed and not found.certified:
                shares = found.candidate.levels.shares[:, -1].tolist()
                level_of = shares.index(found.certificate.shares[-1])
                of_passed = world.value(found.candidate.levels.policy(level_of)) / base
            yield LadderCell(
                recipe.name,
                level,
                seed,
                _named(rungs),
                recipe.rows,
                certified=found.certificate.novelty if passed else 0.0,
                novelty=world.novelty(found.policy),
                value=value,
                certified_value=of_passed if passed else None,
                kept=of_passed >= recipe.floor if passed else None,
            )


def cells_table(cells: Sequence[LadderCell]) -> str:
    """Certified novelty by level, nothing assumed and with the rung, as Markdown."""
    lines = [
        "| recipe | level | seeds | nothing | exchangeable | ratio | value, nothing | value, "
        "exchangeable | floors missed |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for recipe, level in sorted({(c.recipe, c.level) for c in cells}):
        mine = [c for c in cells if (c.recipe, c.level) == (recipe, level)]
        by = {name: [c for c in mine if c.rung == name] for name in map(_named, RUNGS)}
        if not all(by.values()):
            continue
        nothing, alike = (float(np.mean([c.certified for c in own])) for own in by.values())
        values = [float(np.mean([c.value for c in own])) for own in by.values()]
        missed = sum(c.kept is False for c in by["exchangeable"])
        ratio = f"{alike / nothing:.2f}" if nothing > 0 else "-"
        lines.append(
            f"| {recipe} | {level:g} | {len(by['exchangeable'])} | {nothing:.3f} | {alike:.3f} | "
            f"{ratio} | {values[0]:.3f} | {values[1]:.3f} | {missed} |"
        )
    return "\n".join(lines)


def edges(runs: int, *, seed: int = 0, delta: float = DELTA) -> dict[str, int]:
    """How often a policy passes that just misses its floor, in worlds where just the rung holds."""
    return {
        name: sum(one(rng.derive(seed, name, run), delta) for run in range(runs))
        for name, one in EDGES.items()
    }


def edges_table(wrong: dict[str, int], runs: int, delta: float = DELTA) -> str:
    """The same as Markdown."""
    lines = [f"| rung, at its edge | wrong of {runs:,} | share | delta |", "|---|---:|---:|---:|"]
    for name, count in wrong.items():
        lines.append(f"| {name} | {count} | {count / runs:.2%} | {delta:.0%} |")
    return "\n".join(lines)


def _rows(catalogue: Catalogue, q: FloatArray, p: FloatArray, draw: np.random.Generator,
          logged: FloatArray | None = None) -> LoggedData:  # fmt: skip
    action = draw.choice(len(q), size=ROWS, p=p)
    return LoggedData(
        catalogue=catalogue,
        contexts=CONTEXT,
        context=np.zeros(ROWS, dtype=np.int64),
        action=action,
        reward=(draw.random(ROWS) < q[action]).astype(float),
        propensity=(p if logged is None else logged)[action],
        round=np.zeros(ROWS, dtype=np.int16),
        r_max=1.0,
    )


def _own(p: FloatArray) -> OwnPolicy:
    return OwnPolicy(ScoreTable(CONTEXT, p[None, :]), len(p))


def _passes(ladder: MixtureLadder, logs: LoggedData, rules: Rules, seed: int) -> bool:
    reads = Reads(secret=rng.secret(seed, "edge"))
    return certify(ladder, reads.folds(logs), rules, reads).passed


def _exchangeable(seed: int, delta: float, *, by_lot: bool = False) -> bool:
    """Items of one distribution (or fixed ones by lot), and a level just below the floor."""
    draw = rng.generator(seed, "world")
    novel = np.arange(OLD + NEW) >= OLD
    catalogue = Catalogue(np.arange(OLD + NEW), novel)
    source = rng.generator(0, "fixed items") if by_lot else draw
    q = np.minimum(0.25 * np.exp(0.8 * source.normal(size=OLD + NEW)), 1.0)
    q = draw.permutation(q)
    p = np.where(novel, 0.0, 1 / OLD)
    old, kappa = _own(p), 0.5
    logs = _rows(catalogue, q, p, draw)
    reads = Reads(secret=rng.secret(seed, "edge"))
    folds, rung = reads.folds(logs), Rung("exchangeable")
    split = ItemSplit.of(rung, catalogue, folds.registration)
    model = LinearRewardModel(0.0, np.zeros(1), np.zeros(OLD + NEW), 1.0)
    how: dict[str, float] = {"strength": 0.0, "scale": 1.0, "level": 1.0}
    rule = ByRule(old, model, novel, split.learned, **how)
    assumed = AssumedRung(rung, catalogue, split, rule)
    means = assumed.item_sums(folds.learn, split.chosen) / len(folds.learn)
    constants = item_draw(means, split, novel, delta / 2, 1.0)
    assumed = replace(assumed, draws={"reward": constants})
    worth = (1 - kappa) * float(p @ q) + kappa * float(q[novel].mean())
    promise = Promise(Floor(None, worth * 1.0001))
    ladder = MixtureLadder((old, rule), np.array([[1 - kappa, kappa]]))
    rules = Rules((promise,), delta=delta, clip=5.0, assumed=assumed)
    return certify(ladder, folds, rules, reads).passed


def _by_lot(seed: int, delta: float) -> bool:
    return _exchangeable(seed, delta, by_lot=True)


def _within(seed: int, delta: float) -> bool:
    """Every propensity is logged a factor Gamma too small: the worst that the rung allows."""
    draw, gamma = rng.generator(seed, "world"), 1.2
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.6, 0.4, 0.5, 0.0])
    catalogue = Catalogue(np.arange(4), p == 0)
    target = np.array([0.7, 0.1, 0.2, 0.0])
    logs = _rows(catalogue, q, p, draw, logged=p / gamma)
    rung = AssumedRung(Rung("propensities-within", factor=gamma), catalogue)
    promise = Promise(Floor(None, float(target @ q) * 1.0001))
    rules = Rules((promise,), delta=delta, clip=5.0, assumed=rung)
    return _passes(MixtureLadder((_own(target),), np.ones((1, 1))), logs, rules, seed)


def _labelled(seed: int, delta: float, rung: Rung, worst: float) -> bool:
    """A new item that is worth just what its proxy, or its group, lets one expect."""
    draw, p = rng.generator(seed, "world"), np.array([0.5, 0.3, 0.2, 0.0])
    q = np.array([0.6, 0.4, 0.6, worst])
    labels = {"like": ["", "", "", "1"], "kind": ["a", "b", "a", "b"]}
    catalogue = Catalogue(np.arange(4), p == 0, labels=labels)
    logs, old, kappa = _rows(catalogue, q, p, draw), np.array([0.7, 0.1, 0.2, 0.0]), 0.3
    assumed = AssumedRung(rung, catalogue)
    worth = (1 - kappa) * float(old @ q) + kappa * worst
    promise = Promise(Floor(None, worth * 1.0001))
    rules = Rules((promise,), delta=delta, clip=5.0, assumed=assumed,
                  marginal=assumed.marginal(_own(p)))  # fmt: skip
    ladder = MixtureLadder((_own(old), Uniform(p == 0)), np.array([[1 - kappa, kappa]]))
    return _passes(ladder, logs, rules, seed)


def _proxies(seed: int, delta: float) -> bool:
    return _labelled(seed, delta, Rung("proxies", "like", epsilon=0.05), 0.35)


def _groups(seed: int, delta: float) -> bool:
    return _labelled(seed, delta, Rung("groups", "kind"), 0.4)


EDGES: dict[str, Any] = {
    "propensities within 1.2, all logged 1.2 times too small": _within,
    "exchangeable, items of one distribution": _exchangeable,
    "exchangeable, fixed items divided by lot": _by_lot,
    "proxies, worth their proxy less epsilon": _proxies,
    "groups, worth their group": _groups,
}
