"""The demo: OPG, Safe OPG and DEPSUE in a world whose truth is known, and a campaign to serve.

Two rounds of that campaign are certified, and the first was observed.
"""

from __future__ import annotations

import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from depsue import rng
from depsue.campaigns import Campaign, create
from depsue.data.logs import LoggedData
from depsue.data.writing import write_items, write_logs
from depsue.errors import FileError, NovelMassWarning, require
from depsue.estimators import IPS, DirectMethod
from depsue.learners import DepsueResult, DepsueSettings, run_depsue
from depsue.learners.gradient import OpgSettings
from depsue.learners.history import SafelyTrained, Trained
from depsue.learners.opg import train_opg
from depsue.learners.safe_opg import SafeOpgSettings, train_safe_opg
from depsue.policies import Uniform, naive_safe_exploration
from depsue.policies.tilted import Tilted
from depsue.progress import Watch, silent
from depsue.promises import Floor
from depsue.protocols import Policy
from depsue.rewards import MlpRewardModel, RewardSettings, fit_linear, fit_rewards
from depsue.world import SyntheticSettings, World, synthetic_world


@dataclass(frozen=True)
class DemoSettings:
    """A world in which new items look as good as the old ones and are worth a quarter of that."""

    world: SyntheticSettings = SyntheticSettings(
        users=1000, supported=160, novel=40, beta=1.0, spread=0.4, novel_quality=0.25
    )
    rows: int = 90_000
    deployments: int = 3
    floor: float = 0.95
    rewards: RewardSettings = RewardSettings(max_epochs=6)
    naive: OpgSettings = OpgSettings(steps=3000)
    safe: SafeOpgSettings = SafeOpgSettings(
        steps=3000, rate=0.03, rate_lambda=0.03, bound_every=5, keep="last passing"
    )
    """Steps are larger than the paper's, so 3,000 of them are enough. The last policy that passed
    is taken, not the last of all, so a near miss at the end does not cost a round."""


@dataclass(frozen=True)
class DemoRow:
    """One method: what it believes and promises beside the truth; all over the true V(pi0)."""

    method: str
    """Its name, for people."""
    deployment: int | None
    """k for the k-th deployment of DEPSUE, None for the other methods."""
    believed: float | None
    """Its own estimate: the reward model's (OPG, Safe OPG), or measured while served (DEPSUE)."""
    bound: float | None
    """The lower bound from logs, with error budget delta; None where the method needs none."""
    need: float | None
    """What the bound had to exceed: the floor less the margin; None where it is not constrained."""
    value: float
    """True value."""
    novelty: float
    """True novelty."""
    average: float
    """True value averaged over all deployments up to this one: what Eq. 9 promises."""
    safe: bool
    """The average is at or above the floor."""


@dataclass(frozen=True, eq=False)
class DemoResult:
    """Everything that the report shows."""

    settings: DemoSettings
    seed: int
    world: World
    logs: LoggedData
    model: MlpRewardModel
    naive: Trained
    safe: SafelyTrained
    depsue: DepsueResult
    rows: tuple[DemoRow, ...]

    def as_json(self) -> dict[str, Any]:
        """The table and what it was made from."""
        return {
            "seed": self.seed,
            "rows": self.settings.rows,
            "floor": self.settings.floor,
            "delta": self.settings.safe.delta,
            "methods": [vars(row) for row in self.rows],
        }


def run_demo(
    settings: DemoSettings | None = None, *, seed: int = 0, watch: Watch = silent
) -> DemoResult:
    """Build the world, collect logs, learn with each method, and compare each with the truth."""
    with rng.one_thread():
        return _run(settings or DemoSettings(), seed, watch)


def _run(s: DemoSettings, seed: int, watch: Watch) -> DemoResult:
    world = synthetic_world(s.world, seed=seed)
    logs = world.deploy(world.logging_policy, s.rows, round=0)
    model = fit_rewards(logs, s.rewards, seed=seed, watch=watch)
    naive = train_opg(logs, model, s.naive, seed=seed, name="OPG (naive)", watch=watch)
    _go_on(naive.interrupted)
    s1, s2 = logs.split((0.5, 0.5), salt=f"demo {seed}")
    need = s.floor * logs.mean_reward()
    model_s1 = fit_rewards(s1, s.rewards, seed=seed, watch=watch)
    safe = train_safe_opg(s1, s2, model_s1, need, s.safe, seed=seed, watch=watch)
    _go_on(safe.interrupted)
    campaign = DepsueSettings(
        deployments=s.deployments, floor=Floor(s.floor), learner=s.safe, rewards=s.rewards
    )
    deployed = run_depsue(world, s.rows, campaign, seed=seed, watch=watch)
    _go_on(deployed.interrupted)
    judge = _Judge(world, logs, s)
    cautious = naive_safe_exploration(world.logging_policy, world.catalogue, 1 - s.floor)
    rows = [
        judge.row("logging policy pi0", world.logging_policy),
        judge.row("Naive Safe Exploration", cautious),
        judge.row(
            "OPG (naive)",
            naive.policy,
            judge.believed(naive.policy, model),
            judge.bound(naive.policy),
        ),
        judge.row(
            "Safe OPG",
            safe.policy,
            judge.believed(safe.policy, model_s1),
            safe.bound.value,
            safe.need,
        ),
    ]
    for d in deployed.deployments:
        rows.append(
            judge.row(
                f"DEPSUE {d.k} of {s.deployments}" + ("" if d.trained.passed else ", kept pi0"),
                d.deployed,
                d.value,
                d.trained.bound.value,
                d.trained.need,
                deployment=d.k,
                served=[e.deployed for e in deployed.deployments[: d.k]],
            )
        )
    return DemoResult(s, seed, world, logs, model, naive, safe, deployed, tuple(rows))


def _go_on(interrupted: bool) -> None:
    """Stop the demo: a learner that is interrupted returns what it has, and does not raise."""
    if interrupted:
        raise KeyboardInterrupt


class _Judge:
    """Compares policies with the truth of the world; values are relative to pi0's true value."""

    def __init__(self, world: World, logs: LoggedData, settings: DemoSettings) -> None:
        self.world, self.logs, self.settings = world, logs, settings
        self.truth = world.value(world.logging_policy)

    def believed(self, policy: Policy, model: MlpRewardModel) -> float:
        """The reward model's value of a policy."""
        with warnings.catch_warnings():  # the table shows what the warning is about
            warnings.simplefilter("ignore", NovelMassWarning)
            return DirectMethod(model).estimate(policy, self.logs).value

    def bound(self, policy: Policy) -> float:
        """The bound that OPG never looks at."""
        terms = IPS().terms(policy, self.logs)
        return self.settings.safe.bound.lower(terms, self.settings.safe.delta).value

    def row(
        self,
        method: str,
        policy: Policy,
        believed: float | None = None,
        bound: float | None = None,
        need: float | None = None,
        *,
        deployment: int | None = None,
        served: list[Policy] | None = None,
    ) -> DemoRow:
        """One row of the table, from values on the reward's own scale.

        Args:
            method, believed, bound, need, deployment: as in `DemoRow`.
            policy: what the row is about.
            served: all policies up to this one, for the average; None for the policy alone.
        """
        values = [self.world.value(p) / self.truth for p in served or [policy]]
        average = sum(values) / len(values)
        believed, bound, need = (
            None if value is None else value / self.truth for value in (believed, bound, need)
        )
        return DemoRow(
            method=method,
            deployment=deployment,
            believed=believed,
            bound=bound,
            need=need,
            value=values[-1],
            novelty=self.world.novelty(policy),
            average=average,
            safe=average >= self.settings.floor - 1e-12,
        )


NAME, FOLDER, MARK = "demo", "shop", "made-by-depsue-demo"
"""The file MARK says that a folder is the demo's own, and may be deleted by the next run."""
WORLD = SyntheticSettings(users=1000, supported=160, novel=40, beta=1.0, spread=0.4, d=6)
"""A shop in which new items are as good as old ones."""
ROWS = 30_000


def demo_world(seed: int) -> World:
    """The shop, its users and what they like."""
    return synthetic_world(WORLD, seed=seed)


def make_demo_campaign(out: str | Path, *, seed: int, watch: Watch = silent) -> Campaign:
    """Make the shop's files and its campaign in the folder `out`, replacing an earlier demo's.

    pi0 is a model, not a table, so that the service can answer for any context.

    Args:
        out: the folder of the demo.
        seed: of everything.
        watch: shows progress.
    """
    folder = Path(out) / FOLDER
    if folder.exists():
        require(
            (folder / MARK).exists(),
            "the demo's shop goes into a folder of its own",
            found=f"{folder}, which is not the demo's",
            cure="choose another folder with --out",
            error=FileError,
        )
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    world = demo_world(seed)
    old_items = Uniform(~world.catalogue.novel)
    with rng.one_thread():
        model = fit_linear(world.deploy(old_items, 20_000, round=0))
        pi0 = Tilted(old_items, model, strength=1.0, cap=50.0, scale=0.05)
        write_items(world.catalogue, folder / "items.parquet")
        write_logs(world.deploy(pi0, ROWS, round=0), folder / "may.parquet")
        campaign = create(
            NAME,
            folder / "may.parquet",
            folder / "items.parquet",
            pi0=pi0,
            by="demo",
            home=folder / "campaigns",
        )
        _next_round(campaign, watch)
        served = campaign.policy(1, campaign.ledger.deployments(NAME)[-1].policy_hash)
        write_logs(world.deploy(served, ROWS, round=1), folder / "june.parquet")
        campaign.observe(folder / "june.parquet")
        _next_round(campaign, watch)
    return campaign


def _next_round(campaign: Campaign, watch: Watch) -> None:
    campaign.train(watch=watch)
    campaign.certify(watch=watch)
    campaign.deploy()
