"""A candidate that depends on when its round ended: who may look before."""

from __future__ import annotations

import numpy as np

from depsue.bounds import Betting
from depsue.data.checks import FloatArray, Mask
from depsue.data.terms import ConservativeTerms
from depsue.testing.bounds import binomial_tail

ITEMS, ROWS, DELTA, NEED, SHARE = 20, 2000, 0.1, 0.502, 0.8
"""All items earn .5 on average, so every candidate misses the need."""
LOOKS = np.unique(np.geomspace(200, ROWS, 12).astype(int))
BETS = tuple((0.9 / NEED * 0.5 ** np.arange(1, 9)).tolist())


def passes(item: int, shown: FloatArray, reward: FloatArray) -> bool:
    """Whether a policy that mostly shows one item passes on rows of uniform choices."""
    weight = np.where(shown == item, SHARE * ITEMS, 0.0) + (1 - SHARE)
    terms = ConservativeTerms(weight * reward, 0.0, proof="w r")
    return Betting(bets=BETS).lower(terms, DELTA).value >= NEED


def best(shown: FloatArray, reward: FloatArray) -> tuple[int, float]:
    """The item that earned most in some rows, and by how many standard errors."""
    n = np.bincount(shown, minlength=ITEMS)
    errors = (np.bincount(shown, reward, ITEMS) / np.maximum(n, 1) - 0.5) * np.sqrt(n)
    return int(errors.argmax()), float(errors.max())


def test_a_round_that_ends_by_its_learn_rows_errs_at_most_delta() -> None:
    """It ends when the item that learn rows like best looks best; if certifying rows may be seen,
    and the candidate may be any item, verdicts are shopped for."""
    draw, runs, wrong, shopped = np.random.default_rng(0), 100, 0, 0
    for _ in range(runs):
        shown, reward = draw.integers(0, ITEMS, ROWS), (draw.random(ROWS) < 0.5).astype(float)
        certify: Mask = draw.random(ROWS) < 0.6
        seen = [np.arange(ROWS) < end for end in LOOKS]
        liked = [best(shown[~certify & mine], reward[~certify & mine]) for mine in seen]
        place = int(np.argmax([errors for _, errors in liked]))
        mine = certify & seen[place]
        wrong += passes(liked[place][0], shown[mine], reward[mine])
        tops = [(best(shown[certify & mine], reward[certify & mine])[0], mine) for mine in seen]
        shopped += any(passes(top, shown[certify & m], reward[certify & m]) for top, m in tops)
    assert binomial_tail(wrong, runs, DELTA) > 1e-3, f"{wrong} of {runs} passed"
    assert binomial_tail(shopped, runs, DELTA) < 1e-3, f"{shopped} of {runs} passed"
