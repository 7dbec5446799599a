"""How often may one slot of a page show anything at all? The spill-over test.

A page shows several items, its reward R is the whole page's, and one slot is decided here. With
probability nu, the same for all requests, that slot shows any item g likes (a new one, say), else
what pi0 shows. Nothing is known of what the slot earns then. Declared is the spill-over s: what the
rest of the page loses beside such an item is, on average, at most the share s of what it earns
beside pi0's. Then, with R_slot what the slot itself earned and the rest R - R_slot::

    V >= (1 - nu) V(pi0) + nu (1 - s) V_rest(pi0) = V(pi0) - nu (V_slot + s V_rest)

so the floor rho V(pi0) is kept if the terms of pi0's own pages ::

    T = (1 - rho) R - nu (R_slot + s (R - R_slot))

have a mean of at least 0. They need no weights and no propensities, so the test is sharp; without
it the whole page counts as lost, and nu stops at what the other slots cannot make up for. T falls
with nu in every row, nu = 1 - rho is certain without rows, and levels above it are tested in fixed
sequence, each at the full delta, with constant bets from the select fold.

In the next round the pages with new items can refute s: `check_spill_over`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from depsue import defaults
from depsue._version import __version__
from depsue.bounds import Betting, best_bet
from depsue.certificates.folds import Folds, Registration
from depsue.certificates.registration import CountsReads
from depsue.data.checks import FloatArray, Mask, number_column
from depsue.data.logs import LoggedData
from depsue.data.terms import ConservativeTerms
from depsue.errors import DataError, is_real, require, require_delta, short

SLOT = "slot_reward"
"""The column of what the decided slot earned, in logs whose rows are pages."""
STEP, HIGHEST = 0.01, 0.5
"""Between levels of nu, and the highest that is tested."""
SPREAD = (0.5, 1.0, 2.0)
"""Bets that share the capital, in multiples of the best one on the select fold."""
PILOT = 20
"""One row in so many sets the bet of `check_spill_over`, and is not tested."""


@dataclass(frozen=True)
class SpillOver:
    """What is declared, and how it is tested.

    Args:
        spill: s, in [0, 1]: the share of the rest of the page that may be lost. 0 declares that
            the rest earns the same; 1 that all of it may be lost, which buys nothing.
        rho: the floor, as a share of pi0's value.
        delta: how often the procedure may err.
        highest: the largest nu that is tested.
    """

    spill: float
    rho: float = defaults.FLOOR
    delta: float = defaults.DELTA
    highest: float = HIGHEST

    def __post_init__(self) -> None:
        require_delta(self.delta)
        for name, ok, rule in (
            ("spill", is_real(self.spill) and 0 <= self.spill <= 1, "lie in [0, 1]"),
            ("rho", is_real(self.rho) and 0 < self.rho < 1, "lie in (0, 1)"),
            ("highest", is_real(self.highest) and 0 < self.highest < 1, "lie in (0, 1)"),
        ):
            require(ok, f"{name} must {rule}", found=short(getattr(self, name)))

    @property
    def certain(self) -> float:
        """nu that needs no rows: even if the whole page were lost, the floor is kept."""
        return 1 - self.rho

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels of nu that are tested, safest first."""
        first = int(np.floor(self.certain / STEP + 1e-9)) + 1
        last = int(np.floor(self.highest / STEP + 1e-9))
        return tuple(round(k * STEP, 10) for k in range(first, last + 1))

    def terms(self, pages: LoggedData, nu: float, slot: FloatArray) -> ConservativeTerms:
        """(n,) T of pi0's own pages.

        Args:
            pages: n pages, one a row.
            nu: the level.
            slot: (n,) what the slot earned.
        """
        keep = 1 - self.rho
        values = keep * pages.reward - nu * (slot + self.spill * (pages.reward - slot))
        corners = (
            0.0,
            keep - nu,
            keep - nu * self.spill,
        )  # nothing, all by the slot, all by others
        return ConservativeTerms(
            values,
            min(corners) * pages.r_max - 1e-12,
            unit=pages.unit,
            proof="E[T] is at most V - rho V(pi0), by the declared spill-over",
        )


@dataclass(frozen=True)
class NuTest:
    """One level that was tested.

    Args:
        nu: the level.
        bound: the lower bound on the mean of T.
        mean: of the terms.
    """

    nu: float
    bound: float
    mean: float

    @property
    def passed(self) -> bool:
        """Whether the floor is kept."""
        return self.bound >= 0


@dataclass(frozen=True)
class SpillOverCertificate:
    """How often the slot may show anything, on what it rests, and how it came out.

    Args:
        rules: what was declared.
        nu: the highest level that passed, or the certain one.
        tests: the levels that were tested, in their order; the last one failed, or was the highest.
        pages: how many values were read (pages, or units).
        attempt: which verdict on these rows it was.
        delta: at which this attempt was tested.
        data: SHA-256 of all pages of the round.
        registration: what the folds hang on.
        assumptions: what the verdict rests on, in words.
        version: of depsue.
    """

    rules: SpillOver
    nu: float
    tests: tuple[NuTest, ...]
    pages: int
    attempt: int
    delta: float
    data: str
    registration: Registration
    assumptions: tuple[str, ...]
    version: str = __version__
    kind: str = "spill-over"

    @property
    def passed(self) -> bool:
        """Whether rows bought more than what is certain."""
        return self.nu > self.rules.certain + 1e-9

    def __str__(self) -> str:
        last = f"nu {self.nu:.2f}" + ("" if self.passed else ", which is certain without rows")
        lines = [
            f"spill-over certificate: {last} (errs at most {self.delta:g} of the time)",
            f"  floor {self.rules.rho:g} of pi0's value, spill-over {self.rules.spill:g} declared, "
            f"{self.pages:,} values, {len(self.tests)} levels tested",
        ]
        for test in self.tests[-2:]:
            sign, word = (">=", "passed") if test.passed else ("<", "failed")
            lines.append(f"  nu {test.nu:.2f}: bound {test.bound:.5f} {sign} 0, {word}")
        return "\n".join([*lines, *(f"  assumed: {words}" for words in self.assumptions)])


def certify_spill_over(
    folds: Folds, rules: SpillOver, reads: CountsReads, *, slot: str = SLOT
) -> SpillOverCertificate:
    """The highest nu at which pi0's own pages show that the floor is kept.

    Args:
        folds: of pages that pi0 drew, one page a row, with a column of what the slot earned.
        rules: what is declared.
        reads: counts this verdict.
        slot: the column of what the slot earned.
    """
    require(
        folds.round == 0,
        "the spill-over test reads pi0's own pages",
        found=f"rows of round {folds.round}",
        cure="log pages of your current policy",
    )
    certify, select = folds.certify, folds.select
    mine, theirs = (_slot_rewards(part, slot) for part in (certify, select))
    attempt = reads.begin(folds.data)
    delta = reads.delta_of_attempt(rules.delta, attempt)
    tests: list[NuTest] = []
    for nu in rules.levels:
        pilot = rules.terms(select, nu, theirs)
        terms = rules.terms(certify, nu, mine)
        n = len(terms.per_unit(terms.values))
        variance = float(pilot.per_unit(pilot.values).var())
        best = best_bet(max(variance, 1e-12 * certify.r_max**2), n, delta)
        bound = Betting(bets=tuple(best * share for share in SPREAD)).lower(terms, delta)
        tests.append(NuTest(nu, bound.value, bound.mean))
        if not tests[-1].passed:
            break
    passed = [test.nu for test in tests if test.passed]
    return SpillOverCertificate(
        rules=rules,
        nu=passed[-1] if passed else rules.certain,
        tests=tuple(tests),
        pages=len(certify) if certify.units is None else len(certify.units),
        attempt=attempt,
        delta=delta,
        data=folds.data,
        registration=folds.registration,
        assumptions=(
            "spill-over: beside an item that is explored, the rest of a page loses on average at "
            f"most {rules.spill:g} of what it earns beside pi0's (the next round can refute it)",
            "exploration is drawn with the same probability nu for every page, apart from anything "
            "else, and lower slots are filled by the same mechanism in logs and in serving",
            "pages come as they came while these were logged",
            f"rewards of a page are at least 0, and the slot's part ({slot}) is part of it",
        ),
    )


@dataclass(frozen=True)
class SpillOverReport:
    """Whether pages with new items refute the declared spill-over.

    Args:
        ok: True if nothing refutes it.
        spill: what was declared.
        seen: the share of the rest that was lost, as the pages show it.
        rest: what the rest of a page earned beside pi0's items.
        beside: what it earned beside new ones.
        explored: pages with a new item.
        delta: how often a true spill-over is refuted, at most.
    """

    ok: bool
    spill: float
    seen: float
    rest: float
    beside: float
    explored: int
    delta: float

    def __str__(self) -> str:
        head = "nothing refutes" if self.ok else "refuted:"
        return (
            f"{head} a spill-over of at most {self.spill:g}: the rest of a page earned "
            f"{self.beside:.4f} beside new items and {self.rest:.4f} beside others "
            f"({self.seen:+.1%} lost, {self.explored:,} pages with new items)"
        )


def check_spill_over(
    pages: LoggedData, *, spill: float, nu: float, slot: str = SLOT, delta: float = 0.01
) -> SpillOverReport:
    """Hold pages with new items against those with others, where a new item was at hand.

    Which of the two a page is was drawn with probability nu, the same for all of them::

        U = rest (1{new} / nu - (1 - s) 1{old} / (1 - nu))

    has a mean of at least 0 if the rest loses at most the share s.

    Args:
        pages: of a round that explored with probability nu and showed pi0's items else.
        spill: s, as it was declared.
        nu: the share of exploration.
        slot: the column of what the slot earned.
        delta: how often a true spill-over is refuted, at most.
    """
    require_delta(delta)
    require(is_real(nu) and 0 < nu < 1, "nu must lie in (0, 1)", found=short(nu))
    at_hand = _new_at_hand(pages)[pages.context]
    rest = pages.reward - _slot_rewards(pages, slot)
    new = pages.catalogue.novel[pages.action]
    require(
        bool(at_hand.any()) and bool(new.any()),
        "the spill-over is tested on pages with new items",
        found="none",
        cure="take the pages of a round that explored",
    )
    u = rest * np.where(new, 1 / nu, -(1 - spill) / (1 - nu))
    u, mine, others = u[at_hand], rest[at_hand & new], rest[at_hand & ~new]
    pilot = np.arange(len(u)) % PILOT == 0
    lower = -pages.r_max / nu
    terms = ConservativeTerms(-u[~pilot], lower, proof="E[-U] is at most 0 if s holds")
    bet = best_bet(max(float(u[pilot].var()), 1e-12), len(terms.values), delta)
    bound = Betting(bets=tuple(bet * share for share in SPREAD)).lower(terms, delta)
    base = float(others.mean()) if len(others) else 0.0
    beside = float(mine.mean())
    seen = 1 - beside / base if base > 0 else 0.0
    return SpillOverReport(bound.value <= 0, spill, seen, base, beside, len(mine), delta)


def _slot_rewards(pages: LoggedData, column: str) -> FloatArray:
    """(n,) what the slot earned, checked to be part of what the page earned."""
    slot = number_column(pages.column(column), column, flags=True)
    wrong = np.flatnonzero(~((slot >= 0) & (slot <= pages.reward + 1e-9)))
    if len(wrong):
        raise DataError(
            "what a slot earns is part of what its page earns",
            column=column,
            row=int(wrong[0]),
            value=float(slot[wrong[0]]),
            count=len(wrong),
            cure="the reward of a page is the sum over its slots, or more",
        )
    return np.minimum(slot, pages.reward)


def _new_at_hand(pages: LoggedData) -> Mask:
    """(u,) the requests that have a new candidate."""
    sets, novel = pages.candidates, pages.catalogue.novel
    if sets is None:
        return np.full(len(pages.contexts), bool(novel.any()))
    return np.bincount(sets.request, novel[sets.items], minlength=len(sets)) > 0
