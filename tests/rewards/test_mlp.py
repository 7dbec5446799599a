"""Reward models learn what can be learned, and say how well."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from depsue.data import Catalogue, LoggedData
from depsue.errors import ConfigError, DataError, FileError
from depsue.policies import ScoreTable
from depsue.rewards import CQL, MlpRewardModel, OwnRewardModel, RewardSettings, fit_rewards
from depsue.rewards.mlp import Adam, AllPairs, BatchedMlp
from depsue.world import SyntheticSettings, World, synthetic_world

QUICK = RewardSettings(max_epochs=8)


@pytest.fixture(scope="module")
def world() -> World:
    return synthetic_world(SyntheticSettings(users=200, supported=40, novel=10, d=4), seed=3)


@pytest.fixture(scope="module")
def logs(world: World) -> LoggedData:
    return world.deploy(world.logging_policy, 20_000, round=0)


@pytest.fixture(scope="module")
def model(logs: LoggedData) -> MlpRewardModel:
    return fit_rewards(logs, QUICK, seed=0)


def truth(world: World, logs: LoggedData) -> np.ndarray:
    return ScoreTable(world.contexts, world.q)(logs.contexts)


def test_the_ensemble_learns_q(world: World, logs: LoggedData, model: MlpRewardModel) -> None:
    q, q_hat = truth(world, logs), model.predict(logs.contexts)
    supported = ~world.catalogue.novel
    assert np.corrcoef(q[:, supported].ravel(), q_hat[:, supported].ravel())[0, 1] > 0.9


def test_the_report_has_loss_and_calibration(model: MlpRewardModel) -> None:
    report = model.report
    assert report is not None
    best = report.heldout_loss[report.best_epoch - 1]
    assert best == min(report.heldout_loss)
    assert report.cross_entropy == best < report.baseline
    assert len(report.predicted) == len(report.observed) == 10
    assert list(report.predicted) == sorted(report.predicted)
    assert report.calibration_error < 0.05
    assert f"{best:.4f}" in str(report)


def test_pairs_and_whole_rows_agree(logs: LoggedData, model: MlpRewardModel) -> None:
    whole = model.predict(logs.contexts)
    pairs = model.predict_pairs(logs.contexts, logs.action, logs.context)
    np.testing.assert_allclose(pairs, whole[logs.context, logs.action], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("hidden", [(6,), (6, 4), (6, 4, 3)])
def test_pairs_are_the_same_in_any_order_and_on_any_number_of_threads(
    hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    contexts = draw.normal(3, 2, size=(500, 3)).astype(np.float32)
    features = draw.normal(-1, 3, size=(7000, 5)).astype(np.float32)
    mlp = BatchedMlp.initial(contexts, features, members=2, hidden=hidden, seed=0)
    model = MlpRewardModel(mlp, features, 2.0, "optimistic")
    actions, rows = draw.integers(0, 7000, 6000), np.sort(draw.integers(0, 500, 6000))
    whole = model.predict(contexts)[rows, actions]
    monkeypatch.setattr("depsue.rewards.mlp.PAIRS_A_TASK", 3000)
    monkeypatch.setattr("depsue.rewards.mlp.PAIRS_AT_ONCE", 1000)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    alone = model.predict_pairs(contexts, actions, rows)
    np.testing.assert_allclose(alone, whole, atol=1e-6)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    np.testing.assert_array_equal(model.predict_pairs(contexts, actions, rows), alone)
    mixed = draw.permutation(6000)  # pairs of a block are no neighbours any more
    shuffled = model.predict_pairs(contexts, actions[mixed], rows[mixed])
    np.testing.assert_allclose(shuffled, alone[mixed], atol=1e-6)
    few = np.arange(0, 6000, 3000)
    np.testing.assert_allclose(
        model.predict_pairs(contexts[rows[few]], actions[few]), alone[few], atol=1e-6
    )
    more = np.tile(np.arange(6000), 2)  # more pairs than actions: their part is worked out once
    held = model.predict_pairs(contexts, actions[more], rows[more])
    np.testing.assert_allclose(held, alone[more], atol=1e-6)


def test_min_is_below_mean_and_both_are_of_the_members(
    logs: LoggedData, model: MlpRewardModel
) -> None:
    members = model.members(logs.contexts)
    assert members.shape == (5, len(logs.contexts), len(logs.catalogue))
    np.testing.assert_allclose(model.predict(logs.contexts), members.mean(axis=0), rtol=1e-6)
    low = model.combined("min").predict(logs.contexts)
    np.testing.assert_array_equal(low, members.min(axis=0))
    assert members.std(axis=0).min() > 0  # every member saw another bootstrap sample


def test_members_are_trained_apart(logs: LoggedData) -> None:
    """A member's gradient is its own: five together are five alone, up to their sample."""
    mlp = BatchedMlp.initial(
        logs.contexts, np.array(logs.catalogue.features), members=3, hidden=(6, 4), seed=0
    )
    x = torch.from_numpy(np.array(logs.contexts[:7]))
    e = torch.from_numpy(np.array(logs.catalogue.features))
    together = AllPairs(mlp, e)(x)
    for j in range(3):
        alone = BatchedMlp(
            [w[j : j + 1] for w in mlp.weights],
            [b[j : j + 1] for b in mlp.biases],
            mlp.d,
            mlp.shift,
            mlp.scale,
        )
        torch.testing.assert_close(AllPairs(alone, e)(x)[0], together[j])


def test_adam_is_that_of_torch_bit_for_bit() -> None:
    draw = torch.Generator().manual_seed(0)
    mine = [torch.randn(shape, generator=draw).requires_grad_() for shape in ((4, 3), (3,))]
    theirs = [parameter.detach().clone().requires_grad_() for parameter in mine]
    adam, reference = Adam(mine, 1e-3), torch.optim.Adam(theirs, lr=1e-3)
    for _ in range(30):
        x = torch.randn(5, 4, generator=draw)
        losses = [((x @ w).relu() + b).square().mean() for w, b in (mine, theirs)]
        adam.step(torch.autograd.grad(losses[0], mine))
        reference.zero_grad()
        losses[1].backward()  # type: ignore[no-untyped-call]
        reference.step()
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_plain_steps_learn_too_and_slower(world: World, logs: LoggedData) -> None:
    """At Adam's rate a plain step hardly moves; at a rate of its own it beats the mean reward."""
    slow = fit_rewards(logs, RewardSettings(max_epochs=3, optimiser="sgd"), seed=0)
    fast = fit_rewards(logs, RewardSettings(max_epochs=8, optimiser="sgd", rate=0.3), seed=0)
    assert slow.report is not None and fast.report is not None
    assert fast.report.cross_entropy < fast.report.baseline < slow.report.cross_entropy + 0.01
    assert fast.report.cross_entropy < slow.report.cross_entropy
    with pytest.raises(ConfigError, match="optimiser must be 'adam' or 'sgd'"):
        RewardSettings(optimiser="momentum")  # type: ignore[arg-type]


def test_cql_pushes_down_what_was_not_logged(world: World, logs: LoggedData) -> None:
    plain = fit_rewards(logs, RewardSettings(members=1, max_epochs=4), seed=0)
    careful = fit_rewards(logs, replace(CQL, max_epochs=4), seed=0)
    assert CQL.conservatism == 2.0

    def lift(model: MlpRewardModel) -> float:
        q = model.predict(logs.contexts)
        logged = model.predict_pairs(logs.contexts, logs.action, logs.context)
        return float(logged.mean() / q.mean())

    assert lift(careful) > 1.2 * lift(plain)


def test_rewards_up_to_r_max_are_predicted_on_their_scale(logs: LoggedData) -> None:
    tenfold = LoggedData.from_arrays(
        contexts=logs.contexts,
        context_rows=logs.context,
        actions=logs.action,
        rewards=logs.reward * 10,
        propensities=logs.propensity,
        catalogue=logs.catalogue,
        r_max=10.0,
    )
    q = fit_rewards(tenfold, RewardSettings(members=1, max_epochs=3), seed=0).predict_pairs(
        tenfold.contexts, tenfold.action, tenfold.context
    )
    assert q.mean() == pytest.approx(tenfold.mean_reward(), rel=0.1)


def test_same_seed_same_model(logs: LoggedData) -> None:
    few = RewardSettings(members=2, max_epochs=1)
    first, again, other = (fit_rewards(logs, few, seed=s).predict(logs.contexts) for s in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_saved_and_loaded_it_is_the_same(
    logs: LoggedData, model: MlpRewardModel, tmp_path: Path
) -> None:
    model.combined("min").save(tmp_path)
    again = MlpRewardModel.load(tmp_path)
    assert again.combine == "min"
    np.testing.assert_array_equal(
        again.predict(logs.contexts), model.combined("min").predict(logs.contexts)
    )
    arrays = next(tmp_path.glob("*.safetensors"))
    arrays.write_bytes(arrays.read_bytes()[:-1])
    with pytest.raises(FileError, match="truncated"):
        MlpRewardModel.load(tmp_path)


def test_features_are_needed() -> None:
    logs = LoggedData.from_arrays(
        contexts=np.zeros((2, 1)),
        actions=[0, 1],
        rewards=[0, 1],
        propensities=[0.5, 0.5],
        catalogue=Catalogue.of([0, 1]),
        r_max=1.0,
    )
    with pytest.raises(DataError, match="needs action features"):
        fit_rewards(logs, seed=0)


def test_own_model_by_chunks_and_checked() -> None:
    table = np.random.default_rng(0).random((6, 3))
    contexts = np.arange(6, dtype=np.float32)[:, None]
    own = OwnRewardModel(lambda x: table[x[:, 0].astype(int)], 3)
    rows, actions = np.array([5, 0, 3]), np.array([2, 1, 0])
    np.testing.assert_array_equal(own.predict_pairs(contexts, actions, rows), table[rows, actions])
    with pytest.raises(ConfigError, match="must return finite values of shape"):
        OwnRewardModel(lambda x: table[:1], 3).predict(contexts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": 0}, "members must be a whole number, at least 1"),
        ({"heldout": 1.0}, "heldout must lie in"),
        ({"conservatism": -1.0}, "conservatism must be a finite number >= 0"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RewardSettings(**change)  # type: ignore[arg-type]
