"""A campaign's story as one HTML page that needs nothing else.

`story` gathers what the ledger knows, `words` and `guarantee` say it, `items` has the exposure of
new items, `details` the certificates in full, `figures` draws, `page` writes. No log is read.
"""

from depsue.reports.campaign.page import write_report

__all__ = ["write_report"]
