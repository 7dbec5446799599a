"""How methods are named and drawn, the same in all tables and figures."""

from __future__ import annotations

NAMES = {
    "opg_mean": "OPG (naive, mean)",
    "opg_min": "OPG (naive, min)",
    "opg_cql": "OPG (w/ CQL)",
    "naive_safe": "Naive Safe Exploration",
    "depsue_1": "DEPSUE (K=1)",
    "depsue_2": "DEPSUE (K=2)",
    "depsue_5": "DEPSUE (K=5)",
}
"""As in the paper, which calls DEPSUE (K=1) Safe OPG, too."""

COLOURS = {
    "opg_mean": "#e69f00",
    "opg_min": "#d55e00",
    "opg_cql": "#cc79a7",
    "naive_safe": "#7f7f7f",
    "depsue_1": "#56b4e9",
    "depsue_2": "#0072b2",
    "depsue_5": "#009e73",
}
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""

MARKERS = {
    "opg_mean": "s",
    "opg_min": "D",
    "opg_cql": "^",
    "naive_safe": "X",
    "depsue_1": "o",
    "depsue_2": "v",
    "depsue_5": "P",
}

POLICIES = {
    "last": "last",
    "average": "average over k",
    "prefix": "average up to some k",
    "any": "any deployment",
}
"""Words for the keys of `reading.OVER_DEPLOYMENTS`."""
