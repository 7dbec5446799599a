"""The mapping of a log: which column is what, and what the team declares about it.

`LogMapping` is the mapping in memory; `read_mapping` and `write_mapping` keep it in a TOML file::

    r_max = 1.0                  # the largest possible reward: declared, never read off the data
    position = 1                 # where there are several positions: the one that is kept
    window = "7d"                # how long after a decision its reward is complete (s, m, h, d)
    assume = ["exchangeable:genre"]  # what is assumed beyond the logs: `depsue.assumptions`

    [columns]
    action = "item_id"
    reward = "click"
    propensity = "propensity_score"
    time = "timestamp"           # also: unit, decision, round, position
    segments = ["country"]
    candidates = "shortlist"     # where each request has its own: a list of ids in each row
    probabilities = "pi0_of_all" # pi0's probabilities of the candidates, in their order
    by_pi0 = "p_of_pi0"          # p where pi0 chose the item itself, 0 where another policy did
    version = "ranker"           # which version of pi0 was in production

    [pages]                      # where a page has several rows: `depsue.data.pages`
    page = "page_id"             # position is then the slot that is decided
    reward = "page_clicks"       # the page's; without it the sum over its rows

    [candidates]
    given_as = "index"           # lists hold places in the items file, from 0; "id" unless told

    [contexts]
    numeric = ["age"]
    categorical.device = ["app", "web"]    # one column for each value; others count as none

    [reward]                     # what is used is min(reward + shift, cap)
    shift = 5.0
    cap = 100.0

    [other_rewards]              # further reward columns, each with its r_max
    revenue = 100.0

    [propensities]               # where none were logged
    estimated = true
    groups = ["device"]
    smoothing = 1.0

    [propensities]               # or: where they were, and the rows of some items were dropped
    kept = 0.9375                # p is divided by the share of decisions that were kept

    [propensities]               # or: they are shares of so many simulated draws of pi0
    simulated = 200000

    [propensities]               # of a later round: pi0 took this share of its decisions at random
    holdout = 0.05               # p is (1 - holdout) the policy's probability + holdout pi0's
"""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from depsue.data.checks import require_r_max
from depsue.data.lists import GivenAs
from depsue.errors import FileError, is_real, is_whole, require, require_path, short
from depsue.files import write_synced

MOST_COLUMNS = 10_000
MOST_BYTES = 16 << 20
"""Of the TOML file."""
ROLES = (
    *("action", "reward", "propensity", "unit", "time", "decision", "round", "position"),
    *("candidates", "probabilities", "by_pi0", "version"),
)
SLOT_REWARD = "slot_reward"
"""The column of what the decided slot of a page earned by itself."""
LISTS = ("candidates", "probabilities")
"""Roles whose columns hold a list in each row."""
EXAMPLE = "see the documentation of depsue check; depsue check LOGS --write-mapping writes one"


@dataclass(frozen=True)
class LogMapping:
    """Which column of the logs is what, and what was declared of them.

    Args:
        action, reward: columns.
        propensity: column; None where there is none, and then `estimated` must say how.
        unit, time, round, position: columns, or None.
        decision: column of ids that each name one decision, or None.
        candidates: column of the lists of what could be shown, or None: then every item could.
        probabilities: column of pi0's probabilities of the candidates, in their order, or None.
        by_pi0: column of pi0's probability of the row's item where pi0 chose it itself, 0 where
            another policy did; None where pi0 drew every row, or can be asked.
        version: column that says which version of pi0 was in production, or None.
        r_max: the largest possible reward, after shift and cap.
        given_as: whether candidates are listed by their ids, or by their places in the items file.
        keep_position: the position whose rows are kept, where there are several; of pages, the
            slot that is decided.
        pages: which rows form a page, where a row is a slot and not a decision of its own.
        numeric: context columns of numbers.
        categorical: context columns of text, each with the values that get a column of their own.
        other_rewards: further reward columns, each with its r_max.
        segments: columns that tell segments apart.
        shift, cap: the reward used is min(reward + shift, cap).
        estimated: how propensities are estimated, or None.
        window: seconds after a decision until its reward is complete; None if not declared. Rows
            that are younger are left out when a round's rows are taken in.
        until: rows of a later time are not read: the moment when the round was taken in, less the
            window. Recorded then, so that the same rows are read again later.
        assume: what is assumed beyond the logs, by name: `depsue.assumptions` reads it.
        simulated: where propensities are no exact probabilities, but shares of so many simulated
            draws of pi0: certificates are then of the kind for estimated ones. None where they are.
        kept: where the rows of some items were dropped from the logs, the share of decisions that
            is left: the items left were then drawn with p / kept. 1 if no rows were dropped.
        holdout: of a round that served a policy: the share of decisions that pi0 took, drawn apart
            from everything else; their rows are among these, and each row has the propensity of
            the mixture. 0 if all rows are the policy's own.
    """

    action: str
    reward: str
    propensity: str | None = None
    unit: str | None = None
    time: str | None = None
    decision: str | None = None
    round: str | None = None
    position: str | None = None
    candidates: str | None = None
    probabilities: str | None = None
    by_pi0: str | None = None
    version: str | None = None
    given_as: GivenAs = "id"
    r_max: float = 1.0
    keep_position: int | str | None = None
    pages: PageColumns | None = None
    numeric: tuple[str, ...] = ()
    categorical: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    other_rewards: Mapping[str, float] = field(default_factory=dict)
    segments: tuple[str, ...] = ()
    shift: float = 0.0
    cap: float | None = None
    estimated: EstimatedPropensities | None = None
    simulated: int | None = None
    kept: float = 1.0
    holdout: float = 0.0
    window: float | None = None
    until: datetime | None = None
    assume: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_r_max(self.r_max)
        if self.pages is not None:
            object.__setattr__(
                self, "other_rewards", {SLOT_REWARD: self.r_max, **self.other_rewards}
            )
            whole = str(self.keep_position).lstrip("-").isdecimal()
            require(
                self.position is not None and self.keep_position is not None and whole,
                "pages need the position of each row, and the slot that is decided, by numbers",
                found=f"position = {short(self.keep_position)}, column {short(self.position)}",
                cure='position = 2, and position = "slot" in [columns]',
            )
            require(
                self.shift == 0,
                "the reward of a page is not shifted: what its slots earn is part of it",
                found=f"shift {self.shift:g}",
                cure="log rewards that are at least 0",
            )
        for limit in self.other_rewards.values():
            require_r_max(limit)
        finite = all(is_real(x) and math.isfinite(x) for x in (self.shift, self.cap or 0.0))
        found = f"shift {short(self.shift)}, cap {short(self.cap)}"
        require(finite, "shift and cap must be numbers", found=found, cure=EXAMPLE)
        require(
            self.cap is None or 0 < self.cap <= self.r_max,
            "the cap must lie in (0, r_max]: no reward may exceed r_max",
            found=f"cap {self.cap}, r_max {self.r_max:g}",
            cure="r_max = cap",
        )
        ok = self.window is None or (is_real(self.window) and 0 < self.window <= LONGEST_WINDOW)
        rule = "the reward window must lie between 0 s and a year"
        require(ok, rule, found=short(self.window), cure='window = "7d", or in seconds')
        require(
            (self.window is None and self.until is None) or self.time is not None,
            "a reward window needs the time of each row",
            found="no column of times in the mapping",
            cure='time = "..." in [columns]',
        )
        e = self.estimated
        require(
            e is None or (is_real(e.smoothing) and 0 < e.smoothing < math.inf),
            "smoothing must be a positive number",
            found=short(e and e.smoothing),
            cure="smoothing = 1.0",
        )
        require(
            e is None or self.propensity is None,
            "propensities are a column or estimated, not both",
            found=f"propensity = {self.propensity!r}, and [propensities] estimated = true",
            cure="drop one of them",
        )
        ok = self.simulated is None or (is_whole(self.simulated) and self.simulated >= 1)
        require(
            ok and (self.propensity is not None or self.simulated is None),
            "simulated is the number of draws behind each logged propensity",
            found=f"{short(self.simulated)}, and propensity = {self.propensity!r}",
            cure="simulated = 200000 where each is a share of so many draws",
        )
        require(
            is_real(self.kept)
            and 0 < self.kept <= 1
            and (self.propensity is not None or self.kept == 1),
            "kept must lie in (0, 1], and goes with propensities that were logged",
            found=f"{short(self.kept)}, and propensity = {self.propensity!r}",
            cure="kept = 0.9375 where a uniform choice of 80 items has lost the rows of 5",
        )
        require(
            is_real(self.holdout)
            and 0 <= self.holdout < 1
            and (self.propensity is not None or self.holdout == 0),
            "the holdout is a share in [0, 1), and goes with propensities that were logged",
            found=f"{short(self.holdout)}, and propensity = {self.propensity!r}",
            cure="holdout = 0.05 where pi0 took 5% of the decisions, and p is the mixture's",
        )
        require(
            self.probabilities is None or self.candidates is not None,
            "pi0's probabilities go with the candidates that they are of",
            found=f"probabilities = {self.probabilities!r}, and no candidates",
            cure='candidates = "..." in [columns]: the column of lists of ids',
        )
        require(
            self.given_as in ("id", "index"),
            "candidates are given as ids or as indices",
            found=short(self.given_as),
            cure='[candidates] given_as = "index"',
        )
        count = len(self.columns)
        rule, cure = f"a mapping names {MOST_COLUMNS:,} columns at most", "leave some out"
        require(count <= MOST_COLUMNS, rule, found=f"{count:,}", cure=cure)
        segments = set(self.segments)
        times = Counter(name for name in self.role_columns if name not in segments)
        twice = sorted(name for name, n in times.items() if n > 1)
        rule = "a column has one role"
        require(not twice, rule, found=short(twice), cure="name each column once")

    def taken_in(self, now: datetime | None = None) -> LogMapping:
        """The mapping of rows that are taken in now: those younger than the window are left out.

        Args:
            now: the time, with its zone; None is the present.
        """
        if self.window is None:
            return replace(self, until=None)
        now = datetime.now(UTC) if now is None else now.astimezone(UTC)
        return replace(self, until=now - timedelta(seconds=self.window))

    @property
    def estimates(self) -> bool:
        """Whether propensities are estimates, of whichever kind."""
        return self.estimated is not None or self.simulated is not None

    @property
    def role_columns(self) -> list[str]:
        """Columns by role, contexts after the others; segments and groups may be in both."""
        roles = [getattr(self, role) for role in ROLES]
        named = [*roles, *self.other_rewards, *self.numeric, *self.categorical]
        return [name for name in named if name is not None]

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        groups = self.estimated.groups if self.estimated else ()
        return tuple(dict.fromkeys([*self.role_columns, *self.segments, *groups]))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions that a certificate from these logs adds to its own, a sentence each."""
        sentences = []
        if self.cap is not None or self.shift:
            used = f"{self.reward} + {self.shift:g}" if self.shift else self.reward
            used = f"min({used}, {self.cap:g})" if self.cap is not None else used
            more = ", of which an item never shown earns 0" if self.shift else ""
            sentences.append(
                f"rewards are {used}{more}: floor, bound and value are in this reward, not in "
                f"{self.reward} itself"
            )
        if self.estimated is not None:
            by = " and ".join(self.estimated.groups)
            where = f" in each group of {by}" if by else " over all rows"
            sentences.append(
                f"propensities were estimated, on rows that certify nothing: the frequency of each "
                f"action{where}, with {self.estimated.smoothing:g} added to each count; nothing is "
                "guaranteed if the logging policy looked at anything else, or changed, and the "
                "error of the estimates is not paid for"
            )
        if self.simulated is not None:
            sentences.append(
                f"propensities are Monte Carlo estimates, shares of {self.simulated:,} simulated "
                "draws of pi0: those of rarely shown items are rough, and the error of the "
                "estimates is not paid for"
            )
        if self.kept < 1:
            sentences.append(
                f"rows were dropped by the item they show, and in every context the same share of "
                f"decisions, {self.kept:g}, was kept: pi0 is what is left of it without these "
                f"items, and propensities are {self.propensity} / {self.kept:g}"
            )
        if self.holdout > 0:
            sentences.append(
                f"the rows are of the served policy and of its holdout together: pi0 took a share "
                f"of {self.holdout:g} of the decisions, drawn apart from everything else and the "
                "same throughout the round, and propensities are those of this mixture"
            )
        if self.window is not None:
            sentences.append(
                f"a reward is complete {in_units(self.window)} after its decision, as was "
                "declared; younger rows were left out"
            )
        if self.pages is not None:
            sentences.append(
                f"a row is a page and its reward is the page's; slot {self.keep_position} is "
                "decided, with probabilities that are conditional on what stands above, and the "
                "slots below are filled by the same mechanism in these logs and in serving"
            )
        elif self.keep_position is not None:
            sentences.append(f"only rows with {self.position} = {self.keep_position} are used")
        return tuple(sentences)


@dataclass(frozen=True)
class PageColumns:
    """Which rows form a page.

    Args:
        page: column of the page's id.
        reward: column of the page's reward, the same in all of its rows; None is the sum.
    """

    page: str
    reward: str | None = None


@dataclass(frozen=True)
class EstimatedPropensities:
    """Propensities that were never logged, estimated as frequencies.

    The estimate is (rows of action a in its group + s) / (rows of the group + s A), on a fixed
    share of the units (or rows), which then certify nothing.

    Args:
        groups: the columns whose values form the groups; () for one group of all rows.
        smoothing: s.
    """

    groups: tuple[str, ...] = ()
    smoothing: float = 1.0


LONGEST_WINDOW = 3.2e7
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(window: object) -> float:
    """A length of time in seconds: a number, or text such as 90s, 30m, 36h or 7d."""
    if isinstance(window, str):
        text = window.strip().lower()
        number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
        try:
            return float(number) * unit
        except ValueError:
            pass
    require(
        is_real(window),
        "a length of time is a number of seconds, or a number with s, m, h or d",
        found=short(window),
        cure="7d is seven days",
    )
    return float(window)  # type: ignore[arg-type]


def in_units(seconds: float) -> str:
    """A length of time in the largest unit that it is a whole number of."""
    unit = next((name for name in "dhm" if seconds % UNITS[name] == 0), "s")
    return f"{seconds / UNITS[unit]:g} {unit}"


SECTIONS = (
    *("columns", "candidates", "pages", "contexts", "reward", "other_rewards", "propensities"),
)


def to_toml(mapping: LogMapping) -> str:
    """The file that `read_mapping` reads."""
    lines = [
        "# Which column of the logs is what; depsue commands read it with --mapping.",
        f"r_max = {float(mapping.r_max)!r}  # the largest possible reward: declare it",
    ]
    if mapping.keep_position is not None:
        lines.append(f"position = {_toml(mapping.keep_position)}")
    if mapping.window is not None:
        lines.append(f"window = {float(mapping.window)!r}  # seconds until a reward is complete")
    if mapping.until is not None:
        until = mapping.until.astimezone(UTC).isoformat(timespec="microseconds")
        lines.append(f"until = {until}  # rows after it were not taken in")
    lines += [f"assume = {_toml(list(mapping.assume))}"] if mapping.assume else []
    lines += ["", "[columns]"]
    roles = [(role, getattr(mapping, role)) for role in ROLES]
    lines += [f"{role} = {_toml(name)}" for role, name in roles if name is not None]
    lines += [f"segments = {_toml(list(mapping.segments))}"] if mapping.segments else []
    if mapping.pages is not None:
        lines += ["", "[pages]", f"page = {_toml(mapping.pages.page)}"]
        lines += [f"reward = {_toml(mapping.pages.reward)}"] if mapping.pages.reward else []
    if mapping.given_as != "id":
        lines += ["", "[candidates]", f"given_as = {_toml(mapping.given_as)}"]
    lines += ["", "[contexts]", f"numeric = {_toml(list(mapping.numeric))}"]
    for name, values in mapping.categorical.items():
        lines.append(f"categorical.{_toml(name)} = {_toml(list(values))}")
    if mapping.shift or mapping.cap is not None:
        lines += ["", "[reward]", f"shift = {float(mapping.shift)!r}"]
        lines += [f"cap = {float(mapping.cap)!r}"] if mapping.cap is not None else []
    if mapping.other_rewards:
        lines += ["", "[other_rewards]"]
        lines += [f"{_toml(name)} = {float(x)!r}" for name, x in mapping.other_rewards.items()]
    if mapping.estimated is not None:
        lines += ["", "[propensities]", "estimated = true"]
        lines.append(f"groups = {_toml(list(mapping.estimated.groups))}")
        lines.append(f"smoothing = {float(mapping.estimated.smoothing)!r}")
    shares: dict[str, float] = {"kept": mapping.kept} if mapping.kept < 1 else {}
    shares |= {"holdout": mapping.holdout} if mapping.holdout > 0 else {}
    lines += ["", "[propensities]"] if shares or mapping.simulated else []
    lines += [f"{name} = {float(share)!r}" for name, share in shares.items()]
    lines += [f"simulated = {mapping.simulated}"] if mapping.simulated else []
    return "\n".join(lines) + "\n"


def read_mapping(path: str | Path) -> LogMapping:
    """The mapping in a TOML file that names all of it."""
    return mapping_of(mapping_table(path))


def mapping_table(path: str | Path) -> dict[str, Any]:
    """The tables of a mapping's TOML file, as they stand there."""
    rule = "a mapping must be a TOML file that can be read"
    require_path(path, "a mapping")
    try:
        size = Path(path).stat().st_size
        found, cure = f"{size:,} in {path}", "declare fewer columns and values"
        limit = f"a mapping may have {MOST_BYTES:,} bytes at most"
        require(size <= MOST_BYTES, limit, found=found, cure=cure, error=FileError)
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise FileError(rule, found=f"{path}: {short(str(problem))}", cure=EXAMPLE) from problem


def write_text(text: str, path: str | Path, *, force: bool = False) -> None:
    """Write a mapping's text, whole or not at all; a file that is there is kept unless `force`."""
    place = Path(path)
    rule = "a mapping that is there is not overwritten"
    require(force or not place.exists(), rule, found=place, cure="--force", error=FileError)
    try:
        write_synced(place, text.encode())
    except OSError as problem:
        rule, cure = "the mapping must be writable", "give another path"
        raise FileError(rule, found=f"{place}: {problem}", cure=cure) from problem


def write_mapping(mapping: LogMapping, path: str | Path, *, force: bool = False) -> None:
    """Write the TOML file, whole or not at all; one that is there is kept unless `force`."""
    write_text(to_toml(mapping), path, force=force)


def mapping_of(table: Mapping[str, Any]) -> LogMapping:
    """The mapping out of the tables of a TOML file; what is not known is refused."""
    names = ("guess", "r_max", "position", "window", "until", "assume", *SECTIONS)
    _known(table, names, "the mapping")
    cure = "it is guessed by commands that read logs: give the file to depsue check"
    require(table.get("guess", False) is False, "a mapping here is whole", found="guess", cure=cure)
    part = {name: table.get(name, {}) for name in SECTIONS}
    for name, value in part.items():
        found = f"{name} = {short(value)}"
        require(isinstance(value, dict), f"[{name}] must be a table", found=found, cure=EXAMPLE)
    columns, contexts, estimate = part["columns"], part["contexts"], part["propensities"]
    _known(columns, (*ROLES, "segments"), "[columns]")
    _known(contexts, ("numeric", "categorical"), "[contexts]")
    _known(part["candidates"], ("given_as",), "[candidates]")
    _known(part["pages"], ("page", "reward"), "[pages]")
    _known(part["reward"], ("shift", "cap"), "[reward]")
    known = ("estimated", "groups", "smoothing", "simulated", "kept", "holdout")
    _known(estimate, known, "[propensities]")
    for role in ("action", "reward"):
        rule = f"[columns] must name the column of the {role}"
        cure = f"{EXAMPLE}; or guess = true above [columns], and what is not written is guessed"
        require(role in columns, rule, found=short(sorted(columns)), cure=cure)
    for role in ROLES:
        found = f"{role} = {short(columns.get(role))}"
        ok = isinstance(columns.get(role, ""), str)
        require(ok, "a column is named by text", found=found, cure=EXAMPLE)
    categorical = contexts.get("categorical", {})
    ok = isinstance(categorical, dict)
    require(ok, "categorical must be a table", found=short(categorical), cure=EXAMPLE)
    keep, flag = table.get("position"), estimate.get("estimated", False)
    ok = keep is None or is_whole(keep) or isinstance(keep, str)
    require(ok, "position must be a number or text", found=short(keep), cure="position = 1")
    window, until = table.get("window"), table.get("until")
    ok = until is None or (isinstance(until, datetime) and until.tzinfo is not None)
    cure = "leave it out: it is recorded when a round is taken in"
    require(ok, "until must be a time with its zone", found=short(until), cure=cure)
    ok = isinstance(flag, bool)
    require(ok, "estimated must be true or false", found=short(flag), cure="estimated = true")
    return LogMapping(
        **{role: columns.get(role) for role in ROLES},
        given_as=part["candidates"].get("given_as", "id"),
        r_max=table.get("r_max"),  # type: ignore[arg-type]
        keep_position=keep,
        pages=_page_columns(part["pages"]) if part["pages"] else None,
        numeric=_texts(contexts.get("numeric", []), "numeric"),
        categorical={name: _texts(values, name) for name, values in categorical.items()},
        other_rewards=part["other_rewards"],
        segments=_texts(columns.get("segments", []), "segments"),
        shift=part["reward"].get("shift", 0.0),
        cap=part["reward"].get("cap"),
        estimated=_estimated(estimate) if flag else None,
        simulated=estimate.get("simulated"),
        kept=estimate.get("kept", 1.0),
        holdout=estimate.get("holdout", 0.0),
        window=None if window is None else seconds_of(window),
        until=until,
        assume=_texts(table.get("assume", []), "assume"),
    )


def _page_columns(table: Mapping[str, Any]) -> PageColumns:
    page, reward = table.get("page"), table.get("reward")
    ok = isinstance(page, str) and (reward is None or isinstance(reward, str))
    found, cure = f"page = {short(page)}, reward = {short(reward)}", 'page = "page_id"'
    require(ok, "[pages] names the columns of the page and of its reward", found=found, cure=cure)
    return PageColumns(str(page), reward)


def _estimated(table: Mapping[str, Any]) -> EstimatedPropensities:
    return EstimatedPropensities(
        _texts(table.get("groups", []), "groups"), table.get("smoothing", 1.0)
    )


def _known(table: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(table) - set(names))
    rule = f"{where} may hold {', '.join(names)}"
    require(not unknown, rule, found=short(unknown), cure=EXAMPLE)


def _texts(values: Any, name: str) -> tuple[str, ...]:
    ok = isinstance(values, list) and all(isinstance(value, str) for value in values)
    ok = ok and len(set(values)) == len(values)
    require(ok, f"{name} must be a list of distinct texts", found=short(values), cure=EXAMPLE)
    return tuple(values)


def _toml(value: Any) -> str:
    """Text, a whole number or a list of texts; JSON's text is TOML's but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
