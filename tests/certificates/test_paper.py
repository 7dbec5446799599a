"""Paper certificates: Eq. 4 and Eq. 9 as published, marked, with their gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue.bounds import Hcope, Smoothing
from depsue.certificates import Certificate, DeltaParts, paper_certificate, verify
from depsue.data import Catalogue, LoggedData
from depsue.errors import ConfigError
from depsue.estimators import IPS
from depsue.policies import OwnPolicy, ScoreTable
from depsue.promises import Floor
from depsue.protocols import Bound, BoundValue
from depsue.savable import hash_of

CATALOGUE = Catalogue.of(range(3), novel=[2])
CONTEXT = np.zeros((1, 1), dtype=np.float32)
POLICY = OwnPolicy(ScoreTable(CONTEXT, np.array([[0.6, 0.4, 0.0]])), 3)
FLOOR, VALUE = Floor(0.9), 0.5


def s2(n: int = 4000, **more: Any) -> LoggedData:
    draw = np.random.default_rng(3)
    action = draw.integers(0, 2, n)
    return LoggedData.from_arrays(
        contexts=CONTEXT,
        context_rows=np.zeros(n, dtype=int),
        actions=action,
        rewards=draw.random(n) < np.array([0.6, 0.4])[action],
        propensities=np.full(n, 0.5),
        catalogue=CATALOGUE,
        r_max=1.0,
        **more,
    )


def bound_of(rows: LoggedData, bound: Bound) -> BoundValue:
    terms: Any = IPS().estimate(POLICY, rows).terms
    return bound.lower(terms, 0.05)


ROWS = s2()
BOUND = bound_of(ROWS, Hcope())


def made(bound: BoundValue = BOUND, need: float = 0.45, **changed: Any) -> Certificate:
    given: dict[str, Any] = {"floor": FLOOR, "logging_value": VALUE, **changed}
    return paper_certificate(bound, need, POLICY, ROWS, **given)


def test_the_first_deployment_is_held_to_the_floor() -> None:
    certificate = made()
    verdict = certificate.verdicts[0]
    assert certificate.kind == "paper" and certificate.passed == (BOUND.value > 0.45)
    assert (verdict.bound, verdict.mean, verdict.n) == (BOUND.value, BOUND.mean, BOUND.n)
    assert verdict.need == pytest.approx(0.45) and verdict.credit == pytest.approx(0.0)
    assert verdict.constants["floor"] == pytest.approx(0.45) and verdict.constants["k"] == 1
    assert certificate.data == ROWS.hash and certificate.policy == hash_of(POLICY)
    assert (certificate.bound, certificate.clip) == ("hcope", BOUND.constants["tau"])
    assert certificate.delta == 0.05 and certificate.spent == DeltaParts({"reward": 0.05})


def test_margin_lowers_the_need_of_later_deployments() -> None:
    certificate = made(need=0.40, k=2)
    assert certificate.verdicts[0].credit == pytest.approx(0.05)


def test_eq_9_asks_for_more_than_the_need() -> None:
    value = BOUND.value
    assert not made(need=value, k=2).passed
    assert made(need=float(np.nextafter(value, 0)), k=2).passed
    assert not made(need=value + 0.01, k=2).passed


def gaps(certificate: Certificate) -> str:
    return "\n".join(w for w in certificate.assumptions if w.startswith(("gap", "not as")))


def test_the_gaps_are_listed() -> None:
    first = gaps(made())
    assert "not independent" in first and "whose error is not counted" in first
    assert "nothing corrects over K" in first and "until it passes" in first
    assert "as if they were exact" not in first
    assert "as if they were exact" in gaps(made(need=0.4, k=2))
    absolute = made(floor=Floor(None, 0.45))
    assert "whose error is not counted" not in gaps(absolute)
    assert "not as published" not in first
    other = gaps(made(bound_of(ROWS, Smoothing())))
    assert "not as published: the bound is smoothing, that of Eq. 4 is hcope" in other


def test_it_is_marked_survives_json_and_is_not_verified() -> None:
    for certificate in (made(), made(bound_of(ROWS, Smoothing()))):
        assert "not guaranteed" in str(certificate) and "errs at most" not in str(certificate)
        assert Certificate.from_json(certificate.to_json()) == certificate
        with pytest.raises(ConfigError, match="strict certificates"):
            verify(certificate, ROWS, POLICY)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"need": 0.40}, r"first deployment must reach the floor.*need 0.4, floor 0.45.*right k"),
    ({"need": float("nan"), "k": 2}, r"need must be a number.*nan.*trained.need"),
    ({"logging_value": None}, r"logging_value must be a number.*None"),
    ({"k": 0}, r"k must be a whole number, at least 1.*0.*first deployment"),
    ({"bound": 0.3}, r"records a bound.*0.3.*trained.bound"),
]


@pytest.mark.parametrize(("changed", "words"), REFUSED)
def test_what_breaks_a_rule_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(**changed)


def test_rows_are_of_one_round() -> None:
    two = s2(rounds=np.arange(4000) % 2)
    with pytest.raises(ConfigError, match=r"one round.*rounds \[0, 1\].*newest"):
        paper_certificate(BOUND, 0.45, POLICY, two, floor=FLOOR, logging_value=VALUE)
    later = s2(rounds=np.full(4000, 1))
    certificate = paper_certificate(
        BOUND, 0.4, POLICY, later, floor=FLOOR, logging_value=VALUE, k=2
    )
    assert certificate.round == 1
