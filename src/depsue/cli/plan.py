"""`depsue plan`: how much novelty the logs are likely to allow, or how many rows a wish needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from depsue.errors import require

if TYPE_CHECKING:
    from depsue.learners.room import Aim

SPREAD = 0.3


def plan(
    logs: Annotated[
        Path | None, typer.Argument(help="Parquet, CSV or TSV: one row per decision.")
    ] = None,
    items: Annotated[
        Path | None, typer.Argument(help="Parquet, CSV or TSV: one row per item.")
    ] = None,
    floor: Annotated[float, typer.Option(help="Share of pi0's value that must be kept.")] = 0.95,
    delta: Annotated[float, typer.Option(help="How often the certificate may err.")] = 0.05,
    objective: Annotated[
        str, typer.Option(help="most-novelty, most-value, or a weight of novelty beside value.")
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

    aim = Aim(floor, delta, max_novelty, r_max)
    if logs is None or items is None:
        require(
            logs is None and rows_for is not None and reward_rate is not None,
            "plan needs LOGS and ITEMS, or --rows-for and --reward-rate",
            found=f"LOGS {logs}, ITEMS {items}, --rows-for {rows_for}, --reward-rate {reward_rate}",
            cure="depsue plan logs.parquet items.parquet, or depsue plan --rows-for 0.1 "
            "--reward-rate 0.05",
        )
        _before_logs(float(rows_for or 0), float(reward_rate or 0), spread or SPREAD, aim)
        return
    require(
        reward_rate is None and spread is None,
        "--reward-rate and --spread are for planning without logs",
        found=f"--reward-rate {reward_rate}, --spread {spread}",
        cure="leave them out: the logs say it",
    )
    from depsue.cli.plan_report import frontier_table, sections, times_table, write_plan
    from depsue.cli.tables import show
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
    columns = LogColumns(action, reward, propensity, _names(context or ""), unit)
    rows, notes = read_logs(logs, found.catalogue, columns, r_max=r_max)
    pi0 = None if logging_policy is None else load(logging_policy)
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
    given = {"floor": floor, "delta": delta, "objective": objective, "campaign": campaign}
    page = write_plan(result, aim, said, folder, given)
    show(frontier_table(result, aim))
    show(times_table(result))
    pick = result.pick
    typer.echo(f"\nPick: novelty {pick.novelty:.1%} with {pick.policy}; {result.why}.")
    for heading, sentences in sections(result, said):
        if sentences:
            typer.echo(f"\n{heading}")
            for sentence in sentences:
                typer.echo(f"  - {sentence}")
    typer.echo(f"\nThe plot: {folder / 'frontier.png'}; the page: {page}")


def _before_logs(wish: float, rate: float, spread: float, aim: Aim) -> None:
    """The table of rows that wished levels need, under assumptions."""
    from rich.table import Table

    from depsue.cli.tables import show
    from depsue.learners.assumed import SHARE, Assumed, rows_before_logs
    from depsue.learners.planned import about_rows

    spreads = [one for one in (spread / 2, spread, 2 * spread) if one <= 2]
    levels = sorted({wish, *(x for x in (0.06, 0.1, 0.15, 0.2) if aim.certain < x <= aim.most)})
    table = Table(
        title=f"Logged rows that a novelty needs, at a reward rate of {rate:g}", min_width=70
    )
    table.add_column("novelty", justify="right")
    for one in spreads:
        table.add_column(f"spread {one:g}", justify="right")
    for level in levels:
        cells = []
        for one in spreads:
            rows = rows_before_logs(level, Assumed(rate, one), aim)
            cells.append("none: it is certain" if rows == 0 else about_rows(rows))
        table.add_row(f"{level:.1%}", *cells, style="bold" if level == wish else "")
    show(table)
    rows = rows_before_logs(wish, Assumed(rate, spread), aim)
    answer = f"about {about_rows(rows)} rows are needed"
    if rows == 0:
        answer = "no rows are needed: beside pi0 it is certain"
    elif rows is None:
        answer = "no number of rows would do at this spread"
    typer.echo(f"\nFor a novelty of {wish:.1%}, {answer}, if all of this holds:")
    for sentence in (
        f"the floor is {aim.ratio:g} of pi0's value and delta {aim.delta:g}",
        f"rewards are 0 or {aim.r_max:g}, and {rate:.2%} of pi0's decisions earn one",
        f"spread {spread:g}: among the items that pi0 shows someone, one that is a standard "
        f"deviation better earns {2.718281828459045**spread:.2f} times as much, and a reward model "
        "can tell",
        "pi0 shows every such item often enough for its share to be changed freely",
        "new items count as worth nothing until they have been shown",
        f"{SHARE:.0%} of the rows certify, propensities are right, rows are independent",
    ):
        typer.echo(f"  - {sentence}")


def _objective(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
