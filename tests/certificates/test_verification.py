"""Recomputing a certificate: equal, or what differs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depsue.certificates import (
    Ceiling,
    Certificate,
    Credit,
    DeltaParts,
    MixtureLadder,
    Reads,
    Rules,
    certify,
    verify,
)
from depsue.data import Catalogue, LoggedData
from depsue.errors import ConfigError
from depsue.policies import Mixture, SoftmaxOfScores, Uniform, load, save
from depsue.policies.cached import CachedRewardModel
from depsue.policies.tilted import Tilted
from depsue.promises import Floor, Promise
from depsue.rewards import fit_linear
from depsue.testing.splits import split

DRAW = np.random.default_rng(1)
N, FEATURES = 3000, DRAW.normal(size=(6, 2))
CATALOGUE = Catalogue.of(range(6), novel=[4, 5], features=FEATURES)
CONTEXTS = DRAW.normal(size=(40, 3)).astype(np.float32)
SUPPORT = ~CATALOGUE.novel
PI0 = Uniform(SUPPORT)


def columns() -> dict[str, Any]:
    draw = np.random.default_rng(2)
    context = draw.integers(0, 40, N)
    action = draw.integers(0, 4, N)
    mean = 0.3 + 0.2 * np.tanh(FEATURES[action, 0] + CONTEXTS[context, 0])
    return {
        "contexts": CONTEXTS,
        "context_rows": context,
        "actions": action,
        "rewards": (draw.random(N) < mean).astype(float),
        "propensities": np.full(N, 0.25),
        "columns": {"new": context % 2},
    }


def logs_of(given: dict[str, Any]) -> LoggedData:
    return LoggedData.from_arrays(**given, catalogue=CATALOGUE, r_max=1.0)


LOGS = logs_of(columns())
FOLDS = split(LOGS, "spring")
MODEL = CachedRewardModel(fit_linear(FOLDS.learn), FOLDS.select.contexts)
TILT = Tilted(PI0, MODEL, strength=0.5, cap=3.0, scale=0.1)
LEVELS = MixtureLadder((TILT, Uniform(CATALOGUE.novel)), np.array([[0.99, 0.01], [0.95, 0.05]]))
PROMISES = (Promise(), Promise(name="new", segment=("new", 1)))


def certified(**rules: Any) -> Certificate:
    return certify(LEVELS, FOLDS, Rules(PROMISES, clip=5.0, **rules), Reads())


def policy_of(certificate: Certificate) -> Mixture:
    return Mixture(LEVELS.parts, certificate.shares)


MADE = certified()
POLICY = policy_of(MADE)


@pytest.mark.parametrize("bound", ["normal", "smoothing", "betting"])
def test_it_is_equal_after_json_and_files(bound: str, tmp_path: Path) -> None:
    made = certified(bound=bound)
    made.save(tmp_path / "certificate.json")
    save(policy_of(made), tmp_path / "policy", catalogue=CATALOGUE)
    loaded = load(tmp_path / "policy", catalogue=CATALOGUE)
    verification = verify(
        Certificate.load(tmp_path / "certificate.json"), logs_of(columns()), loaded
    )
    assert verification.equal and verification.differences == ()
    assert str(verification).startswith("equal: data, folds, policy")


def test_ceilings_and_credits_are_taken_as_stated() -> None:
    made = certified(
        bound="hcope",
        ceilings={p.name: Ceiling(0.4, 0.005, 10, "rows") for p in PROMISES},
        credits={"reward": Credit(0.02, 0.01), "new": Credit(0.01, 0.0)},
    )
    assert made.verdicts[1].need == pytest.approx(0.95 * 0.4 - 0.01)
    assert verify(made, LOGS, policy_of(made)).equal


def changed(column: str, row: int, value: float) -> LoggedData:
    given = columns()
    given[column] = given[column].copy()
    given[column][row] = value
    return logs_of(given)


def reordered() -> LoggedData:
    given, order = columns(), np.arange(N)
    order[[0, 1]] = [1, 0]
    for name in ("context_rows", "actions", "rewards", "propensities"):
        given[name] = given[name][order]
    return logs_of(given)


@pytest.mark.parametrize(
    "logs",
    [
        changed("rewards", 7, 0.5),
        changed("propensities", 7, 0.2500001),
        reordered(),
        LOGS.take(slice(0, N - 1)),
    ],
    ids=["reward", "propensity", "order", "a row less"],
)
def test_other_logs_are_named_by_their_hash(logs: LoggedData) -> None:
    verification = verify(MADE, logs, POLICY)
    assert not verification.equal
    expected = f"the logs have the hash {logs.hash[:12]}, certified was {LOGS.hash[:12]}"
    assert str(verification) == f"differs: {expected}"


def words(certificate: Certificate, policy: Any = POLICY) -> str:
    verification = verify(certificate, LOGS, policy)
    assert not verification.equal
    return str(verification)


def test_another_policy_is_named() -> None:
    other = Mixture([SoftmaxOfScores(lambda x: x @ np.ones((3, 6)), 1.0, SUPPORT), PI0], [0.5, 0.5])
    assert "the policy has the hash none, certified was" in words(MADE, other)
    assert "the policy has the hash" in words(MADE, PI0)


def test_another_share_is_named() -> None:
    bolder = Mixture(POLICY.parts, [0.5, 0.5])
    differences = words(MADE, bolder)
    assert (
        "the policy has the hash" in differences
        and "shares are [0.5, 0.5], certified" in differences
    )
    assert "reward: bound is" in differences
    assert "shares are" in words(replace(MADE, shares=(0.5, 0.5)))


def test_a_policy_that_cannot_be_hashed_is_still_recomputed() -> None:
    free = replace(MADE, policy=None)
    assert verify(free, LOGS, POLICY).equal
    assert "mean is" in words(free, PI0)


def test_another_secret_or_fold_is_named() -> None:
    assert MADE.registration is not None
    other = replace(MADE.registration, secret="ab" * 32)
    assert "reward: mean is" in words(replace(MADE, registration=other))
    larger = replace(MADE.registration, fractions=(0.3, 0.05, 0.65))
    assert "reward: n is" in words(replace(MADE, registration=larger))
    assert "fractions" in words(replace(MADE, fractions=(0.3, 0.05, 0.65)))
    assert "the rows are of round 0, certified 1" in words(replace(MADE, round=1))


def test_a_name_does_not_change_the_folds() -> None:
    assert verify(replace(MADE, campaign="summer"), LOGS, POLICY).equal


def test_a_certificate_of_older_rules_is_refused_with_the_cure() -> None:
    text = json.loads(MADE.to_json())
    del text["rules"], text["registration"]
    older = replace(Certificate.from_json(json.dumps(text)), version="0.1.0")
    assert (older.rules, older.registration) == (1, None)
    cure = r"rules of version 1, this depsue has 2.*pip install depsue==0\.1\.0"
    with pytest.raises(ConfigError, match=cure):
        verify(older, LOGS, POLICY)


@pytest.mark.parametrize("name", ["n", "delta", "mean", "bound", "need"])
def test_a_number_that_was_made_up_is_named(name: str) -> None:
    first = MADE.verdicts[0]
    forged = replace(first, **{name: getattr(first, name) + (1 if name == "n" else 1e-4)})
    assert f"reward: {name} is" in words(replace(MADE, verdicts=(forged, *MADE.verdicts[1:])))


def test_made_up_parts_of_delta_are_named() -> None:
    assert "delta's parts" in words(
        replace(MADE, spent=DeltaParts({"reward": 0.001, "new": 0.001}))
    )
    assert "reward: delta is 0.1" in words(replace(MADE, delta=0.1))


def test_a_forged_verdict_is_named() -> None:
    forged = replace(MADE.verdicts[0], need=MADE.verdicts[0].bound + 0.01)
    failed = replace(MADE, verdicts=(forged, *MADE.verdicts[1:]))
    assert MADE.verdicts[0].passed is ("the verdict is passed" in words(failed))


def test_paper_certificates_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"strict certificates.*'paper'.*no folds"):
        verify(replace(MADE, kind="paper"), LOGS, POLICY)


def test_a_level_that_was_jumped_over_is_found() -> None:
    made = certify(LEVELS, FOLDS, Rules((Promise(Floor(0.5)),), clip=5.0), Reads())
    assert made.passed and made.path == tuple(map(tuple, LEVELS.shares.tolist()))
    assert verify(made, LOGS, policy_of(made)).equal
    steep = ((0.2, 0.8), *made.path)  # shows novel items in most decisions: cannot pass
    verification = verify(replace(made, path=steep, tested=3), LOGS, policy_of(made))
    assert verification.differences == ("level 1 of the list does not pass: it ends there",)
