"""What may be assumed beyond the logs, by name: the rungs of the ladder of assumptions.

The strictest rung, which is the default, assumes nothing: new items count as worthless until they
have been shown. Each `Rung` is an assumption that somebody declares by name, knowing what it says.
It buys novelty, may cost a share of delta, stands on the certificate, which is then of another
kind, and the next round tests it. What was refuted stays refuted.

`PROPENSITIES_WITHIN` goes the other way: it assumes less of the logs, and costs novelty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from depsue.errors import is_real, require, short

RungName = Literal["propensities-within", "exchangeable", "proxies", "groups"]
PROPENSITIES_WITHIN, EXCHANGEABLE, PROXIES, GROUPS = (
    "propensities-within",
    "exchangeable",
    "proxies",
    "groups",
)
NAMES = (PROPENSITIES_WITHIN, EXCHANGEABLE, PROXIES, GROUPS)
NOTHING = "nothing"
"""What the strictest rung is called in tables."""
EXCHANGEABLE_SHARE = 0.5
"""The share of delta that "exchangeable" costs: it pays for the draw of the items."""
MOST_FACTOR = 100.0
EXAMPLES = (
    "propensities-within=1.2, exchangeable, exchangeable:genre, groups:category, proxies:like=0.02"
)


@dataclass(frozen=True)
class Rung:
    """One assumption, declared by name.

    Args:
        name: which.
        column: of the items file: the strata within which new items are drawn like old ones (""
            is one stratum); the id of the old item that a new one is at least as good as; or the
            group within which the choice has no direct effect.
        factor: Gamma >= 1: each logged propensity is right within this factor.
        epsilon: by how much the mean reward of a new item may fall below that of its proxy.
    """

    name: RungName
    column: str = ""
    factor: float = 1.0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        require(
            self.name in NAMES,
            f"an assumption is one of {', '.join(NAMES)}",
            found=short(self.name),
            cure=f"for example {EXAMPLES}",
        )
        require(
            isinstance(self.column, str)
            and (bool(self.column) or self.name in (PROPENSITIES_WITHIN, EXCHANGEABLE)),
            f"{self.name} names a column of the items file",
            found=short(self.column),
            cure="proxies:COLUMN has the id of an old item in each row of a new one; "
            "groups:COLUMN has the group of every item",
        )
        require(
            not self.column or self.name != PROPENSITIES_WITHIN,
            "propensities-within takes a factor and no column",
            found=short(self.column),
            cure="propensities-within=1.2",
        )
        require(
            is_real(self.factor)
            and 1 <= self.factor <= MOST_FACTOR
            and (self.factor == 1 or self.name == PROPENSITIES_WITHIN),
            f"propensities-within has a factor in [1, {MOST_FACTOR:g}], and no other rung has one",
            found=f"{self.name} with the factor {short(self.factor)}",
            cure="propensities-within=1.2 says that each is right within 20%",
        )
        require(
            is_real(self.epsilon)
            and 0 <= self.epsilon < float("inf")
            and (self.epsilon == 0 or self.name == PROXIES),
            "the allowance (epsilon) of proxies is a mean reward >= 0; no other rung has one",
            found=f"{self.name} with the allowance {short(self.epsilon)}",
            cure="proxies:like=0.02",
        )

    @classmethod
    def parsed(cls, text: str) -> Rung:
        """The rung that a command or a mapping names: NAME, NAME:COLUMN, NAME=NUMBER, or both."""
        named, _, number = str(text).partition("=")
        name, _, column = named.partition(":")
        value = None
        if number:
            try:
                value = float(number)
            except ValueError:
                value = float("nan")
        require(
            value is None or value == value,
            "what follows = in an assumption is a number",
            found=short(text),
            cure=f"for example {EXAMPLES}",
        )
        require(
            value is not None or name != PROPENSITIES_WITHIN,
            "propensities-within says within which factor propensities are right",
            found=short(text),
            cure="propensities-within=1.2",
        )
        require(
            value is None or name in (PROPENSITIES_WITHIN, PROXIES),
            f"{name} takes no number",
            found=short(text),
            cure=f"for example {EXAMPLES}",
        )
        own = cast(RungName, name.strip())
        if own == PROPENSITIES_WITHIN:
            return cls(own, column.strip(), factor=float(value or 0.0))
        return cls(own, column.strip(), epsilon=float(value or 0.0))

    def __str__(self) -> str:
        """As it is declared."""
        column = f":{self.column}" if self.column else ""
        if self.name == PROPENSITIES_WITHIN:
            return f"{self.name}={self.factor:g}"
        return f"{self.name}{column}" + (f"={self.epsilon:g}" if self.epsilon else "")

    @property
    def share_of_delta(self) -> float:
        """The share of delta that it costs in every round that rests on it."""
        return EXCHANGEABLE_SHARE if self.name == EXCHANGEABLE else 0.0

    @property
    def about_items(self) -> bool:
        """Whether it says something of new items, and not of propensities."""
        return self.name != PROPENSITIES_WITHIN

    @property
    def in_words(self) -> str:
        """What it says, for anybody."""
        if self.name == PROPENSITIES_WITHIN:
            return f"if each logged propensity is right within a factor of {self.factor:g}"
        if self.name == EXCHANGEABLE:
            like = f" of the same {self.column}" if self.column else ""
            return f"if new items are drawn like old ones{like}"
        if self.name == PROXIES:
            less = f", less {self.epsilon:g}" if self.epsilon else ""
            return (
                f"if each new item earns at least what the old item named in its {self.column} "
                f"earns, for everybody{less}"
            )
        return f"if items of the same {self.column} earn the same, for everybody"

    @property
    def words(self) -> tuple[str, ...]:
        """What a certificate says that it rests on."""
        if self.name == PROPENSITIES_WITHIN:
            return (
                f"each logged propensity is right within a factor of {self.factor:g}: it lies "
                f"between 1/{self.factor:g} and {self.factor:g} times the probability with which "
                "its action was drawn",
            )
        if self.name == EXCHANGEABLE:
            within = f", within each {self.column}" if self.column else ""
            return (
                f"new items are drawn like old ones{within}: what an item is worth, and its "
                "features, are independent draws from one distribution for old and new",
                "old items are all that were drawn then, those that were never shown included: not "
                "the survivors of a choice by what they earned",
                "features of items, and what strata they are in, were known before any of them "
                "was shown",
            )
        if self.name == PROXIES:
            return (
                f"each new item earns at least what the old item named in its {self.column} earns, "
                f"less {self.epsilon:g}, in every context; a new item without one counts as worth "
                "nothing",
            )
        return (
            f"within one {self.column} the choice of the item has no effect on the reward, given "
            "the context: a new item is worth what its group is",
        )


def checked_rungs(rungs: Iterable[Rung | str] | Rung | str) -> tuple[Rung, ...]:
    """The declared rungs, in the order in which rounds fall back; words are read as declared."""
    several: Sequence[object]
    several = [rungs] if isinstance(rungs, Rung | str) else list(rungs)
    require(
        all(isinstance(rung, Rung | str) for rung in several),
        "assumptions are declared by name",
        found=short(several),
        cure=f"for example {EXAMPLES}",
    )
    named = [rung for rung in several if rung != NOTHING]
    checked = tuple(r if isinstance(r, Rung) else Rung.parsed(str(r)) for r in named)
    names = [str(rung) for rung in checked]
    require(
        len(set(names)) == len(names),
        "an assumption is declared once",
        found=short(names),
        cure="leave one of them out",
    )
    factors = [rung for rung in checked if not rung.about_items]
    require(
        not factors or len(checked) == 1,
        "propensities-within stands alone: the other rungs rest on propensities that are right",
        found=short(names),
        cure="declare one or the other",
    )
    return checked


def columns_of(rungs: Iterable[Rung]) -> tuple[str, ...]:
    """Columns of the items file that rungs speak of."""
    return tuple(dict.fromkeys(rung.column for rung in rungs if rung.column))
