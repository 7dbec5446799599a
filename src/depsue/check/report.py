"""The report of a check: facts about the logs, findings, and the verdict that follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from depsue.data.mapping import LogMapping
from depsue.errors import DepsueError

READY, WARNED, UNUSABLE = "ready", "ready, with warnings", "not usable"
Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class CheckFinding:
    """A rule that the logs break.

    Args:
        name: a short name, for scripts.
        severity: an "error" makes the logs unusable, a "warning" does not.
        rule: what should hold.
        value: what was found.
        cure: what to do.
    """

    name: str
    severity: Severity
    rule: str
    value: str
    cure: str

    @classmethod
    def of(cls, name: str, error: DepsueError) -> CheckFinding:
        """An error that was raised, as a finding."""
        return cls(name, "error", error.rule, error.found, error.cure)


def _fact(label: str) -> Any:
    """A fact that is None unless it was counted; the label is its name in text and JSON."""
    return field(default=None, metadata={"label": label})


@dataclass(frozen=True)
class LogFacts:
    """What the logs hold. A fact is None where it does not apply or could not be computed."""

    files: int | None = _fact("files")
    rows: int | None = _fact("rows")
    actions: int | None = _fact("actions")
    rarest_action_rows: int | None = _fact("rows of the rarest action")
    context_columns: int | None = _fact("context columns")
    mean_reward: float | None = _fact("mean reward")
    rewarded_rows: int | None = _fact("rows with a reward")
    smallest_propensity: float | None = _fact("smallest propensity")
    effective_sample_size: float | None = _fact("effective sample size")
    propensities: Literal["logged", "estimated"] | None = _fact("propensities")
    candidates: str | None = _fact("candidates per request")
    requests_with_new: float | None = _fact("share of requests with a new item")
    versions: int | None = _fact("versions of pi0")
    first_time: str | None = _fact("first time")
    last_time: str | None = _fact("last time")
    rows_per_unit: float | None = _fact("rows per unit, in a sample")
    rounds: str | None = _fact("rounds")
    repeated_rows: float | None = _fact("repeated rows")
    missing_values: int | None = _fact("missing values")
    items: int | None = _fact("items")
    items_never_logged: int | None = _fact("items never logged")
    novel_items: int | None = _fact("novel items")
    inverse_propensity_ratio: float | None = _fact("sum of 1/p, of rows x actions")
    inverse_propensity_z: float | None = _fact("its z")
    propensity_test: str | None = _fact("m/p in a sample: mean, lower bound")

    def labelled(self) -> Iterator[tuple[str, Any]]:
        """Label and value of every fact that applies; None stands for "not known"."""
        expected = {"repeated_rows"} if self.rows is not None else set()
        if self.propensities is not None:
            expected |= {"smallest_propensity", "effective_sample_size"}
        for fact in fields(self):
            value = getattr(self, fact.name)
            if value is not None or fact.name in expected:
                yield fact.metadata["label"], value


@dataclass(frozen=True)
class Outlook:
    """What can be done on the logs.

    Args:
        campaign: whether a campaign can be created.
        pi0: how pi0 is known without being named: "logged" or "chosen"; None without a campaign.
        sentence: all of it in words.
    """

    campaign: bool
    pi0: Literal["logged", "chosen"] | None
    sentence: str

    @classmethod
    def of(cls, findings: Sequence[CheckFinding], mapping: LogMapping, by_item: bool) -> Outlook:
        """From what was found.

        Args:
            findings: all of them.
            mapping: which column is what.
            by_item: every item is always shown with the same propensity.
        """
        errors = [finding for finding in findings if finding.severity == "error"]
        if errors:
            more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
            return cls(False, None, f"No campaign can be created: {errors[0].rule}{more}.")
        if any(finding.name == "novel-none" for finding in findings):
            return cls(False, None, "No campaign can be created: there is no new item to explore.")
        start = "A campaign can be created, and pi0 is known so:"
        if mapping.probabilities is not None:
            sentence = (
                f"{start} logged, by its probability of every candidate (--pi0 logged), which "
                "allows tilts of pi0, mixtures with new items, and the narrowest bounds."
            )
            return cls(True, "logged", sentence)
        if by_item and not mapping.estimates:
            sentence = (
                f"{start} logged, as one propensity for each item (--pi0 logged), which allows "
                "tilts of pi0 and mixtures with new items."
            )
            return cls(True, "logged", sentence)
        kind = "; propensities are estimated, so certificates are of the kind estimated"
        sentence = (
            f"{start} chosen, by the propensity of the item that was shown (--pi0 chosen), which "
            f"allows mixtures of pi0 with other policies{kind * (mapping.estimates)}; "
            "where pi0 can be called, name it with --pi0, which allows everything."
        )
        return cls(True, "chosen", sentence)


@dataclass(frozen=True)
class CheckReport:
    """What `depsue check` says about logs.

    Args:
        source: what was checked.
        facts: what the logs hold.
        findings: what is wrong, errors first.
        notes: what a rule settled, and what could not be tested.
        mapping: which column was taken for what.
        outlook: whether a campaign can be created on them, and how pi0 is known in it.
    """

    source: str
    facts: LogFacts
    findings: tuple[CheckFinding, ...]
    notes: tuple[str, ...]
    mapping: LogMapping
    outlook: Outlook

    @property
    def verdict(self) -> str:
        """`ready`, `ready, with warnings` or `not usable`."""
        kinds = {finding.severity for finding in self.findings}
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
            "facts": {label: _finite(value) for label, value in self.facts.labelled()},
            "findings": [asdict(finding) for finding in self.findings],
            "notes": list(self.notes),
            "assumptions": list(self.mapping.assumptions),
            "mapping": asdict(self.mapping),
            "outlook": asdict(self.outlook),
        }

    def __str__(self) -> str:
        facts = list(self.facts.labelled())
        width = max((len(label) for label, _ in facts), default=0)
        lines = [f"{self.source}: {self.verdict}", ""]
        lines += [f"  {label:{width}}  {_shown(value)}" for label, value in facts]
        for finding in self.findings:
            lines += ["", f"{finding.severity} ({finding.name}): {finding.rule}."]
            lines += [f"  found: {finding.value}"] if finding.value else []
            lines += [f"  cure:  {finding.cure}"] if finding.cure else []
        sections = (("Notes", self.notes), ("Assumed", self.mapping.assumptions))
        for heading, sentences in sections:
            if sentences:
                lines += ["", heading, *(f"  - {sentence}" for sentence in sentences)]
        return "\n".join([*lines, "", self.outlook.sentence])


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else "not known" if value is None else str(value)
