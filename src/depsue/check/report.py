"""Findings, the verdict that follows from them, and the report as text and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from depsue.data.mapping import LogMapping
from depsue.errors import DepsueError

READY, WARNED, UNUSABLE = "ready", "ready, with warnings", "not usable"


@dataclass(frozen=True)
class CheckFinding:
    """One thing that was found.

    Args:
        name: a short name, for scripts.
        severity: an "error" makes the logs unusable, a "warning" does not.
        rule: what should hold.
        value: what was found.
        cure: what to do.
    """

    name: str
    severity: Literal["error", "warning"]
    rule: str
    value: str
    cure: str

    @classmethod
    def of(cls, name: str, error: DepsueError) -> CheckFinding:
        """An error that was raised, as a finding."""
        return cls(name, "error", error.rule, error.found, error.cure)


@dataclass(frozen=True)
class CheckReport:
    """What `depsue check` says of logs.

    Args:
        source: what was checked.
        facts: what the logs hold, by name: numbers, texts, or None where it is not known.
        findings: what is wrong, errors first.
        notes: what was settled by rule, or could not be tested.
        mapping: which column was taken for what.
    """

    source: str
    facts: Mapping[str, Any]
    findings: tuple[CheckFinding, ...]
    notes: tuple[str, ...]
    mapping: LogMapping

    @property
    def verdict(self) -> str:
        """`ready`, `ready, with warnings` or `not usable`."""
        kinds = {one.severity for one in self.findings}
        return UNUSABLE if "error" in kinds else WARNED if kinds else READY

    @property
    def usable(self) -> bool:
        """Whether there is no error among the findings."""
        return self.verdict != UNUSABLE

    def as_json(self) -> dict[str, Any]:
        """Everything, in types that JSON has."""
        return {
            "source": self.source,
            "verdict": self.verdict,
            "facts": {name: _finite(value) for name, value in self.facts.items()},
            "findings": [asdict(one) for one in self.findings],
            "notes": list(self.notes),
            "assumptions": list(self.mapping.assumptions),
            "mapping": asdict(self.mapping),
        }

    def __str__(self) -> str:
        width = max((len(name) for name in self.facts), default=0)
        lines = [f"{self.source}: {self.verdict}", ""]
        lines += [f"  {name:{width}}  {_shown(value)}" for name, value in self.facts.items()]
        for one in self.findings:
            lines += ["", f"{one.severity} ({one.name}): {one.rule}."]
            lines += [f"  found: {one.value}"] if one.value else []
            lines += [f"  cure:  {one.cure}"] if one.cure else []
        for heading, said in (("Notes", self.notes), ("Assumed", self.mapping.assumptions)):
            lines += ["", heading, *(f"  - {sentence}" for sentence in said)] if said else []
        return "\n".join(lines)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else "not known" if value is None else str(value)
