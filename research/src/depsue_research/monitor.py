"""How often the safety monitor stops without cause, and how soon with one.

A `Life` says what happens in a simulated round. `stops_at` runs the monitor's evidence on its
decisions in a small world, where the truth is chosen. `monitor_page` does so for all lives:
promises that are just kept (in a shop with busy and slow hours and in one with heavy users, too),
and faults that begin at the start, after 10,000 and after 100,000 decisions, and after twice the
declared length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from depsue.data.checks import FloatArray, IntArray
from depsue.promises import Floor, Promise
from depsue.serving.evidence import (
    EpochEvidence,
    FloorPart,
    JudgedRows,
    Weighing,
    delta_of_epoch,
)

PI0: FloatArray = np.array([0.5, 0.3, 0.15, 0.05, 0.0])
POLICY: FloatArray = np.array([0.42, 0.24, 0.12, 0.12, 0.10])
"""Both over five items, of which pi0 never shows the last."""
BATCH = 4000
"""Decisions that are taken in at once; the evidence does not depend on it."""
CYCLE = 86_400.0
"""Seconds of a day."""
RATE, RATIO, DELTA, ROUNDS, HOLDOUT = 0.1, 0.95, 0.05, 3, 0.05
"""V(pi0), the floor over it, the campaign's delta, its rounds, and the share of traffic on pi0."""
LENGTH = 200_000
"""Decisions that the round is declared for."""
LATE = 100_000
"""Decisions before a late fault; others begin at the start, after a tenth of them, and after four
times as many, which is twice the declared length."""
AT_MOST = 2.5
"""Times the delay of a fault from the start that a late one may take."""
MISSED = "NO: see the ratios above."
"""What the page says if one takes longer."""
SWING = 0.15
"""Of mean rewards over the day."""
HEAVY, OFTEN = 0.2, 10.0
"""Share of users who come often, and how many times as often."""
LESS = 0.07
"""How much lower V(pi) / V(pi0) is for those users than for all of them."""

FloorKind = Literal["relative", "absolute"]


@dataclass(frozen=True)
class Life:
    """What happens in one simulated life.

    Args:
        name: in words.
        value: V(pi) / V(pi0), once the fault has begun.
        drop: factor on what the policy's decisions earn then, whatever they show.
        skew: share of decisions that show another item than was drawn then.
        after: decisions before the fault; until then the policy is as good as pi0.
        floor: a share of V(pi0), or that share of it as a number.
        swing: of all mean rewards over the day, as a share of them.
        users: how many there are, HEAVY of them with OFTEN times the decisions; 0 has no units.
        a_day: decisions in a day.
    """

    name: str
    value: float
    drop: float = 1.0
    skew: float = 0.0
    after: int = 0
    floor: FloorKind = "relative"
    swing: float = 0.0
    users: int = 0
    a_day: int = 20_000


@dataclass(frozen=True)
class Watch:
    """How a life is watched.

    Args:
        decisions: for how long.
        rate: V(pi0).
        holdout: share of traffic on pi0.
        delta: for the campaign's life.
        rounds: K; this is the first epoch of one of them.
        ratio: rho.
        length: decisions that the round was declared for; None has one start only, as it was once.
        by_units: whether the promise is judged over units, where there are any.
        cycle: seconds of what is taken for a whole cycle.
    """

    decisions: int
    rate: float = RATE
    holdout: float = HOLDOUT
    delta: float = DELTA
    rounds: int = ROUNDS
    ratio: float = RATIO
    length: int | None = LENGTH
    by_units: bool = True
    cycle: float = CYCLE

    @property
    def allowed(self) -> float:
        """How often the epoch may stop without cause."""
        return delta_of_epoch(self.delta, self.rounds, 1)


KEPT = (
    Life("exactly at the need, V(pi) = .95 V(pi0)", 0.95),
    Life(f"at the need, rewards swing by {SWING:.0%} over the day", 0.95, swing=SWING),
    Life("at an absolute floor", 0.95, floor="absolute"),
    Life(
        f"at an absolute floor, rewards swing by {SWING:.0%} over the day",
        0.95,
        floor="absolute",
        swing=SWING,
    ),
    Life("at the need over users, below it over decisions", 0.95, users=1000),
)
BROKEN = (
    Life("items are worth less: .90", 0.90),
    Life("items are worth less: .85", 0.85),
    Life("the policy's decisions earn half, whatever they show", 1.0, drop=0.5),
    Life("5% of decisions show another item than was drawn", 1.0, skew=0.05),
)
BY_DAY = (
    Life("absolute floor, items are worth less: .85", 0.85, floor="absolute", a_day=5000),
    Life("over users, the policy's decisions earn half", 1.0, drop=0.5, users=1000),
)


@dataclass(frozen=True)
class Delays:
    """How soon a fault is found, by when it begins.

    Args:
        life: what happens.
        starts: decisions before the fault.
        watched: decisions after it.
        mixture, single: for each of the starts, (lives,) decisions from the fault to the stop, with
            starts over the whole round and with one start; infinity where it was not found, and
            NaN where the policy was stopped before the fault.
    """

    life: Life
    starts: tuple[int, ...]
    watched: int
    mixture: tuple[FloatArray, ...]
    single: tuple[FloatArray, ...]

    @property
    def ratios(self) -> list[float]:
        """Median delays of the mixture over that of a fault from the start."""
        medians = [median(delays) for delays in self.mixture]
        return [late / medians[0] for late in medians]

    @property
    def met(self) -> bool:
        """Whether late faults are found soon enough."""
        return all(ratio <= AT_MOST for ratio in self.ratios)


def median(delays: FloatArray, share: float = 0.5) -> float:
    """Of the delays that are known; infinity where so many faults were not found."""
    return float(np.quantile(delays[~np.isnan(delays)], share, method="higher"))


def measured(life: Life, lives: int, watched: int, late: int = LATE) -> Delays:
    """The delays of one fault.

    Args:
        life: what happens.
        lives: of each kind.
        watched: decisions after the fault began.
        late: decisions before a late fault; the latest begins after four times as many.
    """
    starts = (0, late // 10, late, 4 * late)  # the last: twice the declared length

    def delays(after: int, length: int | None) -> FloatArray:
        watch = Watch(after + watched, length=length)
        begins = replace(life, after=after)
        at = np.array([stops_at(begins, watch, seed) for seed in range(lives)]) - after
        return np.where(at > 0, at, np.nan)

    return Delays(
        life,
        starts,
        watched,
        tuple(delays(after, LENGTH) for after in starts),
        tuple(delays(after, None) for after in starts),
    )


def false_alarms(life: Life, watch: Watch, lives: int) -> int:
    """How many of so many lives are stopped."""
    return sum(math.isfinite(stops_at(life, watch, seed)) for seed in range(lives))


def monitor_page(
    replications: int,
    decisions: int,
    command: str,
    *,
    late: int = LATE,
    figure: Path | None = None,
) -> Iterator[str]:
    """The page, line after line as they are measured.

    Args:
        replications: lives in which promises are kept; of those with a fault, a twentieth.
        decisions: how long each is watched.
        command: that makes the page.
        late: decisions before the latest fault.
        figure: where the figure goes; None draws none.
    """
    watch = Watch(decisions)
    yield "# The monitor: false alarms, and delay to detection"
    yield ""
    yield (
        f"Made by `{command}`. Five items, V(pi0) = {RATE}, floor {RATIO} V(pi0), holdout "
        f"{HOLDOUT:g}, delta {DELTA:g} for the life of a campaign of {ROUNDS} rounds, a round "
        f"declared for {LENGTH:,} decisions. This is one epoch of one round, so its false alarms "
        f"must stay below {watch.allowed:.4f}. The evidence is looked at after every decision, or "
        "after every day where the floor is absolute or the promise is over users."
    )
    yield ""
    yield f"## False alarms over {decisions:,} decisions"
    yield ""
    yield "| what happens | lives | stopped | at most (95%) | allowed |"
    yield "|---|---:|---:|---:|---:|"
    for life in KEPT:
        yield _alarm_line(life.name, life, watch, replications)
    few = max(replications // 20, 1)
    yield ""
    yield "The same worlds, judged in ways that are wrong:"
    yield ""
    yield "| judged | lives | stopped | at most (95%) | allowed |"
    yield "|---|---:|---:|---:|---:|"
    swings, users = KEPT[-2:]
    yield _alarm_line(
        f"{swings.name}, looked at 20 times a day", swings, replace(watch, cycle=CYCLE / 20), few
    )
    yield _alarm_line(f"{users.name}, by decisions", users, replace(watch, by_units=False), few)
    yield ""
    yield "## Delay to detection"
    yield ""
    yield (
        "Decisions from the fault to the stop: median (nine in ten within), and the median over "
        f"that of a fault from the start, which may be {AT_MOST:g} at most. *One start* is the "
        "evidence of one product from the first decision, which was the monitor's before."
    )
    yield ""
    yield "| fault | after | lives | delay | ratio | delay with one start |"
    yield "|---|---:|---:|---:|---:|---:|"
    every = []
    for life in (*BROKEN, *BY_DAY):
        delays = measured(life, few, 2 * decisions, late)
        every.append(delays)
        yield from _delay_lines(delays, few)
    yield ""
    met = all(delays.met for delays in every)
    yield f"Late faults are found within {AT_MOST:g} times the delay of early ones: " + (
        "yes, all of them." if met else MISSED
    )
    if figure is not None:
        delay_figure(every).savefig(figure, dpi=110)
        yield ""
        yield f"![delay to detection by the start of the fault]({figure.name})"
        yield ""
        yield (
            "A hollow triangle is a fault that was not found in the decisions that were watched "
            "after it."
        )


def _alarm_line(name: str, life: Life, watch: Watch, lives: int) -> str:
    stopped = false_alarms(life, watch, lives)
    high = stats.binomtest(stopped, lives).proportion_ci(0.9).high  # one-sided 95%
    return f"| {name} | {lives:,} | {stopped / lives:.4f} | {high:.4f} | {watch.allowed:.4f} |"


def _delay_lines(delays: Delays, lives: int) -> Iterator[str]:
    rows = zip(delays.starts, delays.mixture, delays.single, delays.ratios, strict=True)
    for after, mixture, single, ratio in rows:
        low, high = _number(median(mixture)), _number(median(mixture, 0.9))
        shown = "–" if math.isnan(ratio) else f"{ratio:.2f}"
        yield (
            f"| {delays.life.name} | {after:,} | {lives:,} | {low} ({high}) | {shown} "
            f"| {_number(median(single))} |"
        )


def _number(delay: float) -> str:
    return "not found" if math.isinf(delay) else f"{delay:,.0f}"


def delay_figure(every: Sequence[Delays]) -> Figure:
    """Median delay against the start of the fault: one start beside all starts."""
    made = Figure(figsize=(8.6, 3.9), layout="constrained")
    left, right = made.subplots(1, 2, sharey=True)
    colours = ("#1f5a96", "#2e7d4f", "#b3312c", "#6b7280", "#8a5a00", "#5b3a8e")
    starts = every[0].starts
    for axis, title in ((left, "starts over the whole round"), (right, "one start")):
        for delays, colour in zip(every, colours, strict=False):
            medians = [
                median(values) for values in (delays.mixture if axis is left else delays.single)
            ]
            shown = [value if math.isfinite(value) else np.nan for value in medians]
            axis.plot(range(len(starts)), shown, "o-", color=colour, lw=1.4, ms=4,
                      label=delays.life.name)  # fmt: skip
            for place, value in enumerate(medians):
                if math.isinf(value):  # not found in the time watched
                    axis.plot(place, delays.watched, "^", mfc="none", color=colour, ms=6)
        axis.set(yscale="log", xlabel="decisions before the fault")
        axis.set_xticks(range(len(starts)), [f"{after:,}" for after in starts])
        axis.set_title(title, fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("decisions until it is found (median)")
    handles, labels = left.get_legend_handles_labels()
    made.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return made


def means(value: float, rate: float) -> FloatArray:
    """(5,) mean rewards with V(pi0) = rate and V(pi) = value x rate; value is at least .83.

    The three items that pi0 shows most earn alike, and so do the two that the policy shows more.
    """
    few = PI0[3:].sum(), POLICY[3:].sum()
    apart = (value - 1) * rate / (few[1] - few[0])
    q = np.full(5, rate - few[0] * apart)
    q[3:] += apart
    return q


def stops_at(life: Life, watch: Watch, seed: int) -> float:
    """After how many decisions the monitor stops the policy; infinity if it does not.

    Args:
        life: what happens.
        watch: how it is watched.
        seed: of everything.
    """
    rng = np.random.default_rng(seed)
    evidence = _evidence(life, watch)
    before = replace(life, value=1.0, drop=1.0, skew=0.0)
    for start in range(0, watch.decisions, BATCH):
        n = min(BATCH, watch.decisions - start)
        cut = min(max(life.after - start, 0), n)
        for world, first, last in ((before, start, start + cut), (life, start + cut, start + n)):
            if last > first:
                evidence.add(_rows(world, watch, first, last, rng))
        if evidence.stopped_after is not None:
            return evidence.stopped_after
    return math.inf


def _evidence(life: Life, watch: Watch) -> EpochEvidence:
    relative = life.floor == "relative"
    floor = Floor(watch.ratio) if relative else Floor(None, absolute=watch.ratio * watch.rate)
    ways: tuple[Weighing, ...] = ("items", "holdout") if watch.holdout > 0 else ("items",)
    parts = [
        FloorPart(
            Promise(floor),
            by=by,
            r_max=1.0,
            credit=0.0,
            length=watch.length,
            units="all rows" if life.users and watch.by_units else None,
        )
        for by in ways
    ]
    return EpochEvidence(parts, delta=watch.allowed, length=watch.length, cycle=watch.cycle)


def _rows(life: Life, watch: Watch, first: int, last: int, rng: np.random.Generator) -> JudgedRows:
    n = last - first
    at = np.arange(first, last) * CYCLE / life.a_day
    user, value = None, np.full(n, life.value)
    if life.users:
        user = _users(life.users, rng, n)
        heavy = user < HEAVY * life.users
        value = np.where(heavy, life.value - LESS, life.value + LESS * HEAVY / (1 - HEAVY))
    held = rng.random(n) < watch.holdout
    u = rng.random(n)
    drawn = np.where(held, _draw(PI0, u), _draw(POLICY, u))
    pi = np.where(held[:, None], PI0, POLICY)
    shown = np.where(rng.random(n) < life.skew, 0, drawn)
    p = pi[np.arange(n), shown]
    by_value = {float(v): means(float(v), watch.rate) for v in np.unique(value)}
    mean = np.select([value == v for v in by_value], [q[shown] for q in by_value.values()])
    mean = mean * (1 + life.swing * np.sin(2 * np.pi * at / CYCLE))
    mean = mean * np.where(held, 1.0, life.drop)
    reward = (rng.random(n) < mean).astype(float)
    return JudgedRows(
        at=at,
        held=held,
        p_policy=POLICY[shown],
        p_pi0=PI0[shown],
        holdout=np.full(n, watch.holdout),
        rewards={"reward": reward},
        within={},
        unit=None if user is None else user.tolist(),
        audited=np.arange(n),
        places=np.clip(_below(pi, shown) + rng.random(n) * p, 0.0, 1.0),
    )


def _users(count: int, rng: np.random.Generator, n: int) -> IntArray:
    """(n,) users of decisions: the first HEAVY of them come OFTEN times as often."""
    heavy = round(HEAVY * count)
    share = heavy * OFTEN / (heavy * OFTEN + count - heavy)
    often = rng.random(n) < share
    return np.where(often, rng.integers(0, heavy, n), rng.integers(heavy, count, n))


def _draw(p: FloatArray, u: FloatArray) -> IntArray:
    items = np.searchsorted(np.cumsum(p), u, side="right")
    return np.asarray(np.minimum(items, np.flatnonzero(p)[-1]))


def _below(pi: FloatArray, shown: IntArray) -> FloatArray:
    rows = np.arange(len(shown))
    return np.asarray(np.cumsum(pi, axis=1)[rows, shown] - pi[rows, shown])
