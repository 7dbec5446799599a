"""The front door: what a user types. One line for each name, by the walk of a row."""
# ruff: noqa: I001 (grouped by what they are for, not by module)

from depsue._version import __version__ as __version__

# Logs and items, and whether they are fit for use.
from depsue.data import Catalogue as Catalogue
from depsue.data import LoggedData as LoggedData
from depsue.check import check_logs as check_logs
from depsue.diagnostics import check_drift as check_drift
from depsue.diagnostics import check_propensities as check_propensities

# Campaigns on a team's own logs, and what serves them.
from depsue.campaigns import Campaign as Campaign
from depsue.campaigns import create as create
from depsue.client import Client as Client
from depsue.ledger import open_ledger as open_ledger

# Certified exploration in Python.
from depsue.exploration import ExploreSettings as ExploreSettings
from depsue.exploration import explore as explore
from depsue.exploration import plan as plan
from depsue.exploration import run_exploration as run_exploration

# Certificates and what they promise.
from depsue.promises import Floor as Floor
from depsue.promises import Promise as Promise
from depsue.certificates import Certificate as Certificate
from depsue.certificates import MixtureLadder as MixtureLadder
from depsue.certificates import Reads as Reads
from depsue.certificates import Registration as Registration
from depsue.certificates import Rules as Rules
from depsue.certificates import certify as certify
from depsue.certificates import three_folds as three_folds
from depsue.certificates import verify as verify

# Policies and reward models, a team's own among them.
from depsue.policies import EpsilonGreedy as EpsilonGreedy
from depsue.policies import Mixture as Mixture
from depsue.policies import OwnPolicy as OwnPolicy
from depsue.policies import ScoreTable as ScoreTable
from depsue.policies import SoftmaxOfScores as SoftmaxOfScores
from depsue.policies import Uniform as Uniform
from depsue.policies import load as load
from depsue.policies import naive_safe_exploration as naive_safe_exploration
from depsue.policies import save as save
from depsue.policies.network import NetworkPolicy as NetworkPolicy
from depsue.rewards import CQL as CQL
from depsue.rewards import OwnRewardModel as OwnRewardModel
from depsue.rewards import RewardSettings as RewardSettings
from depsue.rewards import fit_rewards as fit_rewards

# The paper's learners.
from depsue.learners import DepsueSettings as DepsueSettings
from depsue.learners import OpgSettings as OpgSettings
from depsue.learners import SafeOpgSettings as SafeOpgSettings
from depsue.learners import run_depsue as run_depsue
from depsue.learners import train_opg as train_opg
from depsue.learners import train_safe_opg as train_safe_opg

# Bounds and estimators.
from depsue.bounds import Betting as Betting
from depsue.bounds import Hcope as Hcope
from depsue.bounds import Normal as Normal
from depsue.bounds import Smoothing as Smoothing
from depsue.estimators import IPS as IPS
from depsue.estimators import MIPS as MIPS
from depsue.estimators import SNIPS as SNIPS
from depsue.estimators import ClippedIPS as ClippedIPS
from depsue.estimators import DirectMethod as DirectMethod
from depsue.estimators import DoublyRobust as DoublyRobust
from depsue.estimators import SwitchDR as SwitchDR

# A world whose truth is known, progress bars, errors.
from depsue.errors import DepsueError as DepsueError
from depsue.progress import bars as bars
from depsue.world import SyntheticSettings as SyntheticSettings
from depsue.world import World as World
from depsue.world import synthetic_world as synthetic_world

__all__: list[str]
