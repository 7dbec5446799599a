"""Certified exploration beside what others do, in one loop: learn, deploy, observe, K times.

A method learns a policy from all rounds so far; `played` runs it in an environment. What is
compared: certified exploration, an even choice among new items, epsilon-greedy, Thompson sampling,
VW's `cb_explore_adf`, PONA, and the paper's Safe OPG. Methods other than certified exploration and
Safe OPG know no floor, and deploy what they learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from depsue import rng
from depsue.bounds import Hcope
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData, joined
from depsue.data.requests import Requests
from depsue.data.terms import WeightedTerms
from depsue.errors import ConfigError
from depsue.estimators.weights import importance_weights
from depsue.exploration import ExploreSettings, run_exploration
from depsue.learners import (
    AscentSettings,
    PonaSettings,
    ThompsonSettings,
    binned,
    epsilon_greedy,
    linear_thompson,
    train_pona,
)
from depsue.learners.ascent import feature_scores
from depsue.policies import (
    BasePolicy,
    ByItem,
    FeatureSoftmax,
    Mixture,
    OrElse,
    OwnPolicy,
    ScoreTable,
    Uniform,
)
from depsue.policies.by_features import softmax
from depsue.protocols import Environment, Policy, predicted
from depsue.rewards import fit_linear
from depsue.rewards.base import action_features

CERTIFIED = "certified"
METHODS = (
    CERTIFIED,
    "even",
    "epsilon-greedy",
    "Thompson",
    "VW cb_explore_adf",
    "PONA",
    "Safe OPG",
)
"""In the order of tables."""
PRICED = "epsilon-greedy, priced"
"""Epsilon-greedy on a weighted mean of the reward and of what is saved."""


@dataclass(frozen=True)
class RivalSettings:
    """What the methods are set to; chosen on development data."""

    rounds: int = 2
    """K."""
    rows: int = 300_000
    """Decisions of D_0 and of each deployment."""
    floor: float = 0.95
    """The share of pi0's value that certified exploration and Safe OPG keep."""
    epsilon: float = 0.1
    """Of epsilon-greedy and of VW."""
    price: float = 0.8
    """Weight of what is saved, where epsilon-greedy is priced."""
    products: bool = False
    """Whether models have products of context and item features."""
    kappa: float = 1.0
    """PONA's weight of LCPI."""
    dimensions: int = 5
    """Item features, the first ones, that PONA sees in two bins each."""
    chunk: int = 100
    """Decisions alike (request, item, propensity) that VW learns from as one example."""


@dataclass(frozen=True, eq=False)
class PlayedRound:
    """One deployment of a method.

    Args:
        policy: what was deployed.
        logs: its decisions.
        certified: whether a certificate, or Safe OPG's bound, passed; None where none is asked for.
    """

    policy: BasePolicy
    logs: LoggedData
    certified: bool | None


Rounds = Sequence[tuple[LoggedData, Policy]]
Learn = Callable[[Rounds, Requests, RivalSettings, int], BasePolicy]
"""From the rounds so far, the requests that will be asked about, settings and a seed: a policy."""


def played(
    method: str,
    environment: Environment,
    logs: LoggedData,
    explore: ExploreSettings,
    settings: RivalSettings,
    *,
    requests: Requests,
    seed: int,
) -> list[PlayedRound]:
    """K deployments of a method, from the same first logs.

    Args:
        method: one of METHODS.
        environment: where it is deployed.
        logs: D_0.
        explore: of certified exploration.
        settings: of all methods.
        requests: that its policies will be asked about.
        seed: of all training.
    """
    if method == CERTIFIED:
        n = len(logs) * settings.rounds
        result = run_exploration(environment, n, explore, seed=seed, logs=logs)
        out = []
        for done in result.deployments:
            certificate = done.explored.certificate
            passed = certificate is not None and certificate.passed
            own = done.explored.policy
            if not isinstance(own, BasePolicy):
                raise TypeError("certified exploration deploys policies of depsue")
            drawn = environment.deploy(own, len(logs), round=done.k)
            out.append(PlayedRound(own, drawn, passed))
        return out
    rounds: list[tuple[LoggedData, Policy]] = [(logs, environment.logging_policy)]
    out = []
    for k in range(1, settings.rounds + 1):
        asked: bool | None = None
        own_seed = rng.derive(seed, method, k)
        if method == "Safe OPG":
            policy, asked = _safe_opg(rounds, settings, own_seed)
        else:
            policy = LEARN[method](rounds, requests, settings, own_seed)
        drawn = environment.deploy(policy, len(logs), round=k)
        rounds.append((drawn, policy))
        out.append(PlayedRound(policy, drawn, asked))
    return out


def _together(rounds: Rounds) -> LoggedData:
    return joined([logs for logs, _ in rounds])


def _pi0(rounds: Rounds) -> BasePolicy:
    pi0 = rounds[0][1]
    if not isinstance(pi0, BasePolicy):
        raise TypeError("pi0 is a policy of depsue here")
    return pi0


def _even(rounds: Rounds, asked: Requests, settings: RivalSettings, seed: int) -> BasePolicy:
    """pi0, and in 1 - floor of the decisions an even choice among new items."""
    pi0, novel = _pi0(rounds), rounds[0][0].catalogue.novel
    return Mixture([pi0, OrElse(Uniform(novel), pi0)], [settings.floor, 1 - settings.floor])


def _epsilon_greedy(
    rounds: Rounds, asked: Requests, settings: RivalSettings, seed: int
) -> BasePolicy:
    logs = _together(rounds)
    model = fit_linear(logs)
    if settings.products:
        thompson = ThompsonSettings(draws=1, spread=0.0, products=True)
        greedy = linear_thompson(logs, thompson, seed=seed)  # the posterior mean, with products
        everyone = Uniform(np.ones(len(logs.catalogue), dtype=bool))
        return Mixture([greedy, everyone], [1 - settings.epsilon, settings.epsilon])
    return epsilon_greedy(model, logs.catalogue, settings.epsilon, r_max=logs.r_max)


def _priced(rounds: Rounds, asked: Requests, settings: RivalSettings, seed: int) -> BasePolicy:
    """Epsilon-greedy that is told the cost, as a column `saving` of the logs, by one weight."""
    w = settings.price
    mixed = [
        (replace(logs, reward=(1 - w) * logs.reward + w * logs.column("saving")), policy)
        for logs, policy in rounds
    ]
    return _epsilon_greedy(mixed, asked, settings, seed)


def _thompson(rounds: Rounds, asked: Requests, settings: RivalSettings, seed: int) -> BasePolicy:
    """With 2% even choices, so that every propensity is positive."""
    logs = _together(rounds)
    own = linear_thompson(logs, ThompsonSettings(products=settings.products), seed=seed)
    return Mixture([own, Uniform(np.ones(len(logs.catalogue), dtype=bool))], [0.98, 0.02])


def _pona(rounds: Rounds, asked: Requests, settings: RivalSettings, seed: int) -> BasePolicy:
    catalogue = rounds[0][0].catalogue
    features = action_features(rounds[0][0])[:, : settings.dimensions]
    if any(len(np.unique(column)) > 2 for column in features.T):
        features = binned(features, 2)
    discrete = Catalogue(catalogue.ids, catalogue.novel, features.astype(np.float32))
    first, *others = [(replace(logs, catalogue=discrete), policy) for logs, policy in rounds]
    ascent = AscentSettings(products=settings.products, entropy=0.01)
    pona = PonaSettings(kappa=settings.kappa, ascent=ascent)
    own = train_pona(*first, fit_linear(first[0]), pona, later=others).policy
    return Mixture([own, Uniform(np.ones(len(catalogue), dtype=bool))], [0.98, 0.02])


def _vw(rounds: Rounds, asked: Requests, settings: RivalSettings, seed: int) -> BasePolicy:
    """VW learns on decisions alike at once, with their mean cost, as often as there are chunks."""
    try:
        import vowpalwabbit
    except ImportError as problem:
        raise ConfigError(
            "the comparison with VW needs its Python package",
            found="no module vowpalwabbit",
            cure="pip install vowpalwabbit==9.11.9",
        ) from problem
    catalogue = rounds[0][0].catalogue
    features = action_features(rounds[0][0])
    words = [_words("a", row, novel) for row, novel in zip(features, catalogue.novel, strict=True)]
    asks = f"--cb_explore_adf --epsilon {settings.epsilon} --quiet --random_seed {seed % 2**31}"
    model = vowpalwabbit.Workspace(asks + (" -q sa" if settings.products else ""))
    examples = []
    for logs, _ in rounds:
        scale = 1 / max(logs.mean_reward(), 1e-12)
        rounded = np.round(logs.propensity, 6)
        keys = np.stack([logs.context, logs.action, rounded], axis=1)
        alike, which = np.unique(keys, axis=0, return_inverse=True)
        counts = np.bincount(which.ravel())
        means = np.bincount(which.ravel(), logs.reward) / counts
        for (context, action, propensity), count, mean in zip(alike, counts, means, strict=True):
            label = f"{-mean * scale:.6f}:{propensity:.6f}"
            lines = _lines(logs.requests, int(context), words, int(action), label)
            examples += [lines] * int(np.ceil(count / settings.chunk))
    for place in rng.generator(seed, "vw").permutation(len(examples)):
        model.learn(examples[place])
    table = np.zeros((len(asked), asked.width(len(catalogue))))
    for place in range(len(asked)):
        pmf = model.predict(_lines(asked, place, words))
        table[place, : len(pmf)] = pmf
    model.finish()
    if asked.sets is None:
        return OwnPolicy(ScoreTable(asked.contexts, table), len(catalogue))
    by_item = np.zeros(len(catalogue))  # every item is a candidate of one request
    places = asked.places(len(catalogue))
    there = np.ones_like(table, dtype=bool) if places.there is None else places.there
    by_item[places.items[there]] = table[there]
    return ByItem(by_item / by_item.sum())


def _words(namespace: str, row: FloatArray, novel: bool) -> str:
    numbers = " ".join(f"{k}:{value:.4f}" for k, value in enumerate(row))
    return f"|{namespace} {numbers}{' new' if novel else ''}"


def _lines(
    requests: Requests, place: int, words: Sequence[str], chosen: int = -1, label: str = ""
) -> list[str]:
    sets = requests.sets
    items = (
        range(len(words)) if sets is None else sets.items[slice(*sets.starts[place : place + 2])]
    )
    lines = [f"shared {_words('s', requests.contexts[place], False)}"]
    for item in items:
        lines.append(f"0:{label} {words[item]}" if int(item) == chosen else words[item])
    return lines


LEARN: dict[str, Learn] = {
    "even": _even,
    "epsilon-greedy": _epsilon_greedy,
    PRICED: _priced,
    "Thompson": _thompson,
    "VW cb_explore_adf": _vw,
    "PONA": _pona,
}


def _safe_opg(
    rounds: Rounds, settings: RivalSettings, seed: int, steps: int = 300
) -> tuple[BasePolicy, bool]:
    """Algorithm 1 for a softmax over features: F + lambda R on S1, lambda by Eq. 4's bound on S2.

    Differences from the paper: all rows at once, Adam, the class of policies, and lambda in units
    of the mean reward. The need is C - margin (Eq. 9); where the bound fails, pi0 is served.
    """
    floor = settings.floor * rounds[0][0].mean_reward()
    need = floor - sum(logs.mean_reward() - floor for logs, _ in rounds[1:])
    newest = rounds[-1][0]
    s1, s2 = newest.split((0.5, 0.5), salt=f"safe opg {seed}")
    unit, novel = max(newest.mean_reward(), 1e-12), newest.catalogue.novel
    requests, everything = s1.requests, np.ones(len(novel), dtype=bool)
    features = np.concatenate([action_features(s1), novel[:, None]], axis=1)
    scores = feature_scores(s1, features, everything, standardise=True)
    counts = (s1.context_counts / len(s1))[:, None]
    q = np.asarray(predicted(fit_linear(s1), requests)) * counts
    rewarded = np.zeros((len(requests), requests.width(len(novel))))
    place = requests.place(s1.action, s1.context)
    np.add.at(rewarded, (s1.context, place), s1.reward / len(s1))
    weights = np.zeros(scores.shape)
    mean, square, free = np.zeros_like(weights), np.zeros_like(weights), np.ones_like(weights)
    free[1:] = settings.products
    lambda_, bound = 0.0, 0.0
    for step in range(1, steps + 1):
        pi = softmax(scores.of(requests, weights))
        by_score = pi * (q - (pi * q).sum(axis=1, keepdims=True))
        by_score += lambda_ * (rewarded - pi * rewarded.sum(axis=1, keepdims=True))
        gradient = scores.derivative(requests, by_score) * free / unit
        mean += 0.1 * (gradient - mean)
        square += 0.001 * (gradient**2 - square)
        rate = 0.05 / (np.sqrt(square / (1 - 0.999**step)) + 1e-12)
        weights = weights + rate * mean / (1 - 0.9**step)
        if step % 10 == 0 or step == steps:
            bound = _hcope(FeatureSoftmax(scores, weights), s2)
        lambda_ = max(lambda_ - (bound - need) / unit, 0.0)
    policy = FeatureSoftmax(scores, weights)
    passed = _hcope(policy, s2) > need
    return (policy if passed else _pi0(rounds)), passed


def _hcope(policy: BasePolicy, logs: LoggedData) -> float:
    terms = WeightedTerms.of(
        importance_weights(policy, logs), logs.reward, r_max=logs.r_max, unit=logs.unit
    )
    return Hcope().lower(terms, 0.05).value
