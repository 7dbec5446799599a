"""The dashboard: pages of the campaigns, rendered on the service's own server.

::

    dashboard     which page answers a path, and who may see it
    sessions      who is logged in; what a form must carry
    overview      all campaigns at a glance
    told          what the ledger tells of a campaign
    campaign      one campaign's story; now: what serves this minute; items: its new items
    certificate   one certificate, and recomputing it
    plan_page     plan the next round; planning: how far the newest logs would let it go
    jobs          long work in the background, one at a time
    figures, frontiers   what the browser draws; drawing: with what
    static        scripts and styles, from this server alone

Each page renders one frozen record, and has it as JSON at its own path with `.json`.
"""

from depsue.dashboard.dashboard import Dashboard

__all__ = ["Dashboard"]
