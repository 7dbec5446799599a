"""Certified exploration where the world is against it, held against the truth.

Four worlds in which the promise must hold and what is spent on novelty is shown: a plain one, one
whose novel items are all worthless, one with a reward in 1,000 decisions, and one whose logging
policy is almost deterministic. And logs whose propensities are wrong, which must be refused.
"""

from __future__ import annotations

from depsue_research.hostile.campaigns import (
    WORLDS,
    Case,
    HostileWorld,
    cases,
    finished,
    keep,
    run_case,
)
from depsue_research.hostile.refusals import refused

__all__ = [
    "WORLDS",
    "Case",
    "HostileWorld",
    "cases",
    "finished",
    "keep",
    "refused",
    "run_case",
]
