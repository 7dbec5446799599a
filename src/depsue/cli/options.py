"""Options that several commands have: each is declared once, and what it means is said here."""

from __future__ import annotations

import getpass
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from depsue import defaults
from depsue.errors import FileError, require, short

if TYPE_CHECKING:
    from depsue.campaigns import Campaign
    from depsue.certificates import UnitRows
    from depsue.promises import Promise

Name = Annotated[str, typer.Argument(help="Name of the campaign.")]
Home = Annotated[Path, typer.Option(envvar="DEPSUE_HOME", help="Folder of all campaigns.")]
HOME = Path("campaigns")
Address = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        envvar="DEPSUE_LEDGER",
        show_envvar=True,
        help="Address of the ledger; default ledger.db in the folder, or postgresql://...",
    ),
]
StoreAddress = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="DEPSUE_STORE",
        help="Decisions of depsue serve; default decisions.db in the campaign's folder.",
    ),
]
By = Annotated[
    str | None, typer.Option(envvar="DEPSUE_BY", help="Who does it; default: the login name.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]

LOGS_HELP = "A file, a folder, or a pattern in quotes: Parquet, CSV, Arrow, dsjson."
ITEMS_HELP = "Parquet, CSV or Arrow: one row per item."
MappingFile = Annotated[
    Path | None, typer.Option(help="TOML: which column is what; default: a guess.")
]
RMax = Annotated[
    float | None, typer.Option(help="The largest possible reward; default: the mapping's, or 1.")
]
Kept = Annotated[
    float | None,
    typer.Option(help="Share of decisions kept, where the rows of some items were dropped."),
]
IdColumn = Annotated[
    str | None, typer.Option(help="Column of the items' ids; default id, action or item_id.")
]
Novel = Annotated[
    str | None, typer.Option(help="Ids of new items, with commas; default: column novel.")
]

ShareFloor = Annotated[
    float | None,
    typer.Option(help=f"Share of pi0's value that must be kept; default {defaults.FLOOR:g}."),
]
FloorValue = Annotated[
    float | None, typer.Option(help="Instead: a mean reward that must be reached.")
]
Promises = Annotated[
    Path | None,
    typer.Option(help="Instead: a TOML file of several floors; see the documentation."),
]
Delta = Annotated[float, typer.Option(help="How often a certificate may err.")]
Per = Annotated[
    str, typer.Option(help="What delta is for: each deployment, or the whole campaign.")
]
Rounds = Annotated[int, typer.Option(min=1, max=1000, help="K, how many deployments.")]
NoDrift = Annotated[
    bool, typer.Option("--no-drift", help="Declare that pi0's value does not change.")
]
Reserve = Annotated[
    float | None,
    typer.Option(
        help="With --no-drift and 3 rounds or more: share of the certifying rows of each served "
        f"round that is kept for later verdicts; default {defaults.RESERVE:g}."
    ),
]
Assume = Annotated[
    list[str] | None,
    typer.Option(
        help="What is assumed beyond the logs, by name, strictest last; again for several: "
        "exchangeable, exchangeable:genre, proxies:like=0.02, groups:category, "
        "propensities-within=1.2; default: the mapping's, else nothing."
    ),
]
ObjectiveText = Annotated[
    str, typer.Option(help="most-novelty, most-value, balanced, or a weight of novelty.")
]
Window = Annotated[
    str | None,
    typer.Option(
        help="How long after a decision its reward is complete, such as 36h or 7d; younger rows "
        "are left out."
    ),
]
Units = Annotated[
    str | None,
    typer.Option(
        help="Where a unit has several rows: all-rows (their number does not depend on what it was "
        "shown) or first-row (the promise is about the first row of each)."
    ),
]
Least = Annotated[
    float, typer.Option(help="Each new item gets at least this share of what new items are shown.")
]
Most = Annotated[
    float, typer.Option(help="Each new item gets at most this share of what new items are shown.")
]
Impressions = Annotated[
    int, typer.Option(min=1, help="Discoverable corpus: items shown at least so often.")
]
Rewards = Annotated[
    int, typer.Option(min=0, help="Discoverable corpus: and with at least so many rewards.")
]
MaxNovelty = Annotated[float, typer.Option(help="No more novelty than this.")]

KEYS = ("name", "floor", "floor_value", "reward", "r_max", "segment")
EXAMPLE = '[[promise]] name = "revenue", floor = 0.95, reward = "revenue", r_max = 100.0'


Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        envvar="DEPSUE_MODEL",
        help="A function of yours that the campaign calls: module:function, or "
        "NAME=module:function. It is imported, so name your own only.",
    ),
]


def promises_of(
    floor: float | None, floor_value: float | None, path: Path | None
) -> tuple[Promise, ...]:
    """What must hold: one floor from the command line, or those of a file.

    Args:
        floor: --floor, a share of pi0's value.
        floor_value: --floor-value, a mean reward.
        path: --promises, a TOML file of several floors.
    """
    from depsue.promises import Floor, Promise

    floors = {"--floor": floor, "--floor-value": floor_value, "--promises": path}
    used = [name for name, value in floors.items() if value is not None]
    require(
        len(used) <= 1,
        "floors come from one of --floor, --floor-value and --promises",
        found=" and ".join(used),
        cure="write them all into the file of --promises",
    )
    if path is not None:
        return tuple(_promise(table, path) for table in _tables(path))
    if floor_value is not None:
        return (Promise(Floor(None, floor_value)),)
    return (Promise(Floor() if floor is None else Floor(floor)),)


def objective_of(text: str) -> str | float:
    """An objective by its name (most-novelty), or a weight of novelty."""
    try:
        return float(text)
    except ValueError:
        return text.replace("-", " ")


def window_of(text: str | None) -> float | None:
    """The reward window in seconds."""
    from depsue.data.mapping import seconds_of

    return None if text is None else seconds_of(text)


def units_of(text: str | None) -> UnitRows | None:
    """What --units says of units with several rows; None is nothing."""
    words = None if text is None else text.replace("-", " ")
    require(
        words in (None, "all rows", "first row"),
        "--units is all-rows or first-row",
        found=short(text),
        cure="first-row promises the first row of each unit; all-rows declares that their number "
        "does not depend on what a unit was shown",
    )
    return cast("UnitRows | None", words)


def names_of(text: str) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def who(by: str | None) -> str:
    """Who acts: as --by says, or the login name."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


def _tables(path: Path) -> list[dict[str, Any]]:
    """The [[promise]] tables of a TOML file."""
    cure = f"for example: {EXAMPLE}"
    try:
        text = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        found = f"{path}: {problem}"
        raise FileError("--promises must be a TOML file", found=found, cure=cure) from problem
    tables = text.get("promise")
    ok = isinstance(tables, list) and len(tables) > 0 and set(text) == {"promise"}
    rule = "--promises must hold tables [[promise]] and nothing else"
    require(ok and all(isinstance(table, dict) for table in tables or ()), rule,
            found=f"{sorted(text)} in {path}", cure=cure)  # fmt: skip
    return list(tables or ())


def _promise(table: dict[str, Any], path: Path) -> Promise:
    """One promise from its table."""
    from depsue.promises import Floor, Promise

    unknown = sorted(set(table) - set(KEYS))
    require(
        not unknown and isinstance(table.get("name"), str) and ("floor" in table) != (
            "floor_value" in table
        ),
        "a promise has a name, a floor or a floor_value, and may have reward, r_max and segment",
        found=f"{short(table)} in {path}",
        cure=f"for example: {EXAMPLE}",
    )  # fmt: skip
    segment, reward = table.get("segment"), table.get("reward")
    ok = segment is None or (isinstance(segment, dict) and set(segment) == {"column", "value"})
    cure = 'segment = { column = "country", value = "SE" }'
    require(ok, "a segment is a column and a value", found=short(segment), cure=cure)
    ok = reward is None or isinstance(reward, str)
    require(ok, "reward must be the name of a column", found=short(reward), cure=EXAMPLE)
    return Promise(
        Floor(table.get("floor"), table.get("floor_value")),
        table["name"],
        reward,
        table.get("r_max"),
        None if segment is None else (str(segment["column"]), segment["value"]),
    )


def require_yes(as_json: bool) -> None:
    """Refuse to ask where nobody can answer."""
    rule = "--json does not ask"
    require(not as_json, rule, found="--json without --yes", cure="add --yes")


def ask(question: str) -> None:
    """Go on only after a yes."""
    if not typer.confirm(question, err=True):
        typer.echo("depsue: nothing was changed", err=True)
        raise typer.Exit(1)


def open_campaign(
    name: str,
    home: Path,
    ledger: str | None,
    by: str | None,
    models: list[str] | None = None,
) -> Campaign:
    """The campaign that the options of a command name."""
    from depsue.campaigns import Campaign, open_home
    from depsue.scores import imported_models

    outside = imported_models(models or [])
    return Campaign(open_home(home, ledger), home, name, by=who(by), outside=outside)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C in long work is one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("depsue: interrupted; the same command goes on", err=True)
        raise typer.Exit(130) from None
