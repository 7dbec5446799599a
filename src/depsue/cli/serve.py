"""`depsue serve` and `depsue token`: the decision service of a campaign, and who may use it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from depsue import defaults
from depsue.cli.campaign import app as campaign
from depsue.cli.campaign import show_status
from depsue.cli.options import (
    HOME,
    Address,
    AsJson,
    By,
    Home,
    Models,
    Name,
    StoreAddress,
    Yes,
    ask,
    open_campaign,
    require_yes,
)
from depsue.errors import ConfigError, require, short


def serve(
    name: Name,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8470,
    wait: Annotated[
        float | None,
        typer.Option(
            help="Seconds in which rewards count; default: the mapping's window, else "
            f"{defaults.WAIT:g}."
        ),
    ] = None,
    default_reward: Annotated[
        float | None,
        typer.Option(
            help=f"Of a decision that got none by then; default {defaults.DEFAULT_REWARD:g}."
        ),
    ] = None,
    combine: Annotated[
        str | None,
        typer.Option(help=f"Several rewards: first, largest or sum; default {defaults.COMBINE}."),
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(help=f"Share of traffic that stays on pi0; default {defaults.HOLDOUT:g}."),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            help="Share of traffic on the policy, the same as --holdout 1 - SHARE; 0 is a shadow. "
            "It is changed live, too: POST /v1/policy/share, or on the dashboard. A restart with "
            "the same option leaves what was changed live."
        ),
    ] = None,
    ramp: Annotated[
        str | None,
        typer.Option(
            help="Shares that a deployment goes through while it is healthy: 0.05,0.2,0.95; none "
            "ends ramps."
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(help="How long a ramp stays at each share: 90s, 30m, 6h, 1d; default 1d."),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help=f"False alarms of the monitor, at most; default {defaults.FALSE_ALARMS:g}."
        ),
    ] = None,
    cycle: Annotated[
        float | None,
        typer.Option(
            help="Seconds of a whole cycle, for absolute floors and those over units; default "
            f"{defaults.CYCLE:g}."
        ),
    ] = None,
    permit: Annotated[
        float | None,
        typer.Option(
            help="Seconds for which the policy explores after each completed look of the monitor; "
            f"default {defaults.PERMIT:g}."
        ),
    ] = None,
    backlog: Annotated[
        int | None,
        typer.Option(
            help="Decisions that may wait for the monitor before the current policy takes over; "
            f"default {defaults.BACKLOG:,}."
        ),
    ] = None,
    on_gone: Annotated[
        str | None,
        typer.Option(
            help="While the store is gone: pi0 (into the journal) or stop; default "
            f"{defaults.ON_GONE}."
        ),
    ] = None,
    most_waiting: Annotated[
        int | None,
        typer.Option(
            help=f"Requests that may wait; beyond it 503; default {defaults.MOST_WAITING}."
        ),
    ] = None,
    most_candidates: Annotated[
        int | None,
        typer.Option(
            help="Candidates that one request may bring; beyond it 422; default "
            f"{defaults.MOST_CANDIDATES}."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Decisions and rewards a second that one token may send; beyond it 429; default "
            f"{defaults.RATE:g}."
        ),
    ] = None,
    unknown: Annotated[
        int | None,
        typer.Option(
            help="Rewards an hour that one token may send for unknown decisions; default "
            f"{defaults.UNKNOWN}."
        ),
    ] = None,
    pi0_url: Annotated[
        str | None, typer.Option(help="Your own pi0 over HTTP, for fallbacks.")
    ] = None,
    model: Models = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Ask for no token; on loopback only.")
    ] = False,
    certfile: Annotated[Path | None, typer.Option(help="TLS certificate, PEM.")] = None,
    keyfile: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
    store: StoreAddress = None,
    home: Home = HOME,
    ledger: Address = None,
    by: By = None,
) -> None:
    """Serve a campaign: decisions over HTTP, the monitor, and the dashboard.

    What is declared (wait, default reward, combine, holdout, ...) is remembered beside the
    campaign's files. New deployments are picked up while it runs.
    """
    from depsue.data.mapping import seconds_of
    from depsue.pages.dashboard import Dashboard
    from depsue.serving.access import Access, is_loopback
    from depsue.serving.running import run
    from depsue.serving.settings import (
        asked_share,
        remembered,
        require_store,
        settings_of,
        store_address,
    )

    require(
        not no_auth or is_loopback(host),
        "tokens are left out on loopback only",
        found=f"--no-auth with --host {host}",
        cure="depsue token add, or --host 127.0.0.1",
    )
    access = Access(home, open_to_all=no_auth)
    require(
        no_auth or bool(access.tokens),
        "the service needs a token",
        found="none yet",
        cure=f"depsue token add admin ana --home {home}; on your own machine --no-auth will do",
    )
    campaign = open_campaign(name, home, ledger, by, model)
    options: dict[str, Any] = {
        name: value
        for name, value in (
            ("wait", wait),
            ("default_reward", default_reward),
            ("combine", combine),
            ("holdout", _held(holdout, share)),
            ("ramp", None if ramp is None else _ramp(ramp)),
            ("every", None if every is None else seconds_of(every)),
            ("delta", delta),
            ("cycle", cycle),
            ("permit", permit),
            ("backlog", backlog),
            ("on_gone", on_gone),
            ("most_waiting", most_waiting),
            ("most_candidates", most_candidates),
            ("rate", rate),
            ("unknown", unknown),
            ("pi0_url", pi0_url),
        )
        if value is not None
    }
    address = store_address(campaign, store)
    require_store(campaign, address)
    begun = Path(address).exists() or "://" in address
    before = remembered(campaign.files.folder)
    settings = settings_of(campaign, options, begun=begun)
    run(
        campaign,
        settings,
        access,
        store=store,
        host=host,
        port=port,
        share=asked_share(settings, before),
        by=campaign.by,
        tls=None if certfile is None else (certfile, keyfile),
        pages=partial(Dashboard, secure=certfile is not None),
    )


def _held(holdout: float | None, share: float | None) -> float | None:
    """The share of traffic on pi0, by either option."""
    require(
        holdout is None or share is None,
        "the share of traffic is said once",
        found=f"--holdout {holdout} and --share {share}",
        cure="--share 0.95 is the same as --holdout 0.05",
    )
    return holdout if share is None else round(1 - share, 12)


def _ramp(text: str) -> tuple[float, ...]:
    """The shares of a ramp."""
    try:
        return () if text == "none" else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            "a ramp is shares of traffic, with commas between them",
            found=short(text),
            cure="--ramp 0.05,0.2,0.95",
        ) from None


def erase(
    name: Name,
    unit: Annotated[
        str, typer.Option(help="Id of the user; the number 7 and the text 7 are the same unit.")
    ],
    store: StoreAddress = None,
    yes: Yes = False,
    home: Home = HOME,
    ledger: Address = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Show what a campaign holds of one user, ask, and erase it.

    The user's rows go from the store, the journal, the logs that depsue wrote and the exports. The
    ledger records how many are missing, never whose. Files of your own are named, not changed.
    Stop the service first, unless its store is PostgreSQL. The same command again finishes what
    was cut short.
    """
    from depsue import codec
    from depsue.serving.erasing import erase_unit, preview_erasure

    campaign = open_campaign(name, home, ledger, by)
    preview = preview_erasure(campaign, unit, store=store)
    if not yes and not preview.is_empty:
        require_yes(as_json)
        typer.echo(str(preview), err=True)
        ask("This cannot be undone. Erase it?")
    erased = erase_unit(campaign, unit, store=store)
    if as_json:
        done = not preview.is_empty
        typer.echo(codec.encode({"erased": done, **codec.plain(erased)}, indent=1))
        return
    typer.echo("nothing was changed" if preview.is_empty else "erased")
    typer.echo(str(erased))


token = typer.Typer(
    name="token",
    help="Who may use the service: tokens for decide, reward and admin.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@token.command("add")
def add_token(
    role: Annotated[str, typer.Argument(help="decide, reward or admin.")],
    name: Annotated[str, typer.Argument(help="Whose it is, or what for.")],
    home: Home = HOME,
) -> None:
    """Make a token and print it; only its hash is kept."""
    from depsue.serving.access import Access

    typer.echo(Access(home).add(role, name))
    typer.echo("depsue: this is the only time that it is shown", err=True)


@token.command("list")
def list_tokens(home: Home = HOME, as_json: AsJson = False) -> None:
    """The tokens by name and role."""
    import json

    from depsue.serving.access import Access

    tokens = Access(home).tokens
    if as_json:
        rows = [{"name": each.name, "role": each.role, "made": each.made} for each in tokens]
        typer.echo(json.dumps(rows, indent=1))
        return
    for each in tokens:
        typer.echo(f"{each.role:<8} {each.made}  {each.name}")
    if not tokens:
        typer.echo("no tokens yet")


@token.command("remove")
def remove_token(name: Annotated[str, typer.Argument(help="Which.")], home: Home = HOME) -> None:
    """Forget a token; a service that runs notices within seconds."""
    from depsue.serving.access import Access

    Access(home).remove(name)
    typer.echo(f"removed: {name}")


@campaign.command()
def served(
    name: Name,
    out: Annotated[Path, typer.Option(help="The Parquet file to write.")],
    round: Annotated[
        int | None, typer.Option(min=1, help="Which round; default: the one under way.")
    ] = None,
    store: StoreAddress = None,
    home: Home = HOME,
    ledger: Address = None,
    as_json: AsJson = False,
) -> None:
    """Write what depsue serve logged in a round: decisions joined with their rewards."""
    from dataclasses import asdict

    from depsue.serving.exporting import export_served

    written = export_served(open_campaign(name, home, ledger, "reader"), store, out, round=round)
    typer.echo(json.dumps(asdict(written), indent=1, default=str) if as_json else str(written))


@campaign.command("rotate-secret")
def rotate_secret(
    name: Name,
    yes: Yes = False,
    home: Home = HOME,
    ledger: Address = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Draw decisions by a new secret, if others may know the old one, or if it is lost."""
    from depsue.campaigns import secret

    campaign = open_campaign(name, home, ledger, by)
    if not yes:
        require_yes(as_json)
        ask("Services must be started again, all with the new secret. Rotate it?")
    made = secret.rotate_secret(campaign)
    place = campaign.files.folder / secret.FILE
    show_status(campaign, as_json, [f"secret {made.version} in {place}: start the service again"])
