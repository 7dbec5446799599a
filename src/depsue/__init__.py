"""Safe exploration of new items, from logged data, in a few deployments.

The names below load their module (and torch, where it is needed) when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from depsue._version import __version__ as __version__

if TYPE_CHECKING:
    from depsue.bounds import Betting, Hcope, Normal, Smoothing
    from depsue.certificates import Certificate, Reads, three_folds, verify
    from depsue.data import ActionCatalogue, LoggedData
    from depsue.errors import DepsueError
    from depsue.estimators import (
        IPS,
        MIPS,
        SNIPS,
        ClippedIPS,
        DirectMethod,
        DoublyRobust,
        SwitchDR,
    )
    from depsue.exploration import ExploreSettings, explore, run_exploration
    from depsue.learners import (
        DepsueSettings,
        OpgSettings,
        SafeOpgSettings,
        run_depsue,
        train_opg,
        train_safe_opg,
    )
    from depsue.policies import (
        EpsilonGreedy,
        Mixture,
        OwnPolicy,
        ScoreTable,
        SoftmaxOfScores,
        Uniform,
        load,
        naive_safe_exploration,
        save,
    )
    from depsue.policies.network import NetworkPolicy
    from depsue.progress import bars
    from depsue.promises import Floor, Promise
    from depsue.rewards import CQL, OwnRewardModel, RewardSettings, fit_rewards
    from depsue.world import SyntheticSettings, World, synthetic_world

_HOMES = {
    "depsue.bounds": ["Betting", "Hcope", "Normal", "Smoothing"],
    "depsue.certificates": ["Certificate", "Reads", "three_folds", "verify"],
    "depsue.exploration": ["ExploreSettings", "explore", "run_exploration"],
    "depsue.promises": ["Floor", "Promise"],
    "depsue.data": ["ActionCatalogue", "LoggedData"],
    "depsue.errors": ["DepsueError"],
    "depsue.estimators": [
        "ClippedIPS",
        "DirectMethod",
        "DoublyRobust",
        "IPS",
        "MIPS",
        "SNIPS",
        "SwitchDR",
    ],
    "depsue.world": ["SyntheticSettings", "World", "synthetic_world"],
    "depsue.learners": [
        "DepsueSettings",
        "OpgSettings",
        "SafeOpgSettings",
        "run_depsue",
        "train_opg",
        "train_safe_opg",
    ],
    "depsue.policies": [
        "EpsilonGreedy",
        "Mixture",
        "OwnPolicy",
        "ScoreTable",
        "SoftmaxOfScores",
        "Uniform",
        "load",
        "naive_safe_exploration",
        "save",
    ],
    "depsue.policies.network": ["NetworkPolicy"],
    "depsue.progress": ["bars"],
    "depsue.rewards": ["CQL", "OwnRewardModel", "RewardSettings", "fit_rewards"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ActionCatalogue",
    "Betting",
    "CQL",
    "Certificate",
    "ClippedIPS",
    "DepsueError",
    "DepsueSettings",
    "DirectMethod",
    "DoublyRobust",
    "EpsilonGreedy",
    "ExploreSettings",
    "Floor",
    "Hcope",
    "IPS",
    "LoggedData",
    "MIPS",
    "Mixture",
    "NetworkPolicy",
    "Normal",
    "OpgSettings",
    "OwnPolicy",
    "OwnRewardModel",
    "Promise",
    "Reads",
    "RewardSettings",
    "SNIPS",
    "SafeOpgSettings",
    "ScoreTable",
    "Smoothing",
    "SoftmaxOfScores",
    "SwitchDR",
    "SyntheticSettings",
    "Uniform",
    "World",
    "bars",
    "explore",
    "fit_rewards",
    "load",
    "naive_safe_exploration",
    "run_depsue",
    "run_exploration",
    "save",
    "synthetic_world",
    "three_folds",
    "train_opg",
    "train_safe_opg",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'depsue' has no attribute '{name}'")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
