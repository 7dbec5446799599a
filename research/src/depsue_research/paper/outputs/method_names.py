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
    "explore_1": "Certified exploration (K=1)",
    "explore_2": "Certified exploration (K=2)",
    "explore_5": "Certified exploration (K=5)",
    "explore_2_cumulative": "Certified exploration (K=2, cumulative)",
    "explore_5_cumulative": "Certified exploration (K=5, cumulative)",
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
    "explore_1": "#b8860b",
    "explore_2": "#8b1a1a",
    "explore_5": "#4b0082",
    "explore_2_cumulative": "#cd5c5c",
    "explore_5_cumulative": "#9370db",
}
"""Okabe and Ito's colours, which colour-blind readers can tell apart; darker ones for ours."""

MARKERS = {
    "opg_mean": "s",
    "opg_min": "D",
    "opg_cql": "^",
    "naive_safe": "X",
    "depsue_1": "o",
    "depsue_2": "v",
    "depsue_5": "P",
    "explore_1": "*",
    "explore_2": "<",
    "explore_5": "h",
    "explore_2_cumulative": ">",
    "explore_5_cumulative": "H",
}

POLICIES = {
    "last": "last",
    "average": "average over k",
    "prefix": "average up to some k",
    "any": "any deployment",
}
"""Words for the keys of `reading.OVER_DEPLOYMENTS`."""
