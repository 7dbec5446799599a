"""Agreement with Open Bandit Pipeline 0.5.7, whose answers tools/record_obp_fixture.py wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depsue.data import LoggedData
from depsue.estimators import (
    IPS,
    MIPS,
    SNIPS,
    ClippedIPS,
    DirectMethod,
    DoublyRobust,
    SwitchDR,
)
from depsue.policies import OwnPolicy, ScoreTable
from depsue.protocols import Estimator
from depsue.testing.estimators import TableModel, quiet

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "obp_estimates.json").read_text()
)
CASES = ["supported", "exploring", "deterministic"]
NAMES = ["dm", "ips", "clipped_ips", "snips", "dr", "switch_dr", "mips"]


def policy_of(table: Any) -> OwnPolicy:
    return OwnPolicy(ScoreTable(RECORDED["contexts"], table), len(RECORDED["groups"]))


def logs_of(case: dict[str, Any]) -> LoggedData:
    feedback = {
        "n_actions": len(RECORDED["groups"]),
        "context": np.array(RECORDED["contexts"])[RECORDED["rows"]],
        "action": case["action"],
        "reward": case["reward"],
        "pscore": case["pscore"],
    }
    return LoggedData.from_obp(feedback, r_max=RECORDED["r_max"], novel=RECORDED["novel"])


def estimator_of(name: str, case: dict[str, Any]) -> Estimator:
    model = TableModel(ScoreTable(RECORDED["contexts"], RECORDED["q_hat"]))
    made: dict[str, Estimator] = {
        "dm": DirectMethod(model),
        "ips": IPS(),
        "clipped_ips": ClippedIPS(RECORDED["clip"]),
        "snips": SNIPS(),
        "dr": DoublyRobust(model),
        "switch_dr": SwitchDR(model, RECORDED["switch"]),
        "mips": MIPS(policy_of(case["pi_b"]), RECORDED["groups"]),
    }
    return made[name]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_the_estimate_agrees(name: str, case: str) -> None:
    recorded = RECORDED["cases"][case]
    estimate = quiet(estimator_of(name, recorded), policy_of(recorded["pi_e"]), logs_of(recorded))
    assert abs(estimate.value - recorded["value"][name]) < 1e-9


@pytest.mark.parametrize("name", [name for name in NAMES if name != "snips"])
def test_the_terms_agree_row_by_row(name: str) -> None:
    recorded = RECORDED["cases"]["exploring"]
    terms = quiet(
        estimator_of(name, recorded), policy_of(recorded["pi_e"]), logs_of(recorded)
    ).terms
    assert terms is not None
    np.testing.assert_allclose(terms.values, recorded["terms"][name], rtol=0, atol=1e-9)


def test_the_fixture_covers_what_it_should() -> None:
    assert RECORDED["obp"] == "0.5.7"
    assert len(RECORDED["contexts"]) < len(RECORDED["rows"])
    explored = np.array(RECORDED["cases"]["exploring"]["pi_e"])[:, RECORDED["novel"]]
    assert explored.sum(axis=1).mean() > 0.05
    for name, case in RECORDED["cases"].items():
        assert logs_of(case).deterministic == (name == "deterministic")
    values = RECORDED["cases"]["exploring"]["value"]
    assert len({round(value, 3) for value in values.values()}) == len(NAMES)
