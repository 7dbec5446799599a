"""The proving ground on headline tests: policies of some weeks, judged by other clicks.

Tests are cut into blocks of consecutive weeks. On one block every method has K rounds; its policies
are then judged three ways:

- here: by the clicks that the rounds were drawn from. Certificates are about these.
- visitors: the same tests, by the clicks of other visitors (half of each package's impressions are
  set aside before anything is drawn).
- later: the tests of the next block, by all of their clicks. No certificate speaks of these weeks.

What was looked at while settings were chosen is set apart by a hash of the test's id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from depsue import defaults, rng
from depsue.data.checks import FloatArray, Mask
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.exploration import ExploreSettings
from depsue.policies import BasePolicy
from depsue.policies.base import whole
from depsue.promises import Floor, Promise
from depsue.protocols import Policy
from depsue.rewards import RewardSettings
from depsue_research.intervals import clopper_pearson, mean_interval
from depsue_research.kept_cells import Cell, KeptCells
from depsue_research.rivals import METHODS, PlayedRound, RivalSettings, played
from depsue_research.upworthy import (
    FEWEST,
    UpworthyTests,
    UpworthyWorld,
)

DEVELOPMENT = 0.4
"""Share of tests, by a hash of the id, on which settings were chosen."""


def part_of(tests: UpworthyTests, final: bool) -> UpworthyTests:
    """The tests of development, or those that were kept for the end."""
    digests = [hashlib.sha256(f"depsue {name}".encode()).digest() for name in tests.tests]
    share = np.array([int.from_bytes(digest[:8], "big") / 2**64 for digest in digests])
    return tests.take((share >= DEVELOPMENT) == final)


def blocks_of(tests: UpworthyTests, size: int) -> list[Mask]:
    """Consecutive weeks with at least `size` tests each; the rest belongs to the last block."""
    out: list[Mask] = []
    kept = np.zeros(len(tests), dtype=bool)
    for week in np.unique(tests.week):
        kept = kept | (tests.week == week)
        if kept.sum() >= size:
            out.append(kept)
            kept = np.zeros(len(tests), dtype=bool)
    if out:
        out[-1] = out[-1] | kept
    return out


def split_visitors(tests: UpworthyTests, seed: int) -> tuple[UpworthyTests, UpworthyTests]:
    """Each package's impressions in two halves at random, with their clicks."""
    draw = rng.generator(seed, "upworthy visitors")
    shown = tests.impressions // 2
    clicks = draw.hypergeometric(tests.clicks, tests.impressions - tests.clicks, shown)
    halves = ((shown, clicks), (tests.impressions - shown, tests.clicks - clicks))
    first, second = (
        UpworthyTests(
            tests.tests, tests.week, tests.starts, tests.package, tests.text, impressions, clicked
        )
        for impressions, clicked in halves
    )
    return first, second


class WeeksWorld(UpworthyWorld):
    """A world in which some of the tests come up; policies can be asked about all of them.

    Args:
        tests: of two blocks.
        live: (t,) those that come up.
        seed: which packages are new, and what visitors do.
        first: (m,) of each test the package with the smallest is new; None goes by a hash.
    """

    def __init__(
        self, tests: UpworthyTests, live: Mask, *, seed: int, first: FloatArray | None = None
    ) -> None:
        super().__init__(tests, seed=seed, first=first)
        if len(self.tests) != len(tests):
            raise ValueError("tests with too few impressions are left out beforehand")
        self.live = np.flatnonzero(live)

    def deploy(self, policy: Policy, n: int, *, round: int) -> LoggedData:
        """n decisions at the live tests, which come up equally often."""
        draw = rng.generator(self._seed, "weeks", round)
        rows = self.live[draw.integers(0, len(self.live), n)]
        return self.decisions(policy, rows, draw, round)


def run_cell(
    tests: UpworthyTests,
    block: int,
    seed: int,
    settings: RivalSettings,
    size: int,
    method: str,
    new: str = "random",
) -> Cell:
    """One method on one block, judged: a line of cells.jsonl.

    Args:
        tests: of one part, without broken weeks.
        block: which block is learned on; the next one judges.
        seed: of all draws.
        settings: of the methods.
        size: tests of a block, at least.
        method: one of METHODS.
        new: which package of a test is new: one at "random", or the "worst" one, by the clicks of
            the other visitors.
    """
    smallest = np.minimum.reduceat(tests.impressions, tests.starts[:-1])
    tests = tests.take(smallest >= 2 * FEWEST + 2)
    blocks = blocks_of(tests, size)
    mine, later = blocks[block], blocks[block + 1]
    both = mine | later
    chosen, live = tests.take(both), mine[both]
    here, visitors = split_visitors(chosen, rng.derive(seed, "visitors", block))
    worst = visitors.clicks / visitors.impressions if new == "worst" else None
    world = WeeksWorld(here, live, seed=rng.derive(seed, "world", block), first=worst)
    logs = world.deploy(world.logging_policy, settings.rows, round=0)
    explore = ExploreSettings(
        promises=(Promise(Floor(settings.floor)),),
        deployments=settings.rounds,
        objective="most novelty",
        rewards=RewardSettings(members=1, max_epochs=3),
    )
    rounds = played(method, world, logs, explore, settings, requests=world.requests, seed=seed)
    judges = (
        ("here", live, here),
        ("visitors", live, visitors),
        # the half that did not choose which package is the worst
        ("later", ~live, here if new == "worst" else chosen),
    )
    cell: Cell = {
        "method": method,
        "new": new,
        "block": block,
        "seed": seed,
        "weeks": [int(chosen.week[live].min()), int(chosen.week[live].max())],
        "later_weeks": [int(chosen.week[~live].min()), int(chosen.week[~live].max())],
        "tests": [int(live.sum()), int((~live).sum())],
        "rounds": [],
    }
    for one in rounds:
        cell["rounds"].append(
            {
                "certified": one.certified,
                **{
                    name: judged(world, one.policy, some, by, settings.floor)
                    for name, some, by in judges
                },
            }
        )
    return cell | discovered(world, rounds)


def judged(
    world: WeeksWorld, policy: BasePolicy, some: Mask, by: UpworthyTests, floor: float
) -> dict[str, float]:
    """V / V(pi0), novelty, and by how many standard errors V exceeds the floor, on some tests."""
    requests = Requests(world.requests.contexts, world.requests.candidates).take(
        np.flatnonzero(some)
    )
    rate = by.clicks / by.impressions
    n_actions, sets = len(world.catalogue), requests.sets
    if sets is None:
        raise RuntimeError("requests of this world have candidates")
    mine = whole(policy, requests) / len(requests)
    theirs = whole(world.logging_policy, requests) / len(requests)
    noise = rate * (1 - rate) / by.impressions
    rates, noises = (requests.table(column[sets.items], n_actions) for column in (rate, noise))
    value, value0 = float((mine * rates).sum()), float((theirs * rates).sum())
    error = float(((mine - floor * theirs) ** 2 * noises).sum()) ** 0.5
    novel = requests.table(world.catalogue.novel[sets.items].astype(float), n_actions)
    return {
        "ratio": value / value0,
        "novelty": float((mine * novel).sum()),
        "z": (value - floor * value0) / max(error, 1e-12),
    }


def discovered(world: WeeksWorld, rounds: Sequence[PlayedRound]) -> Cell:
    """Shares of the live tests' new packages that were shown, and clicked, often enough."""
    n = len(world.catalogue)
    shown, clicks = np.zeros(n), np.zeros(n)
    for one in rounds:
        shown += np.bincount(one.logs.action, minlength=n)
        clicks += np.bincount(one.logs.action, one.logs.reward, minlength=n)
    mine = world.catalogue.novel & np.isin(world.tests.test, world.live)
    every = [one.logs.mean_reward() for one in rounds]
    base = float(world.value_of(world.logging_policy, world.live))
    return {
        "shown": float((shown[mine] >= defaults.IMPRESSIONS).mean()),
        "rewarded": float((clicks[mine] >= defaults.REWARDS).mean()),
        "gain": float(np.mean(every)) / base - 1,
    }


def study(
    tests: UpworthyTests,
    settings: RivalSettings,
    *,
    final: bool,
    seeds: Sequence[int],
    size: int,
    folder: Path,
    say: Callable[[str], None],
    methods: Sequence[str] = METHODS,
) -> list[Cell]:
    """All cells that are not in cells.jsonl yet; then all cells.

    Args:
        tests: all tests of the archive.
        settings: of the methods.
        final: whether the part is used that was kept for the end.
        seeds: of the campaigns; each has one campaign a block for either way in which packages are
            new.
        size: tests of a block, at least.
        folder: where cells.jsonl is.
        say: told of each cell that is finished.
        methods: which.
    """
    part = part_of(tests.outside(), final)
    kept = KeptCells(folder, "method", "new", "block", "seed")
    blocks = len(blocks_of(part, size)) - 1
    for seed, new, block, method in product(seeds, ("random", "worst"), range(blocks), methods):
        if kept.has(method, new, block, seed):
            continue
        cell = kept.add(run_cell(part, block, seed, settings, size, method, new))
        last = cell["rounds"][-1]
        ratios = " ".join(f"{name} {last[name]['ratio']:.3f}" for name in JUDGES)
        say(
            f"seed {seed}, new {new}, block {block}, {method}: {ratios}, "
            f"novelty {last['here']['novelty']:.3f}"
        )
    return kept.cells


JUDGES = ("here", "visitors", "later")


def write_page(cells: Sequence[Cell], folder: Path, settings: RivalSettings, command: str) -> None:
    """study.md and study.png, from the cells.

    Args:
        cells: all of them.
        folder: where to.
        settings: of the methods.
        command: what made them.
    """
    campaigns = {(cell["new"], cell["block"], cell["seed"]) for cell in cells}
    seeds = ", ".join(map(str, sorted({cell["seed"] for cell in cells})))
    blocks = len({cell["block"] for cell in cells})
    lines = f"""# Certified exploration and its rivals on headline tests

Made by `{command}`:
{len(campaigns)} campaigns of {settings.rounds} rounds with {settings.rows:,} decisions each, on
{blocks} blocks of weeks of the Upworthy Research Archive, seeds {seeds}. Read
[the example](../../upworthy.md) first.

- The floor is {settings.floor:.0%} of pi0's clicks, delta 5% a deployment. pi0 shows the old
  packages of a test evenly. *Even* is pi0 with a new package in {1 - settings.floor:.0%} of the
  decisions.
- One package of each test is new: one **at random**, where new items are as good as old ones; or
  **the worst**, by the clicks of visitors who take no other part, where they are not.
- Judged *here* by the clicks that rounds were drawn from, which is what a certificate is about; by
  *other visitors* of the same tests; and in *later weeks*, on the tests of the next block, about
  which no certificate says anything. Where the worst package is new, other visitors chose it, so
  they judge new ones too harshly.
- Weeks in which randomisation was broken are left out, as `check` finds them (the example).
- Settings were chosen on other tests (two fifths, by a hash of their ids); these were run once.
- Intervals are 95%. Campaigns of different seeds share tests: they differ in which packages are
  new, in who visits and in all draws. So intervals say how a procedure varies on these tests, not
  on other sites.

{_tables(cells, settings)}
![share of new packages and value of each last policy, by method](study.png)
"""
    (folder / "study.md").write_text(lines, encoding="utf-8")
    _figure(cells, settings.floor).savefig(folder / "study.png", dpi=110)


def _tables(cells: Sequence[Cell], settings: RivalSettings) -> str:
    """How often floors were missed, and what was earned and shown, for either kind of new items."""
    words = {"random": "New packages at random", "worst": "The worst package of each test is new"}
    out = []
    for new, title in words.items():
        mine = [cell for cell in cells if cell["new"] == new]
        if not mine:
            continue
        out += [
            f"## {title}",
            "",
            'How often a deployed policy was below its floor. "Passed": certificates, or bounds of '
            "Safe OPG; other methods ask",
            'for none. "Beyond noise": more than 1.645 standard errors below, of the later weeks\' '
            "clicks.",
            "",
            "| method | deployments | passed | below: here | other visitors | later weeks "
            "| later, beyond noise |",
            "|---|--:|--:|--:|--:|--:|--:|",
            *(_floor_row(method, mine) for method in _methods(mine)),
            "",
            f"The policy of round {settings.rounds}; the gain in clicks over all rounds; new "
            f"packages with {defaults.IMPRESSIONS} impressions, and with {defaults.REWARDS} "
            "clicks, by then.",
            "",
            "| method | share of new | V / V(pi0), here | other visitors | later weeks "
            "| gain while deployed | discovered | with clicks |",
            "|---|--:|--:|--:|--:|--:|--:|--:|",
            *(_gain_row(method, mine) for method in _methods(mine)),
            "",
        ]
    return "\n".join(out)


def _methods(cells: Sequence[Cell]) -> Iterator[str]:
    there = {cell["method"] for cell in cells}
    return (method for method in METHODS if method in there)


def _of(cells: Sequence[Cell], method: str) -> list[Cell]:
    return [cell for cell in cells if cell["method"] == method]


def _floor_row(method: str, cells: Sequence[Cell]) -> str:
    rounds = [one for cell in _of(cells, method) for one in cell["rounds"]]
    asked = [one["certified"] for one in rounds if one["certified"] is not None]
    below = [sum(one[name]["z"] < 0 for one in rounds) for name in JUDGES]
    clear = sum(one["later"]["z"] < -1.645 for one in rounds)
    counts = " | ".join(clopper_pearson(count, len(rounds)) for count in [*below, clear])
    passed = f"{sum(asked)}" if asked else "-"
    return f"| {method} | {len(rounds)} | {passed} | {counts} |"


def _gain_row(method: str, cells: Sequence[Cell]) -> str:
    mine = _of(cells, method)
    last = [cell["rounds"][-1] for cell in mine]
    columns: list[list[float]] = [
        [one["here"]["novelty"] for one in last],
        *([one[name]["ratio"] for one in last] for name in JUDGES),
        [cell["gain"] for cell in mine],
        [cell["shown"] for cell in mine],
        [cell["rewarded"] for cell in mine],
    ]
    return f"| {method} | " + " | ".join(mean_interval(column) for column in columns) + " |"


def _figure(cells: Sequence[Cell], floor: float) -> Any:
    from matplotlib.figure import Figure

    kinds = [new for new in ("random", "worst") if any(cell["new"] == new for cell in cells)]
    figure = Figure(figsize=(11, 3.1 * len(kinds) + 0.5), layout="constrained")
    axes = figure.subplots(len(kinds), 3, sharex=True, sharey=True, squeeze=False)
    names = list(_methods(cells))
    titles = {"here": "here", "visitors": "other visitors", "later": "later weeks"}
    for (new, judge), axis in zip(product(kinds, JUDGES), axes.ravel(), strict=True):
        for place, method in enumerate(names):
            mine = [cell for cell in _of(cells, method) if cell["new"] == new]
            last = [cell["rounds"][-1][judge] for cell in mine]
            x: FloatArray = np.array([one["novelty"] for one in last])
            y: FloatArray = np.array([one["ratio"] for one in last])
            color = f"C{place}"
            axis.scatter(x, y, s=16, alpha=0.7, color=color, label=method, lw=0)
        axis.axhline(floor, color="#b3312c", ls="--", lw=1.1)
        axis.axhline(1.0, color="#999999", lw=0.8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_title(f"new: {new}; judged {titles[judge]}", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("share of new packages")
    for axis in axes[:, 0]:
        axis.set_ylabel("clicks, over pi0's")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    return figure
