"""`depsue check` and `depsue plan`: are these logs fit for use, and how much do they allow?

The libraries that learn are loaded when a command runs, so that `depsue --help` does not wait.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from depsue import defaults
from depsue.cli.options import (
    HOME,
    ITEMS_HELP,
    LOGS_HELP,
    Address,
    Assume,
    Delta,
    FloorValue,
    Home,
    IdColumn,
    Kept,
    MappingFile,
    MaxNovelty,
    NoDrift,
    Novel,
    ObjectiveText,
    Per,
    Promises,
    Quiet,
    RMax,
    Rounds,
    ShareFloor,
    Units,
    Window,
    names_of,
    objective_of,
    promises_of,
    units_of,
    window_of,
)
from depsue.cli.tables import show
from depsue.errors import ConfigError, PolicyError, require, short
from depsue.plural import counted

if TYPE_CHECKING:
    from depsue.certificates import Registration
    from depsue.data.logs import LoggedData
    from depsue.data.mapping import LogMapping
    from depsue.exploration import ExploreSettings, Plan
    from depsue.protocols import Policy

NOT_USABLE = 3
"""Exit code of logs that are not fit for use."""


WISHES = (0.06, 0.1, 0.15, 0.2)
"""Novelties in the table of rows that are needed, beside the wished one."""


def check(
    logs: Annotated[str, typer.Argument(help=LOGS_HELP)],
    items: Annotated[Path | None, typer.Argument(help=ITEMS_HELP)] = None,
    mapping: MappingFile = None,
    write_mapping: Annotated[
        Path | None, typer.Option(help="Write the mapping that was used to this file.")
    ] = None,
    write_items: Annotated[
        Path | None,
        typer.Option(help="Write the items that VW's dsjson describes to this Parquet file."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite these files.")] = False,
    position: Annotated[
        str | None, typer.Option(help="Keep the rows of one position, where there are several.")
    ] = None,
    r_max: RMax = None,
    estimate_propensities: Annotated[
        bool,
        typer.Option("--estimate-propensities", help="Where none were logged: take frequencies."),
    ] = False,
    kept: Kept = None,
    window: Window = None,
    id: IdColumn = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Are these logs fit for use? Says what they hold, what is wrong, and how to mend it.

    The verdict is `ready`, `ready, with warnings` (exit code 0 for both) or `not usable` (exit code
    3). Bad usage, and files that cannot be read, end with exit code 2.
    """
    from depsue.check import check_logs, guess_mapping, read_or_guess
    from depsue.check.guess import skeleton
    from depsue.data.mapping import write_mapping as write_toml
    from depsue.data.mapping import write_text
    from depsue.data.reading import open_source
    from depsue.data.writing import write_described

    source = open_source(logs)
    guesses: tuple[str, ...] = ()
    if mapping is not None:
        columns, guesses = read_or_guess(source, mapping, r_max)
    else:
        try:
            columns, guesses = guess_mapping(source, r_max)
        except ConfigError as problem:
            if write_mapping is None:
                raise
            write_text(skeleton(source), write_mapping, force=force)
            raise ConfigError(
                problem.rule,
                found=f"{problem.found}; a mapping to fill in was written to {write_mapping}",
                cure=f"write the names of columns in it, then --mapping {write_mapping}",
            ) from problem
    if r_max is not None:
        columns = replace(columns, r_max=r_max)
    if kept is not None:
        columns = replace(columns, kept=kept)
    if window is not None:
        columns = replace(columns, window=window_of(window))
    whole = position is not None and position.lstrip("-").isdecimal()
    report = check_logs(
        source,
        items,
        columns,
        position=int(position) if position is not None and whole else position,
        estimate=estimate_propensities,
        id=id,
    )
    report = replace(report, notes=(*guesses, *report.notes))
    if write_mapping is not None:
        write_toml(report.mapping, write_mapping, force=force)
        report = replace(
            report, notes=(*report.notes, f"the mapping was written to {write_mapping}")
        )
    if write_items is not None:
        count = write_described(source, write_items, force=force)
        written = f"{counted(count, 'item')} written to {write_items}: mark the new ones in it"
        report = replace(report, notes=(*report.notes, written))
    typer.echo(json.dumps(report.as_json(), indent=1) if as_json else str(report))
    if not report.usable:
        raise typer.Exit(NOT_USABLE)


def pages(
    logs: Annotated[str, typer.Argument(help=LOGS_HELP)],
    items: Annotated[Path, typer.Argument(help=ITEMS_HELP)],
    spill: Annotated[
        float, typer.Option(help="Share of the rest of a page that a new item may cost: declared.")
    ],
    reads: Annotated[
        Path, typer.Option(help="File that remembers which pages were read; made if missing.")
    ],
    mapping: MappingFile = None,
    floor: ShareFloor = None,
    delta: Delta = defaults.DELTA,
    highest: Annotated[float, typer.Option(help="The largest share that is tested.")] = 0.5,
    retries: Annotated[
        bool, typer.Option("--retries", help="Allow attempt j at delta / 2^j on the same pages.")
    ] = False,
    id: IdColumn = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> None:
    """How often may one slot of your pages show anything? The spill-over test.

    Reads pages of your current policy: the mapping says which rows form a page and which slot is
    decided ([pages], docs: pages). Prints the largest share nu of pages in which that slot may show
    any item, a new one say, while the floor is kept.
    """
    from depsue.certificates import Reads, SpillOver, certify_spill_over
    from depsue.codec import encode
    from depsue.data.items import read_items
    from depsue.data.mapping import read_mapping
    from depsue.data.reading import open_source, read_mapped

    require(
        mapping is not None,
        "pages need a mapping that says which rows form a page",
        found="no --mapping",
        cure='--mapping m.toml, with [pages] page = "...", and position = the slot that is decided',
    )
    columns = read_mapping(mapping)  # type: ignore[arg-type]
    require(
        columns.pages is not None,
        "the mapping must say which rows form a page",
        found=f"no [pages] in {mapping}",
        cure='[pages] page = "page_id"',
    )
    rules = SpillOver(
        spill, rho=defaults.FLOOR if floor is None else floor, delta=delta, highest=highest
    )
    rows = read_mapped(open_source(logs), columns, read_items(items, id=id).catalogue)
    registry = Reads(reads, retries=retries)
    certificate = certify_spill_over(registry.folds(rows), rules, registry)
    typer.echo(encode(certificate, indent=1) if as_json else str(certificate))


def plan(
    logs: Annotated[str | None, typer.Argument(help=LOGS_HELP)] = None,
    items: Annotated[Path | None, typer.Argument(help=ITEMS_HELP)] = None,
    mapping: Annotated[
        Path | None,
        typer.Option(help="TOML: which column is what; default: the options below, or a guess."),
    ] = None,
    floor: ShareFloor = None,
    floor_value: FloorValue = None,
    promises: Promises = None,
    delta: Delta = defaults.DELTA,
    per: Per = "deployment",
    rounds: Rounds = defaults.ROUNDS,
    no_drift: NoDrift = False,
    units: Units = None,
    assume: Assume = None,
    objective: ObjectiveText = defaults.OBJECTIVE,
    rows_for: Annotated[
        float | None, typer.Option(help="A wished novelty: how many rows does it need?")
    ] = None,
    reward_rate: Annotated[
        float | None, typer.Option(help="Without logs: assumed mean reward / r_max under pi0.")
    ] = None,
    spread: Annotated[
        float | None,
        typer.Option(help=f"Without logs: deviation of log reward; default {defaults.SPREAD:g}."),
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Column of the shown item; default action.")
    ] = None,
    reward: Annotated[
        str | None, typer.Option(help="Column of the reward; default reward.")
    ] = None,
    propensity: Annotated[
        str | None, typer.Option(help="Column of its probability; default propensity.")
    ] = None,
    kept: Kept = None,
    context: Annotated[
        str | None,
        typer.Option(help="Context columns, with commas; user_* is a prefix; default: numeric."),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Column of the unit (a user).")] = None,
    decision: Annotated[
        str | None, typer.Option(help="Column of the decision's id; default decision, if there.")
    ] = None,
    r_max: RMax = None,
    id: IdColumn = None,
    novel: Novel = None,
    pi0: Annotated[
        str | None,
        typer.Option(
            "--pi0",
            "--logging-policy",
            help="pi0: a saved folder, model.onnx, a table, uniform, logged, chosen.",
        ),
    ] = None,
    campaign: Annotated[str, typer.Option(help="Name of the campaign.")] = "exploration",
    home: Home = HOME,
    ledger: Address = None,
    max_novelty: MaxNovelty = defaults.MAX_NOVELTY,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the reward model.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for plan.html, frontier.png, frontier.svg, plan.json.")
    ] = Path("plan-report"),
    quiet: Quiet = False,
) -> None:
    """How much can new items be shown, and what is missing for more? From logs alone.

    LOGS are files, ITEMS is one. A plan promises nothing. Where the ledger of --home knows the
    rows, no certifying row of their campaign is read. Without files, --rows-for with --reward-rate
    says how many rows a wished novelty needs.
    """
    from depsue.assumptions import checked_rungs, columns_of
    from depsue.exploration.plan import require_plannable
    from depsue.exploration.settings import ExploreSettings

    settings = ExploreSettings(
        promises=promises_of(floor, floor_value, promises),
        delta=delta,
        per=per,  # type: ignore[arg-type]
        objective=objective_of(objective),
        deployments=rounds,
        max_novelty=max_novelty,
        no_drift=no_drift,
        units=units_of(units),
        assume=checked_rungs(assume or ()),
    )
    if logs is None or items is None:
        require(
            logs is None and promises is None and None not in (rows_for, reward_rate),
            "plan needs LOGS and ITEMS, or --rows-for and --reward-rate",
            found=f"LOGS {logs}, ITEMS {items}, --rows-for {rows_for}, --reward-rate "
            f"{reward_rate}, --promises {promises}",
            cure="depsue plan logs.parquet items.parquet, or depsue plan --rows-for 0.1 "
            "--reward-rate 0.05",
        )
        largest = 1.0 if r_max is None else r_max
        require_plannable(settings, largest)
        show_before_logs(
            float(rows_for or 0),
            float(reward_rate or 0),
            defaults.SPREAD if spread is None else spread,
            settings,
            largest,
        )
        return
    require(
        reward_rate is None and spread is None,
        "--reward-rate and --spread are for planning without logs",
        found=f"--reward-rate {reward_rate}, --spread {spread}",
        cure="leave them out: the logs say it",
    )
    from depsue.cli.columns import ColumnOptions, mapped_by, require_first_round
    from depsue.data.items import read_items
    from depsue.data.reading import mapped, open_source, read_mapped, words_on_younger
    from depsue.exploration.plan import plan as planned
    from depsue.exploration.rows_needed import require_wish
    from depsue.files import writable_folder
    from depsue.pages.plan_report import write_plan
    from depsue.progress import bars

    options = ColumnOptions(
        action, reward, propensity, unit, decision, names_of(context or ""), r_max, kept, mapping
    )
    source, roles, column_notes = mapped_by(open_source(logs), options, settings.promises)
    roles = roles.taken_in()
    column_notes = (*column_notes, *words_on_younger(source, roles))
    require_plannable(settings, roles.r_max)
    require_first_round(source, roles)
    shown = source.collect(mapped(source, roles).select("action").unique())["action"]
    if not settings.assume and assume is None:
        settings = replace(settings, assume=checked_rungs(roles.assume))
    listed = read_items(
        items,
        id=id,
        novel=None if novel is None else names_of(novel),
        logged=shown,
        labels=columns_of(settings.assume),
    )
    if rows_for is not None:
        require_wish(rows_for, settings)
    rows = read_mapped(source, roles, listed.catalogue)
    registration = _registered(rows, home, ledger)
    if registration is None and (owner := _registered_otherwise(rows, home, ledger)) is not None:
        # read as their campaign reads them, so that its folds are known
        require(
            not options.named and mapping is None,
            "a plan reads no certifying row of a campaign, so it reads the campaign's logs as the "
            "campaign does",
            found=f"rows of campaign {owner.name!r} with other columns",
            cure=f"--mapping {owner.mapping_file}, or leave the columns out",
        )
        roles = owner.mapping
        rows = read_mapped(source, roles, listed.catalogue)
        registration = _registered(rows, home, ledger)
        require(
            registration is not None,
            "a plan reads no certifying row of a campaign, and here it cannot tell which certify",
            found=f"some of the rows of campaign {owner.name!r}, in another order or file",
            cure="give the campaign's own logs",
        )
        column_notes = (*column_notes, f"columns are read as campaign {owner.name!r} reads them")
    callable_pi0 = None if pi0 is None else _answering(_named(pi0, rows, roles), rows)
    folder = writable_folder(out)
    try:
        with bars(not quiet) as watch:
            result = planned(
                rows,
                settings,
                registration=registration,
                campaign=campaign,
                wish=rows_for,
                logging_policy=callable_pi0,
                seed=seed,
                watch=watch,
            )
    except KeyboardInterrupt:
        typer.echo("depsue: interrupted; no plan was written", err=True)
        raise typer.Exit(130) from None
    result = replace(result, declared=roles.assumptions)
    notes = [*listed.notes, *column_notes]
    if registration is None:
        notes.append(
            "no ledger knows these rows yet: the plan read 40% of them, and a campaign on them may "
            "certify on some that were read. Decide by it whether a campaign is worth it, not on "
            "which terms; or create the campaign first: a plan with its --home then reads none of "
            "its certifying rows"
        )
    if pi0 is None and rows.candidates is None:
        notes.append("pi0 cannot be called: fewer candidates, less novelty; see --pi0")
    elif pi0 is None and rows.candidates is not None:
        known = "chosen" if rows.candidates.pi0 is None else "logged"
        notes.append(f"pi0 is taken for {known}, which is what the logs know of it; see --pi0")
    page = write_plan(result, notes, folder)
    show_plan(result, notes)
    typer.echo(f"\nThe plot: {folder / 'frontier.png'}; the page: {page}")


def _registered(rows: LoggedData, home: Path, address: str | None) -> Registration | None:
    """What the ledger of these campaigns registered the rows with; None if it knows them not."""
    from depsue.campaigns import LEDGER, open_home

    if address is None and not (home / LEDGER).exists():
        return None
    return open_home(home, address).registration_of(rows.sketch)


@dataclass(frozen=True)
class _Owner:
    """The campaign that registered rows: its name, and how it reads them."""

    name: str
    mapping: LogMapping
    mapping_file: Path


def _registered_otherwise(rows: LoggedData, home: Path, address: str | None) -> _Owner | None:
    """The campaign that knows the rows by what is not read here; None if no campaign does."""
    from depsue.campaigns import LEDGER, open_home
    from depsue.campaigns.files import CampaignFiles

    if address is None and not (home / LEDGER).exists():
        return None
    known = open_home(home, address).known_in(rows.sketch)
    if known is None:
        return None
    files = CampaignFiles(home, known[0])
    return _Owner(known[0], files.mapping(known[1]), files.round(known[1]) / "mapping.toml")


def show_plan(plan: Plan, notes: Sequence[str]) -> None:
    """All of a plan on the terminal."""
    from depsue.pages.plan_report import sections

    show(_frontier_table(plan))
    if len(plan.settings.promises) > 1:
        show(_promises_table(plan))
    show(_times_table(plan))
    pick = plan.pick
    typer.echo(f"\nPick: novelty {pick.novelty:.1%} with {pick.policy}; {plan.why}.")
    for heading, sentences in sections(plan, notes):
        if sentences:
            typer.echo(f"\n{heading}")
            for sentence in sentences:
                typer.echo(f"  - {sentence}")


def _frontier_table(plan: Plan) -> Table:
    from depsue.pages.plan_report import floor_words, headings, point_cells, shown_points

    delta = plan.settings.delta_of_deployment
    table = Table(
        title=f"Likely to be certified: {floor_words(plan.settings)}, delta {delta:g}",
        caption="values relative to V(pi0), as q-hat sees them; < is the pick",
    )
    for place, heading in enumerate(headings(plan.settings)):
        table.add_column(heading, justify="left" if place >= 4 else "right")
    for point in shown_points(plan):
        table.add_row(*point_cells(point, plan), style="bold" if point == plan.pick else "")
    return table


def _promises_table(plan: Plan) -> Table:
    from depsue.pages.plan_report import PROMISE_HEADINGS, promise_cells

    table = Table(
        title="The promises at the pick",
        caption="bounds relative to pi0's value in the promise; < is the one that binds",
    )
    for place, heading in enumerate(PROMISE_HEADINGS):
        table.add_column(heading, justify="left" if place < 2 else "right")
    for cells in promise_cells(plan):
        table.add_row(*cells)
    return table


def _times_table(plan: Plan) -> Table:
    table = Table(title="Novelty that more rows would buy", min_width=46)
    for heading in ("rows", "times", "novelty"):
        table.add_column(heading, justify="right")
    for more in plan.times:
        table.add_row(f"{more.rows:,}", f"{more.times}x", f"{more.novelty:.1%}")
    return table


def show_before_logs(
    wish: float, rate: float, spread: float, settings: ExploreSettings, r_max: float
) -> None:
    """The table of rows that wished levels need, under assumptions."""
    from depsue.exploration.rows_needed import CERTIFYING, Assumed, about_rows, rows_before_logs

    rows = rows_before_logs(wish, Assumed(rate, spread), settings, r_max)
    spreads = [width for width in (spread / 2, spread, 2 * spread) if width <= 2]
    certain, most = settings.certain, settings.max_novelty
    table = Table(
        title=f"Logged rows that a novelty needs, at a reward rate of {rate:g}", min_width=70
    )
    table.add_column("novelty", justify="right")
    for width in spreads:
        table.add_column(f"spread {width:g}", justify="right")
    for level in sorted({wish, *(x for x in WISHES if certain < x <= most)}):
        cells = []
        for width in spreads:
            needed = rows_before_logs(level, Assumed(rate, width), settings, r_max)
            cells.append("none: it is certain" if needed == 0 else about_rows(needed))
        table.add_row(f"{level:.1%}", *cells, style="bold" if level == wish else "")
    show(table)
    answer = f"about {about_rows(rows)} rows are needed"
    if rows == 0:
        answer = "no rows are needed: beside pi0 it is certain"
    elif rows is None:
        answer = "no number of rows would do at this spread"
    typer.echo(f"\nFor a novelty of {wish:.1%}, {answer}, if all of this holds:")
    for sentence in (
        f"the floor is {settings.promises[0].floor}, and delta {settings.delta_of_deployment:g}",
        f"rewards are 0 or {r_max:g}, and {rate:.2%} of pi0's decisions earn one",
        f"spread {spread:g}: among the items that pi0 shows someone, one that is a standard "
        f"deviation better earns {math.exp(spread):.2f} times as much, and a reward model can tell",
        "pi0 shows every such item often enough for its share to be changed freely",
        "new items count as worth nothing until they have been shown",
        f"{CERTIFYING:.0%} of the rows certify, propensities are right, rows are independent",
    ):
        typer.echo(f"  - {sentence}")


def _named(pi0: str, rows: LoggedData, mapping: LogMapping) -> Policy:
    """pi0 as it was named; a folder need not have been saved with the catalogue."""
    from depsue.policies import load, named_policy

    if Path(pi0).is_dir():
        return load(pi0)
    return named_policy(pi0, rows.catalogue, logs=rows, contexts=mapping).policy


def _answering(policy: Policy, rows: LoggedData) -> Policy:
    """The policy, if it can be asked about the logs' contexts."""
    if getattr(policy, "rests_on_choice", False):  # nobody can ask it, and nothing does
        return policy
    try:
        next(iter(policy.distributions(rows.requests[:2])))
    except (ValueError, IndexError) as problem:
        raise PolicyError(
            "the logging policy must answer about the logs' contexts",
            found=f"contexts of {rows.contexts.shape[1]} features; {short(str(problem))}",
            cure="name the columns that it was made for, in its order, with --context or --mapping",
        ) from problem
    return policy
