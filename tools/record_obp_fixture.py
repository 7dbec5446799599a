"""Records what Open Bandit Pipeline 0.5.7 estimates on a small data set.

Writes tests/fixtures/obp_estimates.json: inputs and outputs, at full precision. obp pins old
versions of its dependencies, so it gets a Python 3.11 environment of its own::

    python3.11 -m venv obpenv
    obpenv/bin/pip install "numpy<2" "pandas<2.3" "scikit-learn<1.6" "scipy<1.13" \
        torch matplotlib seaborn tqdm pyyaml
    obpenv/bin/pip install --ignore-requires-python --no-deps obp==0.5.7
    obpenv/bin/python tools/record_obp_fixture.py

The data are made here with numpy. Contexts are multiples of 1/8, hence exact in single
precision, and many rows share one. Three cases, all with the same contexts, groups and q-hat:
`supported` (pi stays on pi_b's support), `exploring` (pi also chooses the two novel actions)
and `deterministic` (pi_b always shows the same action in a context: all propensities are 1).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import obp
from obp.ope import (
    DirectMethod,
    DoublyRobust,
    InverseProbabilityWeighting,
    MarginalizedInverseProbabilityWeighting,
    SelfNormalizedInverseProbabilityWeighting,
    SwitchDoublyRobust,
)

OUT = Path(__file__).parents[1] / "tests" / "fixtures" / "obp_estimates.json"
ROWS, CONTEXTS, ACTIONS, R_MAX = 300, 40, 12, 2.0
NOVEL = [10, 11]
GROUPS = [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 1, 3]
CLIP, SWITCH = 1.5, 1.2


def softmax(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """(u, A) distributions over the allowed actions."""
    weights = np.exp(scores) * allowed
    return weights / weights.sum(axis=1, keepdims=True)


def case(
    rng: np.random.Generator,
    rows: np.ndarray,
    pi_b: np.ndarray,
    pi_e: np.ndarray,
    q_hat: np.ndarray,
    *,
    terms: bool = False,
) -> dict[str, Any]:
    """One log of pi_b, and what obp's estimators say of pi_e; with `terms`, row by row too."""
    action = np.array([rng.choice(ACTIONS, p=pi_b[row]) for row in rows])
    reward = np.round(R_MAX * rng.beta(1.0, 2.0, size=ROWS), 6)
    pscore = pi_b[rows, action]
    p_e_a = np.zeros((ACTIONS, max(GROUPS) + 1, 1))
    p_e_a[np.arange(ACTIONS), GROUPS, 0] = 1.0
    data = {
        "reward": reward,
        "action": action,
        "position": np.zeros(ROWS, dtype=int),
        "pscore": pscore,
        "action_dist": pi_e[rows][:, :, None],
        "estimated_rewards_by_reg_model": q_hat[rows][:, :, None],
        "pi_b": pi_b[rows][:, :, None],
        "action_embed": np.array(GROUPS)[action][:, None],
        "p_e_a": p_e_a,
        "context": rows[:, None],
    }
    estimators = {
        "dm": DirectMethod(),
        "ips": InverseProbabilityWeighting(),
        "clipped_ips": InverseProbabilityWeighting(lambda_=CLIP),
        "snips": SelfNormalizedInverseProbabilityWeighting(),
        "dr": DoublyRobust(),
        "switch_dr": SwitchDoublyRobust(lambda_=SWITCH),
        "mips": MarginalizedInverseProbabilityWeighting(n_actions=ACTIONS),
    }
    return {
        "pi_b": pi_b.tolist(),
        "pi_e": pi_e.tolist(),
        "action": action.tolist(),
        "reward": reward.tolist(),
        "pscore": pscore.tolist(),
        "value": {
            name: float(estimator.estimate_policy_value(**data))
            for name, estimator in estimators.items()
        },
        "terms": {
            name: estimator._estimate_round_rewards(**data).tolist()
            for name, estimator in estimators.items()
            if terms and name != "snips"  # a ratio has no terms
        },
    }


def main() -> None:
    """Make the data, ask obp, write the fixture."""
    rng = np.random.default_rng(20240607)
    contexts = rng.integers(-16, 17, size=(CONTEXTS, 3)) / 8.0
    assert len(np.unique(contexts, axis=0)) == CONTEXTS
    # every context occurs, some of them often
    rows = np.concatenate(
        [np.arange(CONTEXTS), rng.integers(CONTEXTS, size=ROWS - CONTEXTS) ** 2 // CONTEXTS]
    )
    scores = rng.normal(size=(CONTEXTS, ACTIONS))
    q_hat = R_MAX * rng.beta(2.0, 3.0, size=(CONTEXTS, ACTIONS))
    everything = np.ones(ACTIONS)
    old = everything.copy()
    old[NOVEL] = 0.0
    pi_b = softmax(scores, old)
    pi_one = np.eye(ACTIONS)[np.argmax(pi_b, axis=1)]
    fixture = {
        "obp": obp.__version__,
        "numpy": np.__version__,
        "r_max": R_MAX,
        "novel": NOVEL,
        "groups": GROUPS,
        "clip": CLIP,
        "switch": SWITCH,
        "contexts": contexts.tolist(),
        "rows": rows.tolist(),
        "q_hat": q_hat.tolist(),
        "cases": {
            "supported": case(rng, rows, pi_b, softmax(q_hat, old), q_hat),
            "exploring": case(rng, rows, pi_b, softmax(2 * q_hat, everything), q_hat, terms=True),
            "deterministic": case(rng, rows, pi_one, softmax(scores + q_hat, old), q_hat),
        },
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(fixture, separators=(",", ":")) + "\n")
    for name, made in fixture["cases"].items():
        print(name, made["value"])
    print(f"{OUT.name}: {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
