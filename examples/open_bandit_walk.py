"""check, plan, create, train and certify on one log, as the commands do it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from depsue.campaigns import Campaign, CampaignSettings, create
from depsue.certificates import Certificate
from depsue.check import check_logs
from depsue.check.report import CheckReport
from depsue.data.items import read_items
from depsue.data.mapping import LogMapping
from depsue.data.reading import open_source, read_from
from depsue.exploration import ExploreSettings, Plan, plan
from depsue.ledger import CandidateRecord
from depsue.policies import Uniform

GOAL = "most novelty"
SETTINGS = CampaignSettings(ExploreSettings(objective=GOAL, deployments=1))
"""One deployment, floor .95 of pi0's value, delta .05."""


@dataclass(frozen=True, eq=False)
class Walk:
    """What was said of one log on the way to a verdict.

    Args:
        name: of the campaign.
        check, plan: what they found.
        candidate: what was fixed before the verdict.
        certificate: the verdict.
        clicks: rows with a click among those that certify.
        campaign: where it stands.
    """

    name: str
    check: CheckReport
    plan: Plan
    candidate: CandidateRecord
    certificate: Certificate
    clicks: int
    campaign: Campaign


def walk(name: str, logs: Path, items: Path, mapping: LogMapping, home: Path) -> Walk:
    """check, plan, create, train and certify; again, it finds what was done.

    Args:
        name: of the campaign.
        logs, items: files.
        mapping: which column is what.
        home: the folder of campaigns.
    """
    report = check_logs(open_source(logs), items, mapping)
    listed = read_items(items)
    rows = read_from(logs, mapping, listed.catalogue, 0)
    pi0 = Uniform(~listed.catalogue.novel)
    planned = plan(rows, SETTINGS.explore, campaign=name, logging_policy=pi0)
    campaign = create(
        name,
        logs,
        items,
        pi0="uniform",
        mapping=mapping,
        settings=SETTINGS,
        by="example",
        home=home,
    )
    candidate = campaign.train()
    attempt = campaign.certify()
    verdict = Certificate.from_json(attempt.certificate or "")
    certified = campaign.state().inputs(len(rows)).folds.certify  # the verdict has been given
    clicks = int((certified.reward > 0).sum())
    return Walk(name, report, planned, candidate, verdict, clicks, campaign)
