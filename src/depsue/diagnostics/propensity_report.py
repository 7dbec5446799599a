"""The report of the test of propensities: what refutes them, what is noted, what is assumed."""

from __future__ import annotations

from dataclasses import dataclass

from depsue.protocols import BoundValue


@dataclass(frozen=True)
class RoundTest:
    """What was found about one round.

    Args:
        round: the round.
        learned_from: rows that m was learned from.
        model: which m it was, in words.
        bound: mean and lower bound of z = m/p; more than 1 refutes.
        overstated: mean and lower bound of 1 - z, for z with uniform m; more than 0 refutes. None
            unless `least` was declared.
    """

    round: int
    learned_from: int
    model: str
    bound: BoundValue
    overstated: BoundValue | None = None


@dataclass(frozen=True)
class PropensityReport:
    """Whether the propensities may be relied on, and why.

    Args:
        ok: True if nothing refutes them.
        findings: what refutes them, a sentence each.
        notes: what looks wrong, but may have a good reason, a sentence each.
        assumed: what the verdict rests on, a sentence each.
        delta: the share of correct logs that are refused, at most.
        rounds: the test of each round.
    """

    ok: bool
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    assumed: tuple[str, ...]
    delta: float
    rounds: tuple[RoundTest, ...]

    @property
    def n(self) -> int:
        """Rows that were tested."""
        return sum(test.bound.n for test in self.rounds)

    @property
    def worst(self) -> RoundTest:
        """The round with the highest bound."""
        return max(self.rounds, key=lambda test: test.bound.value)

    @property
    def mean(self) -> float:
        """The mean of z in the worst round; 1 if all is well, or less."""
        return self.worst.bound.mean

    @property
    def bound(self) -> float:
        """The lower bound on E[z] in the worst round; more than 1 refutes."""
        return self.worst.bound.value

    def __str__(self) -> str:
        head = "nothing refutes the propensities" if self.ok else "the propensities are wrong"
        worst = self.worst
        lines = [
            f"{head}: {self.n:,} rows tested at delta {self.delta:g}; in round {worst.round} m/p "
            f"has mean {self.mean:.4f} and lower bound {self.bound:.4f} (m: {worst.model})"
        ]
        for name, sentences in (("wrong", self.findings), ("note", self.notes)):
            lines += [f"  {name}: {sentence}" for sentence in sentences]
        return "\n".join([*lines, *(f"  assumed: {sentence}" for sentence in self.assumed)])
