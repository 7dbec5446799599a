"""Three folds: rows to learn from, rows to choose by, and rows that one verdict reads."""

from __future__ import annotations

from dataclasses import dataclass, field

from depsue.data.logs import LoggedData
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


def three_folds(
    logs: LoggedData, campaign: str, fractions: tuple[float, float, float] = FRACTIONS
) -> Folds:
    """Split one round's logs.

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
    rounds = {int(r) for r in set(logs.round.tolist())} if logs.round is not None else {0}
    require(
        len(rounds) == 1,
        "a verdict is about the logs of one round",
        found=f"rounds {sorted(rounds)}",
        cure="certify on the newest round; earlier ones serve learning",
    )
    learn, select, certify = logs.split(fractions, salt=f"depsue campaign {campaign}")
    shares = (fractions[0], fractions[1], fractions[2])
    return Folds(learn, select, certify, logs.hash, campaign, shares, rounds.pop())
