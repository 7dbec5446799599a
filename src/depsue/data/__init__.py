"""Requests, logs, catalogues, folds and terms.

A row comes out of a file (`tables`, `dsjson`, `open_bandit`) through a mapping (`mapping`,
`reading`), or out of a frame (`frames`), is checked at the door (`checks`) and becomes part of
`LoggedData` (`logs`), which keeps each distinct context once (`keys`, `requests`). More rows than
memory holds are read a partition at a time (`partitions`). Items become the catalogue (`items`,
`catalogue`). `folds` splits logs, `hashes` identifies them, `writing` writes them, and `terms` are
what estimators make of them.
"""

from depsue.data.catalogue import Catalogue
from depsue.data.logs import LoggedData
from depsue.data.requests import Candidates, Requests
from depsue.data.terms import ConservativeTerms, Terms, WeightedTerms

__all__ = [
    "Candidates",
    "Catalogue",
    "ConservativeTerms",
    "LoggedData",
    "Requests",
    "Terms",
    "WeightedTerms",
]
