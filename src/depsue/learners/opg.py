"""Off-policy policy gradient (OPG); the reward model decides whether it is naive or with CQL."""

from __future__ import annotations

from depsue.data.logs import LoggedData
from depsue.errors import require_settings
from depsue.learners.gradient import OpgSettings, PolicyGradient
from depsue.learners.history import History, Trained
from depsue.policies.network import NetworkPolicy
from depsue.progress import Watch, silent
from depsue.protocols import RewardModel


def train_opg(
    logs: LoggedData,
    model: RewardModel,
    settings: OpgSettings | None = None,
    *,
    seed: int,
    name: str = "OPG",
    watch: Watch = silent,
) -> Trained:
    """Maximise F(pi), by default Eq. 2, with q-hat in place of q (Eq. 1).

    No constraint keeps the policy safe: that is Safe OPG (`train_safe_opg`).

    Args:
        logs: the rows D; only their contexts matter here.
        model: q-hat: `fit_rewards(logs)` gives OPG (naive), with `CQL` OPG (w/ CQL).
        settings: how to train; the defaults are the paper's.
        seed: of weights and minibatches.
        name: shown with the progress.
        watch: shows progress.
    """
    settings = settings or OpgSettings()
    require_settings(settings, OpgSettings)
    policy = initial_policy(logs, settings, seed)
    gradient = PolicyGradient(policy, logs, model, settings, seed=seed)
    history, interrupted = History(), False
    try:
        for step in range(1, settings.steps + 1):
            facts = gradient.step(gradient.draw_rows(), 0.0)
            history.add(facts)
            if step % 50 == 0 or step == settings.steps:
                watch(name, step, settings.steps, f"novelty {facts.novelty:.3f}")
    except KeyboardInterrupt:
        interrupted = True
    return Trained(policy, history, interrupted)


def initial_policy(logs: LoggedData, settings: OpgSettings, seed: int) -> NetworkPolicy:
    """The network that training starts from."""
    return NetworkPolicy.initial(
        logs.contexts.shape[1],
        len(logs.catalogue),
        seed=seed,
        hidden=settings.hidden,
        standardise=logs.contexts if settings.standardise else None,
    )
