"""Steps of a small campaign that the conformance suites of ledgers take."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from depsue.certificates import FRACTIONS
from depsue.data.identity import LogSketch
from depsue.errors import ConfigError, DepsueError
from depsue.ledger import ErasedPart, Ledger


def sha(name: str) -> str:
    """A hash to try things with."""
    return hashlib.sha256(name.encode()).hexdigest()


@dataclass(frozen=True)
class SmallCertificate:
    """As much of a certificate as a ledger looks at."""

    campaign: str
    data: str
    attempt: int
    policy: str | None
    passed: bool

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class PooledCertificate(SmallCertificate):
    """One that pooled rows of some families."""

    families: tuple[str, ...] = ()

    def to_json(self) -> str:
        """As JSON, with what was pooled as certificates have it."""
        strata = [{"registration": {"family": family}} for family in self.families]
        return json.dumps({"campaign": self.campaign, "strata": strata})


def start(ledger: Ledger, campaign: str = "spring", *, retries: bool = False) -> None:
    """A campaign of two rounds, with rows of round 0 and two candidates for round 1."""
    ledger.create_campaign(campaign, rounds=2, settings={}, retries=retries, by="ana")
    observe(ledger, campaign, 0, "d0")
    for policy in ("p1", "p2"):
        record(ledger, campaign, 1, policy)


def observe(
    ledger: Ledger,
    campaign: str,
    round: int,
    data: str,
    by: str = "ana",
    *,
    sketch: LogSketch | None = None,
    fractions: tuple[float, float, float] = FRACTIONS,
    fresh: bool = False,
) -> None:
    """Observe ten rows, or as many as a sketch is of."""
    rows = 10 if sketch is None else sketch.rows
    ledger.observe(
        campaign,
        round,
        data_hash=sha(data),
        rows=rows,
        source="a.parquet",
        summary={},
        by=by,
        sketch=sketch,
        fractions=fractions,
        fresh=fresh,
    )


def observe_more(
    ledger: Ledger, campaign: str, round: int, data: str, sketch: LogSketch | None = None
) -> None:
    """Replace what a round observed by more rows."""
    rows = 20 if sketch is None else sketch.rows
    ledger.observe_more(
        campaign,
        round,
        data_hash=sha(data),
        rows=rows,
        source="b.parquet",
        summary={},
        by="ana",
        sketch=sketch,
    )


def begin_erasure(ledger: Ledger, round: int, data: str, left: str, unit: str = "u") -> None:
    """Record that two rows of a round of spring are taken out, one of them of the certify fold."""
    part = ErasedPart(round, sha(data), sha(left), 8, 2, (3, 5), 2, 1, {"rows": 8})
    ledger.begin_erasure("spring", unit=sha(unit), parts=[part], by="ana")


def record(ledger: Ledger, campaign: str, round: int, policy: str, delta: float = 0.05) -> None:
    """Record a candidate."""
    ledger.record_candidate(
        campaign,
        round,
        policy_hash=sha(policy),
        folder=policy,
        trained_on=[sha("d0")],
        fixed={"delta": delta},
        by="ana",
    )


def finish(
    ledger: Ledger, campaign: str, round: int, policy: str, data: str, passed: bool
) -> SmallCertificate:
    """Read the rows and write a verdict."""
    attempt = ledger.begin_read(campaign, round, sha(data), sha(policy), "ana")
    certificate = SmallCertificate(campaign, sha(data), attempt, sha(policy), passed)
    ledger.finish_read(campaign, round, sha(policy), certificate, "ana")
    return certificate


@contextmanager
def refused(words: str, error: type[DepsueError] = ConfigError) -> Iterator[None]:
    """Fail unless the block is refused with all of these words, which `|` parts."""
    try:
        yield
    except error as problem:
        missing = [word for word in words.split("|") if word not in str(problem)]
        assert not missing, f"the message does not say {missing}: {problem}"
    else:
        raise AssertionError(f"expected {error.__name__} about '{words}'")
