"""Requests, logs, catalogues, folds and terms."""

from depsue.data.catalogue import ActionCatalogue
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.data.terms import ConservativeTerms, Terms, WeightedTerms

__all__ = [
    "ActionCatalogue",
    "ConservativeTerms",
    "LoggedData",
    "Requests",
    "Terms",
    "WeightedTerms",
]
