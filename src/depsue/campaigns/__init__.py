"""Campaigns: K deployments on a team's own logs, remembered by a ledger.

A round: `train` learns a candidate and records all that is fixed beforehand, `certify` puts it to
the test on rows that nothing has read, `deploy` records what serves from now on, and `observe`
takes in what it logged. Each is idempotent: a step that was cut short is called again.
"""

from depsue.campaigns.campaign import Campaign
from depsue.campaigns.creating import LEDGER, create, open_home
from depsue.campaigns.dry_runs import (
    Rehearsal,
    plan_next_round,
    recompute,
    recorded_attempt,
    rehearse_round,
)
from depsue.campaigns.exporting import Export, export_campaign, load_export
from depsue.campaigns.settings import CampaignSettings
from depsue.campaigns.story import Story, story_of

__all__ = [
    "Campaign",
    "CampaignSettings",
    "Export",
    "LEDGER",
    "Rehearsal",
    "Story",
    "create",
    "export_campaign",
    "load_export",
    "open_home",
    "plan_next_round",
    "recompute",
    "recorded_attempt",
    "rehearse_round",
    "story_of",
]
