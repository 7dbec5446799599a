"""Three folds: rows to learn from, rows to choose by, and rows that one verdict reads.

The fold rule is `depsue.data.folds.fold_of`: a hash of the unit, or of the row's number, and of the
campaign's name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import overload

from depsue.data.logs import LoggedData
from depsue.data.partitions import LogStream, StreamedFold
from depsue.errors import require, short

FRACTIONS = (0.35, 0.05, 0.6)
"""Learn, select, certify: the certificate is what needs rows."""


@dataclass(frozen=True, eq=False)
class Folds:
    """The three folds of one round's logs, by a hash of unit (or row) and campaign.

    There is no seed: the same logs in the same campaign always fall the same way.

    Args:
        learn: fits the reward model.
        select: chooses candidates, constants and the bound; the only fold that planning reads.
        certify: read by one verdict.
        data: SHA-256 of all rows.
        campaign: its name, the salt of the split.
        fractions: the three shares.
        round: which deployment produced the rows.
    """

    learn: LoggedData
    select: LoggedData
    certify: LoggedData = field(repr=False)
    data: str
    campaign: str
    fractions: tuple[float, float, float]
    round: int


@dataclass(frozen=True, eq=False)
class StreamedFolds:
    """The same of a `LogStream`: folds whose rows are read a partition at a time."""

    learn: StreamedFold
    select: StreamedFold
    certify: StreamedFold
    data: str
    campaign: str
    fractions: tuple[float, float, float]
    round: int


@overload
def three_folds(
    logs: LoggedData, campaign: str, fractions: tuple[float, float, float] = FRACTIONS
) -> Folds: ...
@overload
def three_folds(
    logs: LogStream, campaign: str, fractions: tuple[float, float, float] = FRACTIONS
) -> StreamedFolds: ...
def three_folds(
    logs: LoggedData | LogStream,
    campaign: str,
    fractions: tuple[float, float, float] = FRACTIONS,
) -> Folds | StreamedFolds:
    """Split one round's logs: the same rows fall the same way in memory and as a stream.

    Args:
        logs: rows of one round.
        campaign: the name of the campaign.
        fractions: shares of learn, select and certify.
    """
    require(
        isinstance(campaign, str) and bool(campaign.strip()),
        "a campaign needs a name",
        found=short(campaign),
        cure="name it once: its folds depend on the name, and a second name is a second look",
    )
    require(
        len(fractions) == 3,
        "there are three folds: learn, select, certify",
        found=short(fractions),
        cure=f"the default is {FRACTIONS}",
    )
    rounds = _rounds(logs)
    require(
        len(rounds) == 1,
        "a verdict is about the logs of one round",
        found=f"rounds {rounds}",
        cure="certify on the newest round; the rows of earlier ones are reused for training",
    )
    salt, (a, b, c) = f"depsue campaign {campaign}", fractions
    shares = (a, b, c)  # a list would do as well, and is recorded as a tuple
    if isinstance(logs, LogStream):
        learn, select, certify = logs.split(shares, salt=salt)
        return StreamedFolds(learn, select, certify, logs.hash, campaign, shares, rounds[0])
    first, second, third = logs.split(shares, salt=salt)
    return Folds(first, second, third, logs.hash, campaign, shares, rounds[0])


def _rounds(logs: LoggedData | LogStream) -> list[int]:
    """The distinct rounds, in order."""
    if isinstance(logs, LogStream):
        return list(logs.facts.rounds)
    return [0] if logs.round is None else sorted({int(number) for number in logs.round.tolist()})
