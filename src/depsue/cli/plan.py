"""`depsue plan`: how much novelty the logs are likely to allow, or how many rows a wish needs."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from depsue.errors import FileError, PolicyError, require, short

if TYPE_CHECKING:
    from depsue.certificates import Promise
    from depsue.data.logs import LoggedData
    from depsue.protocols import Policy

FLOOR, SPREAD = 0.95, 0.3
KEYS = ("name", "floor", "floor_value", "reward", "r_max", "segment")
EXAMPLE = '[[promise]] name = "revenue", floor = 0.95, reward = "revenue", r_max = 100.0'


def plan(
    logs: Annotated[
        Path | None, typer.Argument(help="Parquet, CSV or TSV: one row per decision.")
    ] = None,
    items: Annotated[
        Path | None, typer.Argument(help="Parquet, CSV or TSV: one row per item.")
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option(help=f"Share of pi0's value that must be kept; default {FLOOR}."),
    ] = None,
    floor_value: Annotated[
        float | None, typer.Option(help="Instead: a mean reward that must be reached.")
    ] = None,
    promises: Annotated[
        Path | None,
        typer.Option(help="Instead: a TOML file of several floors; see the documentation."),
    ] = None,
    delta: Annotated[float, typer.Option(help="How often the certificate may err.")] = 0.05,
    objective: Annotated[
        str, typer.Option(help="most-novelty, most-value, balanced, or a weight of novelty.")
    ] = "most-novelty",
    rows_for: Annotated[
        float | None, typer.Option(help="A wished novelty: how many rows does it need?")
    ] = None,
    reward_rate: Annotated[
        float | None, typer.Option(help="Without logs: assumed mean reward / r_max under pi0.")
    ] = None,
    spread: Annotated[
        float | None,
        typer.Option(help=f"Without logs: assumed deviation of log reward; default {SPREAD}."),
    ] = None,
    action: Annotated[str, typer.Option(help="Column of the shown item.")] = "action",
    reward: Annotated[str, typer.Option(help="Column of the reward.")] = "reward",
    propensity: Annotated[str, typer.Option(help="Column of its probability.")] = "propensity",
    context: Annotated[
        str | None,
        typer.Option(help="Context columns, with commas; user_* is a prefix; default: numeric."),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Column of the unit (a user).")] = None,
    r_max: Annotated[float, typer.Option(help="The largest possible reward.")] = 1.0,
    id: Annotated[
        str | None, typer.Option(help="Column of the items' ids; default id, action or item_id.")
    ] = None,
    novel: Annotated[
        str | None, typer.Option(help="Ids of new items, with commas; default: column novel.")
    ] = None,
    logging_policy: Annotated[
        Path | None, typer.Option(help="Folder of pi0, saved with depsue.save: plans better.")
    ] = None,
    campaign: Annotated[
        str, typer.Option(help="Name of the campaign; the folds depend on it.")
    ] = "exploration",
    max_novelty: Annotated[float, typer.Option(help="No more novelty than this.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the reward model.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for plan.html, frontier.png, frontier.svg, plan.json.")
    ] = Path("plan-report"),
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """How much can new items be shown, and what is missing for more? From logs alone.

    LOGS and ITEMS are files. The certifying rows are not read: a plan promises nothing, and
    leaves the certificate intact. Without files, --rows-for with --reward-rate says how many
    rows a wished novelty needs.
    """
    from depsue.learners.room import Aim

    kept = _promises(floor, floor_value, promises)
    aim = Aim(kept, delta, max_novelty, r_max)
    if logs is None or items is None:
        require(
            logs is None and promises is None and None not in (rows_for, reward_rate),
            "plan needs LOGS and ITEMS, or --rows-for and --reward-rate",
            found=f"LOGS {logs}, ITEMS {items}, --rows-for {rows_for}, --reward-rate "
            f"{reward_rate}, --promises {promises}",
            cure="depsue plan logs.parquet items.parquet, or depsue plan --rows-for 0.1 "
            "--reward-rate 0.05",
        )
        from depsue.cli.plan_report import show_before_logs

        spread = SPREAD if spread is None else spread
        show_before_logs(float(rows_for or 0), float(reward_rate or 0), spread, aim)
        return
    require(
        reward_rate is None and spread is None,
        "--reward-rate and --spread are for planning without logs",
        found=f"--reward-rate {reward_rate}, --spread {spread}",
        cure="leave them out: the logs say it",
    )
    from depsue.cli.plan_report import show_plan, write_plan
    from depsue.data.files import LogColumns, read_actions, read_items, read_logs
    from depsue.experiments.pages import writable_folder
    from depsue.learners.frontier import plan as planned
    from depsue.learners.planned import PlanSettings
    from depsue.policies import load
    from depsue.progress import bars

    found = read_items(
        items,
        id=id,
        novel=None if novel is None else _names(novel),
        logged=read_actions(logs, action),
    )
    settings = PlanSettings(
        aim, _objective(objective), rows_for, campaign=campaign, described=found.described
    )
    names = _names(context or "") or _features(logs, kept, [action, reward, propensity, unit])
    columns = LogColumns(action, reward, propensity, names, unit)
    rows, notes = read_logs(logs, found.catalogue, columns, r_max=r_max)
    rows, kept = _with_columns(rows, logs, kept)
    settings = replace(settings, aim=replace(aim, promises=kept))
    pi0 = None if logging_policy is None else _answering(load(logging_policy), rows)
    folder = writable_folder(out)
    try:
        with bars(not quiet) as watch:
            result = planned(rows, settings, logging_policy=pi0, seed=seed, watch=watch)
    except KeyboardInterrupt:
        typer.echo("depsue: interrupted; no plan was written", err=True)
        raise typer.Exit(130) from None
    said = [*found.notes, *notes]
    if pi0 is None:
        said.append("pi0 cannot be called: fewer candidates, less novelty; see --logging-policy")
    given = {
        "promises": [one.to_dict() for one in kept],
        "delta": delta,
        "objective": objective,
        "campaign": campaign,
    }
    page = write_plan(result, settings.aim, said, folder, given)
    show_plan(result, settings.aim, said)
    typer.echo(f"\nThe plot: {folder / 'frontier.png'}; the page: {page}")


def _promises(
    floor: float | None, floor_value: float | None, path: Path | None
) -> tuple[Promise, ...]:
    """What must hold: one floor from the command line, or those of a file."""
    from depsue.certificates import Floor, Promise

    given = {"--floor": floor, "--floor-value": floor_value, "--promises": path}
    used = [name for name, value in given.items() if value is not None]
    require(
        len(used) <= 1,
        "floors come from one of --floor, --floor-value and --promises",
        found=" and ".join(used),
        cure="write them all into the file of --promises",
    )
    if path is not None:
        return tuple(_promise(one, path) for one in _tables(path))
    if floor_value is not None:
        return (Promise(Floor(None, floor_value)),)
    return (Promise(Floor(FLOOR if floor is None else floor)),)


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
    require(ok and all(isinstance(one, dict) for one in tables or ()), rule,
            found=f"{sorted(text)} in {path}", cure=cure)  # fmt: skip
    return list(tables or ())


def _promise(table: dict[str, Any], path: Path) -> Promise:
    """One promise from its table."""
    from depsue.certificates import Floor, Promise

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


def _features(path: Path, promises: Sequence[Promise], roles: Sequence[str | None]) -> Any:
    """The context columns where none are named: rewards of promises are none; () if no need."""
    rewards = {one.reward for one in promises if one.reward is not None}
    if not rewards:
        return ()
    from depsue.data.tables import is_numeric, names_in, scanned, tried, unnamed

    frame = scanned(path)
    head = tried(lambda: frame.head(0).collect(), path)
    taken = {*rewards, *roles}
    free = [name for name in names_in(frame, path) if name not in taken and not unnamed(name)]
    return tuple(name for name in free if is_numeric(head[name]))


def _with_columns(
    rows: LoggedData, path: Path, promises: tuple[Promise, ...]
) -> tuple[LoggedData, tuple[Promise, ...]]:
    """The logs with the columns that promises name; numbers in segments as the column has them."""
    from depsue.data.checks import plain_column
    from depsue.data.files import MOST_ROWS
    from depsue.data.tables import collected, names_in, require_columns, scanned

    wanted = [name for one in promises for name in (one.reward, (one.segment or (None,))[0])]
    names = [*dict.fromkeys(name for name in wanted if name is not None)]
    if not names:
        return rows, promises
    frame = scanned(path)
    require_columns(names, names_in(frame, path), path, "--promises")
    table = collected(frame, names, path, MOST_ROWS)
    columns = {name: plain_column(table[name], name) for name in names}
    return replace(rows, columns=columns), promises


def _answering(policy: Policy, rows: LoggedData) -> Policy:
    """The policy, if it can be asked about the logs' contexts."""
    try:
        next(iter(policy.distributions(rows.contexts[:2])))
    except (ValueError, IndexError) as problem:
        raise PolicyError(
            "the logging policy must answer about the logs' contexts",
            found=f"contexts of {rows.contexts.shape[1]} features; {short(str(problem))}",
            cure="name the columns that it was made for, in its order, with --context",
        ) from problem
    return policy


def _objective(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text.replace("-", " ")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
