"""The paper's certificates on counts: Eq. 4, Algorithm 1, and the best of many."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from depsue import rng
from depsue.bounds import Hcope
from depsue.data.terms import WeightedTerms
from depsue_research.audit import paper as paper_kinds
from depsue_research.audit.answers import DELTA
from depsue_research.audit.paper import (
    Counts,
    algorithm_1,
    best_of_many,
    counted,
    eq4,
    weights_of,
)
from depsue_research.audit.worlds import near_miss_world


def test_eq4_on_counts_is_hcopes() -> None:
    world = near_miss_world("heavy weights")
    pi = world.mixed(world.tilt(rng.generator(0, "eq4")), 0.9 * world.floor)
    logs = world.logs(world.pi0, 40_000, rng.generator(1, "eq4"))
    weights = pi[logs.context, logs.action] / logs.propensity
    exact = Hcope().lower(WeightedTerms.of(weights, logs.reward, r_max=1.0), DELTA)

    from depsue.bounds import tuning_rows

    cells, tunes = logs.context * 8 + logs.action, np.zeros(len(logs), dtype=bool)
    tunes[tuning_rows(len(logs))] = True
    tuning, rest = (
        np.bincount(cells[part], logs.reward[part], minlength=48)[None].astype(np.float64)
        for part in (tunes, ~tunes)
    )
    none = np.zeros((1, 48))
    counts = Counts(none, none, tuning, rest, (1, int(tunes.sum()), int((~tunes).sum())))
    assert eq4(weights_of(pi, world), counts)[0] == pytest.approx(exact.value, rel=1e-9)
    many = np.broadcast_to(weights_of(pi, world), (1, 48))
    assert eq4(many, counts)[0] == pytest.approx(exact.value, rel=1e-9)


def test_algorithm_1_reaches_its_constraint_and_errs_without_a_bound() -> None:
    world, replications = near_miss_world("plain"), 40
    counts = counted(world, replications, rng.generator(0, "algorithm"))
    seen: list[float] = []

    def watched(bound: Callable[..., object]) -> Callable[..., object]:
        def call(weights: object, counts: Counts) -> object:
            bounds = np.asarray(bound(weights, counts))
            seen.append(float(np.abs(bounds / counts.floor - 1).mean()))
            return bounds

        return call

    safe = algorithm_1(world, counts, watched(eq4), None, 300)  # type: ignore[arg-type]
    assert seen[-1] < 0.01 < 0.1 < seen[0]  # lambda holds the bound at the floor
    assert not safe["last policy"].any()
    plain_mean = lambda w, c: (w * (c.tuning + c.rest)).sum(axis=1) / sum(c.sizes[1:])  # noqa: E731
    wrong = algorithm_1(world, counts, plain_mean, None, 300)
    assert wrong["last passing policy"].mean() > 0.2


def test_best_of_many_errs_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_kinds, "MANY", (1, 100))
    errors = best_of_many(1.0, 400, 0)
    rates = {f"{bound}, {kind}": float(x.mean()) for (_, kind, bound), x in errors.items()}
    name = "central limit, best of {} by S2, spread 1, C known"
    assert rates[name.format(1)] < 0.1 < 0.2 < rates[name.format(100)]
    for name, rate in rates.items():
        assert rate <= rates[name.replace("best of 1 ", "best of 100 ")]
