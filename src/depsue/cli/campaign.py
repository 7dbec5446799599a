"""`depsue campaign`: K deployments on a team's own logs, one command for each step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from depsue import defaults
from depsue.cli.options import (
    HOME,
    ITEMS_HELP,
    Address,
    AsJson,
    Assume,
    By,
    Delta,
    FloorValue,
    Home,
    IdColumn,
    Impressions,
    Least,
    MappingFile,
    MaxNovelty,
    Models,
    Most,
    Name,
    NoDrift,
    Novel,
    ObjectiveText,
    Per,
    Promises,
    Quiet,
    Reserve,
    Rewards,
    Rounds,
    ShareFloor,
    StoreAddress,
    Units,
    Window,
    Yes,
    ask,
    interruptible,
    names_of,
    objective_of,
    open_campaign,
    promises_of,
    require_yes,
    units_of,
    who,
    window_of,
)
from depsue.errors import require
from depsue.plural import counted

if TYPE_CHECKING:
    from depsue.campaigns import Campaign

FAILED = 4
"""Exit code of a certificate that did not pass."""

app = typer.Typer(
    name="campaign",
    help="K deployments on a team's own logs: create, train, certify, deploy, observe, and see.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command()
def create(
    name: Name,
    logs: Annotated[
        str, typer.Argument(help="What pi0 logged: a file, a folder, or a pattern in quotes.")
    ],
    items: Annotated[Path, typer.Argument(help=ITEMS_HELP)],
    pi0: Annotated[
        str,
        typer.Option(
            help="The logging policy: logged, chosen, uniform, a saved folder, model.onnx, a "
            "table, or a function of yours, module:function."
        ),
    ],
    mapping: MappingFile = None,
    rounds: Rounds = defaults.ROUNDS,
    floor: ShareFloor = None,
    floor_value: FloorValue = None,
    promises: Promises = None,
    delta: Delta = defaults.DELTA,
    per: Per = "deployment",
    safety: Annotated[
        str, typer.Option(help="each deployment above the floor, or all so far: cumulative.")
    ] = "each",
    objective: ObjectiveText = defaults.OBJECTIVE,
    max_novelty: MaxNovelty = defaults.MAX_NOVELTY,
    least: Least = 0.0,
    most: Most = 1.0,
    no_drift: NoDrift = False,
    reserve: Reserve = None,
    units: Units = None,
    assume: Assume = None,
    retries: Annotated[
        bool,
        typer.Option("--retries", help="Allow further attempts, the j-th at delta 2^-j."),
    ] = False,
    decisions: Annotated[
        int | None, typer.Option(help="Decisions that a deployment serves; default: as logged.")
    ] = None,
    novel: Novel = None,
    id: IdColumn = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Declare rows without times to be new if they look known."),
    ] = False,
    window: Window = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all training.")] = 0,
    home: Home = HOME,
    ledger: Address = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Begin a campaign: fix the promise, and take in what pi0 logged.

    The same command again finds the campaign as it is. What is fixed here stays fixed.
    """
    from depsue.assumptions import checked_rungs
    from depsue.campaigns import CampaignSettings, open_home
    from depsue.campaigns import create as created
    from depsue.exploration.settings import ExploreSettings

    explore = ExploreSettings(
        promises=promises_of(floor, floor_value, promises),
        delta=delta,
        per=per,  # type: ignore[arg-type]
        safety=safety,  # type: ignore[arg-type]
        objective=objective_of(objective),
        deployments=rounds,
        max_novelty=max_novelty,
        least=least,
        most=most,
        no_drift=no_drift,
        reserve=reserve,
        units=units_of(units),
        assume=checked_rungs(assume or ()),
    )
    campaign = created(
        name,
        logs,
        items,
        pi0=pi0,
        mapping=mapping,
        settings=CampaignSettings(explore, seed, retries, decisions),
        novel=None if novel is None else names_of(novel),
        id=id,
        fresh=fresh,
        window=window_of(window),
        by=who(by),
        home=home,
        ledger=open_home(home, ledger, create=True),
    )
    show_status(campaign, as_json, list(campaign.notes))


@app.command()
def family(
    name: Annotated[str, typer.Argument(help="Name of the family.")],
    share: Annotated[
        list[str],
        typer.Option(help="CAMPAIGN=SHARE of delta, once for each campaign: spring=0.5."),
    ],
    floor: Annotated[
        float | None,
        typer.Option(help="Share of the current policy's value that all together must keep."),
    ] = None,
    yes: Yes = False,
    home: Home = HOME,
    ledger: Address = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Declare campaigns that share rows or traffic, before the first verdict of any of them.

    Each campaign is then tested at its share of delta, so their verdicts on the same rows err at
    most delta of the time together. With --floor, the losses that their own floors allow must not
    add up to more than the joint floor allows.
    """
    from depsue.campaigns import open_home

    opened = open_home(home, ledger)
    if not yes:
        require_yes(as_json)
        ask(f"{', '.join(_shares(share))} will share delta for good. Declare the family?")
    declared = opened.declare_family(name, shares=_shares(share), floor=floor, by=who(by))
    shares = declared.terms["shares"]
    if as_json:
        typer.echo(json.dumps({"family": declared.name, **declared.terms}, indent=1))
        return
    words = ", ".join(f"{campaign} {part:g}" for campaign, part in shares.items())
    together = "" if floor is None else f"; together they keep {floor:g} of the current policy"
    typer.echo(f"family {declared.name}: shares of delta {words}{together}")


@app.command()
def train(
    name: Name,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of another candidate; default: the campaign's.")
    ] = None,
    reward_model: Annotated[
        str | None,
        typer.Option(
            help="A function of yours, module:function, that fits a reward model to rows."
        ),
    ] = None,
    model: Models = None,
    home: Home = HOME,
    ledger: Address = None,
    by: By = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn a candidate for the round, and fix all that its certificate will go by."""
    from depsue.campaigns.records import CandidateFacts
    from depsue.progress import bars
    from depsue.scores import imported

    campaign = open_campaign(name, home, ledger, by, model)
    with interruptible(), bars(not quiet and not as_json) as watch:
        fit = None if reward_model is None else imported(reward_model)
        candidate = campaign.train(seed=seed, fit=fit, watch=watch)
    first = f"candidate {candidate.policy_hash[:12]} of round {candidate.round}: "
    show_status(campaign, as_json, [first + str(CandidateFacts.of(candidate)), *campaign.notes])


@app.command()
def certify(
    name: Name,
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse", help="Only say how likely a pass is; no certifying row is read."
        ),
    ] = False,
    model: Models = None,
    home: Home = HOME,
    ledger: Address = None,
    by: By = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Put the candidate to the test, once. Exit code 4 if its certificate fails.

    The certifying rows are read by one verdict. The same command again prints that verdict: it
    cannot be retried into passing.
    """
    from depsue import codec
    from depsue.campaigns.status import advice_on
    from depsue.certificates import Certificate
    from depsue.progress import bars

    campaign = open_campaign(name, home, ledger, by, model)
    if rehearse:
        from depsue.campaigns import rehearse_round

        with interruptible(), bars(not quiet and not as_json) as watch:
            rehearsal = rehearse_round(campaign, watch)
        typer.echo(codec.encode(rehearsal, indent=1) if as_json else str(rehearsal))
        return
    with interruptible(), bars(not quiet and not as_json) as watch:
        attempt = campaign.certify(watch=watch)
    lines = [f"attempt {attempt.attempt}: {attempt.state}"]
    if attempt.certificate is not None:
        certificate = Certificate.from_json(attempt.certificate)
        lines = [str(certificate), *([] if certificate.passed else [advice_on(certificate)])]
    show_status(campaign, as_json, lines)
    if not attempt.passed:
        raise typer.Exit(FAILED)


@app.command()
def deploy(
    name: Name,
    what: Annotated[
        str | None, typer.Option(help="certified, certain or pi0; default: the best by objective.")
    ] = None,
    decisions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Declare how many decisions the round will serve; default: the campaign's number, "
            "else as many as the newest logs have rows.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Instead: declare when the round ends, an ISO date or time (UTC)."),
    ] = None,
    yes: Yes = False,
    home: Home = HOME,
    ledger: Address = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Record what serves from now on, and declare how long the round is to last.

    First it shows how often each new item is forecast to be shown, with a warning where one item
    would get most of that or some hardly any.

    A round that ends as declared allows every bound in the next verdict; one that is ended
    otherwise allows only bounds that hold at any time.
    """
    from depsue.campaigns.exposure import forecast_of
    from depsue.campaigns.records import RoundLength

    campaign = open_campaign(name, home, ledger, by)
    choices = campaign.choices()
    if choices and not yes:
        require_yes(as_json)
        wanted = next((choice for choice in choices if what in (None, choice.what)), choices[0])
        given = decisions is not None or until is not None
        length = RoundLength(decisions, until) if given else None
        forecast = forecast_of(campaign, campaign.round, wanted, "may be deployed", length=length)
        if forecast is not None:
            typer.echo(str(forecast), err=True)
        ask(f"Users will see it: {wanted.why}. Deploy?")
    deployed = campaign.deploy(what, decisions=decisions, until=until)
    folder = campaign.folder_of(deployed.round, deployed.policy_hash)
    lines = [
        f"deployed: {deployed.policy_hash[:12]}, in {folder}",
        f"declared length of round {deployed.round}: {RoundLength.of([deployed])}",
    ]
    show_status(campaign, as_json, lines)


@app.command()
def observe(
    name: Name,
    logs: Annotated[
        str | None, typer.Argument(help="What the round logged: a file, a folder, or a pattern.")
    ] = None,
    from_service: Annotated[
        bool, typer.Option("--served", help="Instead: what depsue serve logged in this round.")
    ] = False,
    mapping: Annotated[Path | None, typer.Option(help="TOML, if the columns have changed.")] = None,
    items: Annotated[
        Path | None,
        typer.Option(help="From the next round on: the items file, if items came or went."),
    ] = None,
    id: IdColumn = None,
    store: StoreAddress = None,
    decisions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Decisions served in the round, whoever decided: fallbacks, rollbacks and the "
            "holdout included; default: one for each row. Those without a row are charged at their "
            "worst.",
        ),
    ] = None,
    by_pi0: Annotated[
        int | None,
        typer.Option(min=0, help="Of the decisions without a row, how many pi0 took."),
    ] = None,
    yes: Yes = False,
    model: Models = None,
    home: Home = HOME,
    ledger: Address = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Show what a round logged and what would be left out, ask, and take it in.

    The same file twice is one observation. Until the next train more rows may be added: observe all
    rows of the round together. The round then counts as one that was ended by choice.
    """
    from depsue.campaigns.records import RoundSummary

    campaign = open_campaign(name, home, ledger, by, model)
    require(
        (logs is None) == from_service,
        "observe takes LOGS, or --served",
        found="both" if from_service else "neither",
        cure=f"depsue campaign observe {name} june.parquet",
    )
    left_out, excused = tuple[str, ...](), 0
    if from_service:
        from depsue.serving.exporting import export_served

        written = export_served(campaign, store)
        typer.echo(str(written), err=as_json)
        logs, mapping = str(written.path), mapping or written.mapping
        left_out, excused = written.left_out, written.excused
        decisions = written.decisions if decisions is None else decisions
        by_pi0 = written.holdout + written.fallback if by_pi0 is None else by_pi0
    preview = campaign.preview_observation(
        str(logs),
        mapping=mapping,
        items=items,
        id=id,
        decisions=decisions,
        by_pi0=by_pi0,
        excused=excused,
        left_out=left_out,
    )
    if not yes and not preview.known:
        require_yes(as_json)
        typer.echo(str(preview), err=True)
        ask(f"Round {preview.round} ends with these rows. Take them in?")
    seen = campaign.observe(
        str(logs),
        mapping=mapping,
        items=items,
        id=id,
        decisions=decisions,
        by_pi0=by_pi0,
        excused=excused,
    )
    lines = [f"round {seen.round}: {counted(seen.rows, 'row')} observed", *preview.lines()[1:]]
    summary = RoundSummary.of(seen)
    for what, ids in (("arrived", summary.arrived), ("withdrawn", summary.withdrawn)):
        if ids:
            lines.append(f"{what}: {', '.join(ids[:5])}{', ...' * (len(ids) > 5)}")
    show_status(campaign, as_json, [*lines, *campaign.notes])


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="Name; default: all campaigns.")] = None,
    impressions: Impressions = defaults.IMPRESSIONS,
    rewards: Rewards = defaults.REWARDS,
    store: StoreAddress = None,
    home: Home = HOME,
    ledger: Address = None,
    as_json: AsJson = False,
) -> None:
    """Where a campaign stands: round, floor, margin, what may be deployed now, what was served.

    Also how often each new item is forecast to be shown, and how many items were shown and
    rewarded often enough so far (the discoverable corpus).
    """
    from depsue import codec
    from depsue.campaigns import Campaign, open_home, story_of
    from depsue.serving.account import served_lately

    opened = open_home(home, ledger)
    names = [record.name for record in opened.campaigns()] if name is None else [name]
    values, texts = [], []
    for each in names:
        campaign = Campaign(opened, home, each, by="reader")
        story = story_of(campaign, impressions=impressions, rewards=rewards)
        lately = served_lately(campaign, store)
        lines = () if lately is None else lately.lines()
        values.append(story.as_json() | ({} if lately is None else {"served": codec.plain(lately)}))
        texts.append(
            "\n".join([str(story), *(["", *(f"  {line}" for line in lines)] * bool(lines))])
        )
    if as_json:
        typer.echo(json.dumps(values if name is None else values[0], indent=1))
    else:
        typer.echo("\n\n".join(texts) or "no campaigns yet")


@app.command()
def verify(
    name: Name,
    round: Annotated[
        int | None, typer.Option(min=1, help="Whose certificate; default: the newest.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Which verdict on its rows; default: the last.")
    ] = None,
    model: Models = None,
    home: Home = HOME,
    ledger: Address = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compute a certificate again from the logs. Exit code 4 if anything differs.

    It is the recorded verdict over again, at its own delta: no further attempt.
    """
    from dataclasses import asdict

    from depsue.campaigns import recompute, recorded_attempt
    from depsue.progress import bars

    campaign = open_campaign(name, home, ledger, "reader", model)
    read = recorded_attempt(campaign, round, attempt)
    with interruptible(), bars(not quiet and not as_json) as watch:
        found = recompute(campaign, read.round, read.attempt, watch)
    if as_json:
        values = {"round": read.round, "attempt": read.attempt, "equal": found.equal}
        typer.echo(json.dumps(values | asdict(found), indent=1))
    else:
        typer.echo(f"round {read.round}, attempt {read.attempt}: {found}")
    if not found.equal:
        raise typer.Exit(FAILED)


@app.command()
def rollback(
    name: Name,
    to: Annotated[int, typer.Option(min=0, help="0 for pi0, else a round.")] = 0,
    yes: Yes = False,
    home: Home = HOME,
    ledger: Address = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Serve what served before, from now on: pi0, or what an earlier round deployed."""
    campaign = open_campaign(name, home, ledger, by)
    what = "pi0" if to == 0 else f"what round {to} deployed"
    if not yes:
        require_yes(as_json)
        ask(f"Users will see {what}. Roll back?")
    deployed = campaign.rollback(to)
    show_status(campaign, as_json, [f"rolled back to {what} ({deployed.policy_hash[:12]})"])


@app.command()
def export(
    name: Name,
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist or be empty.")],
    round: Annotated[
        int | None, typer.Option(min=1, help="What this round deployed; default: what serves now.")
    ] = None,
    model: Models = None,
    home: Home = HOME,
    ledger: Address = None,
    as_json: AsJson = False,
) -> None:
    """Write what serves, with its certificate and items, to a folder for the serving system."""
    from depsue.campaigns import export_campaign

    campaign = open_campaign(name, home, ledger, "reader", model)
    written = export_campaign(campaign, out, round=round)
    if as_json:
        typer.echo(json.dumps({"folder": str(out), "files": written}, indent=1))
    else:
        typer.echo(f"written to {out}: {', '.join(written)}")


@app.command()
def report(
    name: Name,
    out: Annotated[
        Path | None, typer.Option(help="The page; default report.html in the campaign's folder.")
    ] = None,
    impressions: Impressions = defaults.IMPRESSIONS,
    rewards: Rewards = defaults.REWARDS,
    home: Home = HOME,
    ledger: Address = None,
    as_json: AsJson = False,
) -> None:
    """Write the campaign's story as one self-contained HTML page; --json prints what it shows."""
    from depsue import codec
    from depsue.campaigns import story_of
    from depsue.pages.report import report_of, write_report

    campaign = open_campaign(name, home, ledger, "reader")
    asked = {"impressions": impressions, "rewards": rewards}
    page = write_report(campaign, out or campaign.files.folder / "report.html", **asked)
    if as_json:
        report = report_of(story_of(campaign, **asked))
        typer.echo(codec.encode({"page": str(page), "report": report}, indent=1))
    else:
        typer.echo(f"the report: {page}")


def _shares(texts: list[str]) -> dict[str, float]:
    """Shares of delta by campaign, from texts such as spring=0.5."""
    shares: dict[str, float] = {}
    for text in texts:
        campaign, _, number = text.partition("=")
        try:
            shares[campaign.strip()] = float(number)
        except ValueError:
            require(
                False,
                "--share takes CAMPAIGN=SHARE",
                found=text,
                cure="for example --share spring=0.5 --share shoes=0.5",
            )
    return shares


def show_status(campaign: Campaign, as_json: bool, lines: list[str]) -> None:
    """What was done, then where the campaign stands."""
    from depsue.campaigns import story_of

    story = story_of(campaign)
    if as_json:
        typer.echo(json.dumps({"said": lines, "status": story.as_json()}, indent=1))
        return
    for line in lines:
        typer.echo(line)
    typer.echo(f"\n{story}")
