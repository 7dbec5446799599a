"""The standing audit: every kind of certificate in every hostile world, with its error rate.

An error is a certificate that passed while what it promises is false by the world's truth. A
refusal is no error, and is counted. Strict kinds run as a user would run them, on worlds of which
everything is known, against users who shop, look, append, forget and overserve; beside some stands
the tempting rule, which shows that the attack has teeth. `depsue-research audit` runs it.
Shapes: u contexts, A actions, R replications.
"""

from __future__ import annotations

from depsue_research.audit.answers import GROUPS, Tally
from depsue_research.audit.blocks import gather, sweep, tallies, tasks

__all__ = ["GROUPS", "Tally", "gather", "sweep", "tallies", "tasks"]
