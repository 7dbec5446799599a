"""What the command line says of a campaign: where it stands, and what to do about a failed test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from depsue.campaigns.exposure import Corpus
from depsue.campaigns.observing import CANNOT_PAIR
from depsue.certificates import Certificate
from depsue.plural import counted

if TYPE_CHECKING:
    from depsue.campaigns.story import DeployedPolicy, PromiseOutcome, RoundStory, Story


def status_text(story: Story) -> str:
    """`depsue campaign status` as text."""
    return "\n".join(_status_lines(story))


def advice_on(certificate: Certificate) -> str:
    """What to do about a certificate that failed."""
    if any(
        verdict.ceiling is not None and name not in certificate.spent.ceilings
        for name, verdict in ((verdict.promise.name, verdict) for verdict in certificate.verdicts)
    ):
        return CANNOT_PAIR
    if any(verdict.credit < 0 for verdict in certificate.verdicts):
        return (
            "earlier deployments left a debt, which the next would have to earn back (a round "
            "that can no longer be held against the current policy counts at its worst): serve the "
            "current policy (rollback --to 0) until it is paid, or begin a new campaign; what "
            "needs no certificate keeps the floor by itself and pays nothing back"
        )
    n = certificate.listed
    which = "the one level failed" if n == 1 else f"even the safest of {n} levels failed"
    return (
        f"{which}: more rows would help (depsue plan says how many); what needs no certificate is "
        "below"
    )


def _length_lines(story: Story) -> Iterator[str]:
    """How long rounds were declared to last, which ended otherwise, and what means are of."""
    for past in story.history:
        if past.rows is None and past.declared:
            yield f"round {past.round} is declared to last {past.declared}"
        if past.ended:
            yield f"round {past.round} was ended by choice: {past.ended}"
        unobserved = (past.decisions or 0) - (past.rows or 0)
        if past.erased:
            yield f"round {past.round}: {counted(past.erased, 'row')} erased on request of users"
        if unobserved:
            served = f"round {past.round} served {unobserved:,} decisions without a row"
            if story.settings.safety == "cumulative":
                served += ": no margin shows them, and the account of a verdict counts their worst"
            yield served
    if any(past.read is not None for past in story.history):
        yield ("values are means over learn and select rows, which no coming verdict reads")


def _deployed_line(deployed: DeployedPolicy | None) -> str:
    if deployed is None:
        return "nothing yet: pi0 goes on as before"
    since = f"since {deployed.at:%Y-%m-%d %H:%M} UTC by {deployed.by}"
    how = ", after a rollback" if deployed.kind == "rollback" else ""
    if deployed.what == "pi0":
        return f"pi0{how}, {since}"
    what = f"the {deployed.what} policy of round {deployed.made_in}{how}"
    evenly = ", even over the new items" * deployed.even
    return f"{what}, novelty {deployed.novelty:.3f}{evenly}, {since}"


def _status_lines(story: Story) -> Iterator[str]:
    explore = story.settings
    per = "for each deployment" if explore.per == "deployment" else "for the whole campaign"
    safety = "each deployment" if explore.safety == "each" else "all deployments together"
    floors = "; ".join(f"{promise.name} {promise.floor}" for promise in explore.promises)
    at = "over" if story.over else f"round {story.round} of {story.rounds}"
    yield f"campaign {story.name}: {at}"
    yield f"  promise   {floors} (delta {explore.delta:g} {per}, {safety})"
    yield f"  deployed  {_deployed_line(story.deployed)}"
    for concern in story.concerns:
        yield f"  note      {concern}"
    for place, choice in enumerate(story.may_deploy):
        yield f"  {'or' if place else 'deploy':<9} {choice.why} (--what {choice.what})"
    yield f"  next      {story.next}"
    yield ""
    outcomes = story.promises[0].outcomes or (None,)
    rows = [
        _status_cells(past, outcome) for past, outcome in zip(story.history, outcomes, strict=True)
    ]
    headings = (
        "round", "verdict", "certified", "served", "rows", "novelty", "value", "floor", "margin",
    )  # fmt: skip
    for cells in (headings, *rows):
        widths = zip(cells, (5, 9, 9, 9, 9, 8, 8, 8, 9), strict=True)
        yield "  " + " ".join(f"{cell:>{width}}" for cell, width in widths)
    for line in _length_lines(story):
        yield f"  {line}"
    yield from _forecast_lines(story)
    yield from _corpus_lines(story.corpus)


def _forecast_lines(story: Story) -> Iterator[str]:
    """How often new items are forecast to be shown, and what is to be known of that."""
    if story.forecasts:
        yield ""
        yield "  exposure of new items, a forecast"
    for forecast in story.forecasts:
        yield from (f"  {line}" for line in str(forecast).splitlines())


def _corpus_lines(corpus: Corpus) -> Iterator[str]:
    """The discoverable corpus, once a round of the campaign was observed."""
    if len(corpus.rounds) < 2:
        return
    yield ""
    yield f"  discoverable corpus: {corpus.rule}"
    for cells in (corpus.headings, *corpus.cells):
        yield "  " + f"{cells[0]:>5} " + " ".join(f"{cell:>20}" for cell in cells[1:])


def _status_cells(past: RoundStory, outcome: PromiseOutcome | None) -> tuple[str, ...]:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    return (
        str(past.round),
        past.verdict or "-",
        number(past.certified, ".3f"),
        past.served or "-",
        number(past.rows, ",d"),
        number(past.novelty, ".3f"),
        number(None if outcome is None else outcome.mean, ".4f"),
        number(None if outcome is None else outcome.need, ".4f"),
        number(None if outcome is None else outcome.margin, "+,.1f"),
    )
