"""What a round compares: candidates of two parts, an old one and a new one, with their sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from depsue.exploration.headroom import MixtureSums, Sums
from depsue.protocols import Policy

Basis = Literal["pi0", "the last round's part", "uniform", "frequencies"]


@dataclass(frozen=True)
class Tilt:
    """How a pi_old is made: a tilt of a policy by q-hat, beside a share of pi0.

    Args:
        of: pi0, the old part of the last round, or an even choice among what was shown: uniform,
            or as often as it was shown.
        strength: in standard deviations of q-hat; 0 for no tilt.
        cap: where it levels off.
        pi0_share: the share of pi0 beside it.
    """

    of: Basis = "pi0"
    strength: float = 0.0
    cap: float = 1.0
    pi0_share: float = 0.0

    def __str__(self) -> str:
        share = self.pi0_share
        mixed = f"{share:g} pi0 + {1 - share:g} " if share and self.of != "pi0" else ""
        if self.strength == 0:
            return f"{mixed}{self.of}"
        return f"{mixed}{self.of} tilted by {self.strength:g} q-hat, cap {self.cap:g}"


@dataclass(frozen=True, eq=False)
class Part:
    """A pi_old or a pi_new.

    Args:
        policy: it.
        sums: for each promise.
        tilt: how a pi_old is made.
        pi0_share: the share of a pi0 that is known by what it chose beside the policy.
        elsewhere: of a pi_old, the sums over requests without a new candidate; None if there are
            no such requests.
    """

    policy: Policy
    sums: tuple[Sums, ...]
    tilt: Tilt = Tilt()
    pi0_share: float = 0.0
    elsewhere: tuple[Sums, ...] | None = None


@dataclass(frozen=True, eq=False)
class Candidate:
    """Two parts, and for each promise the sums of their mixtures."""

    old: Part
    new: Part
    sums: tuple[MixtureSums, ...]

    @classmethod
    def of(cls, old: Part, new: Part, pi0: tuple[Sums, ...], *, meet: bool = False) -> Candidate:
        """Two parts beside pi0's sums; `meet` says that both may count in one row."""
        elsewhere = (None,) * len(pi0) if old.elsewhere is None else old.elsewhere
        parts = zip(old.sums, new.sums, pi0, elsewhere, strict=True)
        return cls(old, new, tuple(MixtureSums(*own, meet=meet) for own in parts))
