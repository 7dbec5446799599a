"""Eq. 9 on a recorded environment (exact), and in a world (behaviour)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.learners.conftest import Setting

from depsue.data import LoggedData
from depsue.errors import ConfigError, DataError
from depsue.estimators.weights import novelty_on
from depsue.learners import DepsueResult, DepsueSettings, SafeOpgSettings, run_depsue
from depsue.policies import Uniform
from depsue.promises import Floor
from depsue.protocols import Policy
from depsue.rewards import RewardSettings, fit_rewards
from depsue.world import World

LEARNER = SafeOpgSettings(steps=800, rate=0.03, rate_lambda=0.05, bound_every=4)
SETTINGS = DepsueSettings(
    deployments=3,
    floor=Floor(0.9),
    learner=LEARNER,
    rewards=RewardSettings(members=2, max_epochs=3),
)


class Recorded:
    """A world that remembers what was deployed."""

    def __init__(self, world: World) -> None:
        self.world, self.catalogue = world, world.catalogue
        self.logging_policy = world.logging_policy
        self.calls: list[tuple[Policy, int, int]] = []
        self.means: list[float] = []

    def deploy(self, policy: Policy, n: int, *, round: int) -> LoggedData:
        self.calls.append((policy, n, round))
        logs = self.world.deploy(policy, n, round=round)
        self.means.append(logs.mean_reward())
        return logs


Run = tuple[Recorded, DepsueResult]


@pytest.fixture(scope="module")
def run(setting: Setting) -> Run:
    environment = Recorded(setting.world)
    return environment, run_depsue(environment, 18_000, SETTINGS, seed=1)


def test_each_round_has_its_share_of_rows(run: Run) -> None:
    environment, result = run
    assert [(n, k) for _, n, k in environment.calls] == [(6000, k) for k in range(4)]
    assert environment.calls[0][0] is environment.logging_policy
    assert [d.rows for d in result.deployments] == [6000] * 3


def test_need_and_margin_are_eq_9(run: Run) -> None:
    environment, result = run
    floor = 0.9 * environment.means[0]
    for d in result.deployments:
        earned = environment.means[1 : d.k]
        assert d.floor == pytest.approx(floor)
        assert d.trained.need == pytest.approx(d.k * floor - sum(earned))
        assert d.margin == pytest.approx(sum(earned) - (d.k - 1) * floor)
        assert d.value == environment.means[d.k]
        assert d.trained.passed == (d.trained.bound.value > d.trained.need)
        assert d.trained.history.need == d.trained.need


def test_margin_buys_novelty_and_the_average_stays_safe(run: Run, setting: Setting) -> None:
    _, result = run
    assert all(d.trained.passed for d in result.deployments)
    novelty = [setting.world.novelty(d.deployed) for d in result.deployments]
    assert max(novelty[1:]) > novelty[0]
    values = np.cumsum([setting.world.value(d.deployed) for d in result.deployments])
    assert (values >= np.arange(1, 4) * result.deployments[0].floor).all()


def test_the_result_has_a_row_per_deployment(run: Run) -> None:
    _, result = run
    rows = result.rows()
    assert [row["k"] for row in rows] == [1, 2, 3]
    assert set(rows[0]) == {
        "k",
        "value",
        "bound",
        "need",
        "floor",
        "margin",
        "novelty",
        "passed",
        "rows",
    }
    assert str(result).count("passed") == 3
    assert result.policy is result.deployments[-1].deployed


def test_a_failed_bound_serves_the_logging_policy(setting: Setting) -> None:
    impossible = replace(
        SETTINGS,
        deployments=2,
        floor=Floor(ratio=None, absolute=0.9),
        learner=replace(LEARNER, steps=20),
    )
    careful = run_depsue(setting.world, 6000, impossible, seed=1)
    assert not any(d.trained.passed for d in careful.deployments)
    assert all(d.deployed is setting.world.logging_policy for d in careful.deployments)
    assert all(d.novelty == 0 for d in careful.deployments)
    bold = run_depsue(setting.world, 6000, replace(impossible, when_failed="deploy anyway"), seed=1)
    assert all(d.deployed is d.trained.policy for d in bold.deployments)


def test_the_clip_limits_the_margin(setting: Setting) -> None:
    short = replace(SETTINGS, deployments=2, learner=replace(LEARNER, steps=200))
    plain = run_depsue(setting.world, 12_000, short, seed=1)
    clipped = run_depsue(setting.world, 12_000, replace(short, clip=0.95), seed=1)
    first = plain.deployments[0]
    assert plain.deployments[1].margin == pytest.approx(first.value - first.floor)
    cap = 0.95 * clipped.logging_value
    assert first.value > cap
    assert clipped.deployments[1].margin == pytest.approx(cap - first.floor)


def test_logs_that_are_there_already_are_used(setting: Setting) -> None:
    environment = Recorded(setting.world)
    single = replace(SETTINGS, deployments=1, learner=replace(LEARNER, steps=20))
    result = run_depsue(environment, 6000, single, seed=1, logs=setting.logs)
    assert [round for _, _, round in environment.calls] == [1]
    assert result.logging_value == setting.logs.mean_reward()


def test_an_interrupt_deploys_nothing_half_trained(setting: Setting) -> None:
    def stop(task: str, done: int, total: int, words: str) -> None:
        if task == "DEPSUE 2/3":
            raise KeyboardInterrupt

    environment = Recorded(setting.world)
    result = run_depsue(environment, 9000, SETTINGS, seed=1, watch=stop)
    assert len(result.deployments) == 1 and len(environment.calls) == 2
    assert result.interrupted


def test_an_interrupt_while_fitting_loses_nothing_that_was_served(setting: Setting) -> None:
    def stop(task: str, done: int, total: int, words: str) -> None:
        if task == stop_at:
            raise KeyboardInterrupt

    stop_at = "DEPSUE 2/3 reward model"
    result = run_depsue(setting.world, 9000, SETTINGS, seed=1, watch=stop)
    assert result.interrupted and len(result.deployments) == 1
    stop_at = "DEPSUE 1/3 reward model"
    none = run_depsue(setting.world, 9000, SETTINGS, seed=1, watch=stop)
    assert none.interrupted and none.policy is setting.world.logging_policy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"round": 3}, "logs of deployment 0 must have round 0. Found: column 'round', row 0: 3"),
        ({"propensity": 0.5}, "propensities must be those of the deployed policy"),
    ],
)
def test_logs_are_held_against_what_was_deployed(
    setting: Setting, change: dict[str, float], message: str
) -> None:
    class Wrong(Recorded):
        def deploy(self, policy: Policy, n: int, *, round: int) -> LoggedData:
            logs = super().deploy(policy, n, round=round)
            columns = {name: np.full(n, value) for name, value in change.items()}
            return replace(logs, **columns)  # type: ignore[arg-type]

    with pytest.raises(DataError, match=message):
        run_depsue(Wrong(setting.world), 3000, SETTINGS, seed=1)


def test_deploy_must_return_logs(setting: Setting) -> None:
    class Silent(Recorded):
        def deploy(self, policy: Policy, n: int, *, round: int) -> LoggedData:
            return None  # type: ignore[return-value]

    with pytest.raises(ConfigError, match="deploy must return LoggedData. Found: None"):
        run_depsue(Silent(setting.world), 3000, SETTINGS, seed=1)


def test_with_units_floor_value_and_bound_are_means_over_units(setting: Setting) -> None:
    """One user has most rows and no rewards: a mean over rows would be another promise."""
    logs = setting.logs
    heavy = logs.context == logs.context[0]
    rows = np.concatenate([np.flatnonzero(~heavy), np.repeat(np.flatnonzero(heavy), 200)])
    by_user = replace(
        logs.take(rows),
        reward=np.where(heavy[rows], 0.0, logs.reward[rows]),
    )
    by_user = replace(by_user, unit=by_user.context, units=np.arange(len(by_user.contexts)))
    users = [by_user.reward[by_user.unit == u].mean() for u in range(len(by_user.contexts))]
    assert by_user.mean_reward() == pytest.approx(np.mean(users))
    assert by_user.mean_reward() > 1.5 * by_user.reward.mean()
    uniform = Uniform(np.ones(30, dtype=bool))
    assert novelty_on(uniform, by_user) == pytest.approx(6 / 30)
    single = replace(SETTINGS, deployments=1, learner=replace(LEARNER, steps=5))
    result = run_depsue(setting.world, 3000, single, seed=1, logs=by_user)
    assert result.deployments[0].floor == pytest.approx(0.9 * np.mean(users))


def test_novelty_on_logs_counts_contexts_as_often_as_logged(setting: Setting) -> None:
    logs = setting.logs
    policy = setting.world.logging_policy
    assert novelty_on(policy, logs) == 0
    assert novelty_on(Uniform(np.ones(30, dtype=bool)), logs) == pytest.approx(6 / 30)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Floor(), None),
        (lambda: Floor(1.0), None),
        (lambda: Floor(0.95, 0.2), "either a ratio or an absolute"),
        (lambda: Floor(None), "either a ratio or an absolute"),
        (lambda: Floor(-0.5), "a floor must be a positive number"),
        (lambda: Floor(95), "not a percentage"),
        (lambda: DepsueSettings(floor=0.9), "settings must be Floor"),  # type: ignore[arg-type]
        (lambda: DepsueSettings(deployments=1.5), r"deployments \(K\) must be"),  # type: ignore[arg-type]
        (lambda: DepsueSettings(deployments=0), r"deployments \(K\) must be"),
        (lambda: DepsueSettings(clip=0.0), "clip must be a positive number"),
        (lambda: DepsueSettings(when_failed="hope"), "when_failed must be"),  # type: ignore[arg-type]
    ],
)
def test_settings_are_checked(make: Callable[[], object], message: str | None) -> None:
    if message is None:
        make()
        return
    with pytest.raises(ConfigError, match=message):
        make()


def test_the_reward_model_is_fitted_on_s1_or_on_all_rows(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper's Safe OPG uses the q-hat of OPG (naive), which saw all rows."""
    fitted: list[int] = []

    def counted(logs: LoggedData, *args: Any, **options: Any) -> Any:
        fitted.append(len(logs))
        return fit_rewards(logs, *args, **options)

    monkeypatch.setattr("depsue.learners.depsue.fit_rewards", counted)
    quick = replace(SETTINGS, deployments=1, learner=SafeOpgSettings(steps=2))
    for rows in ("S1", "all"):
        run_depsue(setting.world, 4000, replace(quick, model_rows=rows), seed=1)
    assert fitted == [pytest.approx(2000, abs=200), 4000]
    with pytest.raises(ConfigError, match="model_rows must be 'S1' or 'all'"):
        replace(quick, model_rows="S2")  # type: ignore[arg-type]
