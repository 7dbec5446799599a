"""Policies and reward models that version 0.1 saved: they load, answer and hash as they did."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depsue.policies import load, save
from depsue.policies.base import whole
from depsue.rewards import BaseRewardModel
from depsue.savable import hash_of

POLICIES = "adapted by-item by-model greedy mixture network onnx outside own softmax tilted uniform"
MODELS = "blend linear mlp"


def facts_in(folder: Path) -> tuple[Any, dict[str, Any]]:
    facts = json.loads((folder / "facts.json").read_text())
    return np.array(facts["contexts"], dtype=np.float32), facts


@pytest.mark.parametrize("name", POLICIES.split())
def test_a_policy_is_the_same(name: str, older: Path, tmp_path: Path) -> None:
    contexts, facts = facts_in(older)
    expected = facts["policies"][name]
    policy = load(older / "policies" / name, outside={"ranker-7": lambda x: answers(facts, "own")})
    assert hash_of(policy) == expected["hash"]
    # a loaded policy asks its reward model in single precision
    np.testing.assert_allclose(whole(policy, contexts), expected["probabilities"], rtol=1e-6)
    save(policy, tmp_path / "again")
    again = load(tmp_path / "again", outside={"ranker-7": lambda x: answers(facts, "own")})
    assert hash_of(again) == expected["hash"]


@pytest.mark.parametrize("name", MODELS.split())
def test_a_reward_model_is_the_same(name: str, older: Path, tmp_path: Path) -> None:
    contexts, facts = facts_in(older)
    expected = facts["models"][name]
    model = BaseRewardModel.load(older / "models" / name)
    assert hash_of(model) == expected["hash"]
    # a product in single precision is rounded otherwise by other processors, in its last digit
    np.testing.assert_allclose(model.predict(contexts), expected["predictions"], rtol=1e-6)
    model.save(tmp_path / "again")
    assert hash_of(BaseRewardModel.load(tmp_path / "again")) == expected["hash"]


def test_a_process_that_has_imported_nothing_else_loads_every_kind(older: Path) -> None:
    program = (
        "import sys; from depsue.policies import load; [load(folder) for folder in sys.argv[1:]]"
    )
    folders = sorted(map(str, (older / "policies").iterdir()))
    subprocess.run([sys.executable, "-c", program, *folders], check=True)


def answers(facts: dict[str, Any], policy: str) -> list[list[float]]:
    """What the callable answered that one of the policies was saved with by name."""
    probabilities: list[list[float]] = facts["policies"][policy]["probabilities"]
    return probabilities
