"""The claims in docs/claims.md: what the README and the docs say, computed from committed results.

A claim is a sentence of a page whose figures are filled in from results. `python tools/claims.py`
writes the table; a test holds that each sentence stands on its page as the results have it, and
that the table is up to date. What changes results changes the sentence, or the test fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "claims.md"
BEGIN, END = "<!-- claims -->\n", "<!-- end of claims -->"
FLOOR = 0.95


@dataclass(frozen=True)
class Claim:
    """One sentence with figures.

    Args:
        page: where it stands, from the root of the project.
        sentence: as it stands there, but for line breaks; {names} stand for figures.
        figures: the figures by name, from the results.
        interval: what the figure could have been, 95% where nothing else is said.
        source: the results, from docs/results.
        command: what makes them.
        date: when it was last run.
    """

    page: str
    sentence: str
    figures: Callable[[], dict[str, Any]]
    interval: Callable[[], str]
    source: str
    command: str
    date: str

    def stated(self) -> str:
        """The sentence with its figures."""
        return self.sentence.format(**self.figures())


@cache
def cells(name: str) -> tuple[dict[str, Any], ...]:
    """The cells of a folder of results."""
    lines = (RESULTS / name / "cells.jsonl").read_text("utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


def exact(count: int, n: int) -> str:
    """The exact interval of Clopper and Pearson."""
    from scipy.stats import beta

    low = 0.0 if count == 0 else float(beta.ppf(0.025, count, n - count + 1))
    high = 1.0 if count == n else float(beta.ppf(0.975, count + 1, n - count))
    return f"{count} of {n}: {low:.1%} to {high:.1%}"


def found(file: str, pattern: str) -> tuple[str, ...]:
    """What a pattern catches in a page of results."""
    match = re.search(pattern, (RESULTS / file).read_text("utf-8"), re.DOTALL)
    if match is None:
        raise LookupError(f"{file} has nothing that matches {pattern!r}")
    return match.groups()


def ratios(cell: dict[str, Any]) -> list[float]:
    """V / V(pi0) of each deployment of a cell of the paper's experiments, over test users."""
    base = cell["logging"]["value_test"]
    return [deployment["value_test"] / base for deployment in cell["deployments"]]


def explored(name: str, methods: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    return (cell for cell in cells(name) if cell["method"] in methods)


EACH = ("explore_1", "explore_2", "explore_5")
SUMS = (*EACH, "explore_2_cumulative", "explore_5_cumulative")


def below(names: tuple[str, ...]) -> tuple[int, int]:
    """Runs of certified exploration with a deployment below the floor, and all runs."""
    runs = [cell for name in names for cell in explored(name, EACH)]
    return sum(min(ratios(cell)) < FLOOR for cell in runs), len(runs)


def sums_below(names: tuple[str, ...]) -> tuple[int, int]:
    """Runs whose deployments, up to one of them, are below the floor in their mean; and all."""
    runs = [cell for name in names for cell in explored(name, SUMS)]
    short = 0
    for cell in runs:
        values = ratios(cell)
        means = [sum(values[: k + 1]) / (k + 1) for k in range(len(values))]
        short += min(means) < FLOOR
    return short, len(runs)


def none(count: int) -> str:
    return "none" if count == 0 else str(count)


def paper_runs() -> dict[str, Any]:
    names = ("movielens-paper", "wiki10")
    (one, n), (both, m) = below(names), sums_below(names)
    return {"one": none(one), "n": n, "both": none(both), "m": m}


def better_cells(*names: str) -> int:
    """Cells in which certified exploration has at least the novelty and the value of the others."""
    total = 0
    for name in names:
        rows: dict[tuple[str, str], list[str]] = {}
        for line in (RESULTS / name / "exploration.md").read_text("utf-8").splitlines():
            parts = [part.strip() for part in line.strip("|").split("|")]
            if len(parts) > 3 and parts[2] == "at least these" and parts[1] != "average novelty":
                rows[parts[0], parts[1]] = parts[3:]
        for method in {method for method, _ in rows}:
            pairs = zip(rows[method, "novelty"], rows[method, "value"], strict=True)
            total += sum(pair == ("yes", "yes") for pair in pairs)
    return total


def table_row(name: str, method: str, levels: tuple[float, ...]) -> str:
    """ "novelty / value" at some levels, as the README has them."""
    entries = []
    for level in levels:
        mine = [c for c in explored(name, (method,)) if c["level"] == level]
        novelty = sum(c["deployments"][-1]["novelty_test"] for c in mine) / len(mine)
        value = sum(ratios(c)[-1] for c in mine) / len(mine)
        entries.append(f"{novelty:.3f} / {value:.3f}".replace("0.", ".", 1))
    return " | ".join(entry.replace(" 0.", " .") for entry in entries)


def audited() -> dict[str, Any]:
    """Wrong strict certificates, those asked for, and kinds."""
    wrong, asked, kinds = 0, 0, set()
    for line in (RESULTS / "audit.jsonl").read_text("utf-8").splitlines():
        for group, kind, variant, *counts in json.loads(line)["counts"]:
            if group == "strict":
                wrong, asked = wrong + counts[0], asked + sum(counts)
                kinds.add((kind, variant))
    return {"kinds": len(kinds), "wrong": wrong, "asked": f"{asked:,}"}


def rounds(name: str, method: str, **only: Any) -> list[dict[str, Any]]:
    """All deployments of a method in a study on real data."""
    mine = [
        cell
        for cell in cells(name)
        if cell["method"] == method and all(cell[key] == value for key, value in only.items())
    ]
    return [one for cell in mine for one in cell["rounds"]]


QUALITY, COST = 0.97, 1.1


def broken(method: str, **only: Any) -> tuple[int, int]:
    """Deployments in the study of routers below the floor or above the ceiling, and all."""
    every = [one["here"] for one in rounds("routers", method, **only)]
    return sum(x["quality"] < QUALITY or x["cost"] > COST for x in every), len(every)


def headlines(method: str, judge: str, new: str) -> tuple[int, int]:
    """Deployments in the study of headline tests below the floor, by a judge, and all."""
    every = [one[judge]["z"] for one in rounds("upworthy", method, new=new)]
    return sum(z < 0 for z in every), len(every)


def certified_here() -> dict[str, Any]:
    """Of certified exploration, with either kind of new packages."""
    counts = [headlines("certified", "here", new) for new in ("random", "worst")]
    return {"wrong": sum(wrong for wrong, _ in counts), "n": sum(n for _, n in counts)}


def later_weeks() -> dict[str, Any]:
    """Certified exploration with the worst packages, by the tests of later weeks."""
    wrong, n = headlines("certified", "later", "worst")
    means = {
        judge: last_mean("upworthy", "certified", judge, "ratio", new="worst")
        for judge in ("later", "here")
    }
    return {"wrong": wrong, "n": n, **means}


def last_mean(name: str, method: str, judge: str, key: str, **only: Any) -> float:
    """The mean over campaigns of a figure of the last deployment."""
    mine = [
        cell["rounds"][-1][judge][key]
        for cell in cells(name)
        if cell["method"] == method and all(cell[k] == value for k, value in only.items())
    ]
    return float(sum(mine) / len(mine))


REPRODUCED = "the commands of docs/results/README.md"
STUDY = "depsue-research upworthy-study --final --seeds 300-301"
ROUTERS = "depsue-research routers --final --seeds 300-301"
BETAS = (-24.0, -8.0, 0.0, 8.0, 24.0)
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "README.md",
        "In {one} of {n} runs did a deployment fall below the floor, and in {both} of {m}, with "
        "margin spent or not, did their sum.",
        paper_runs,
        lambda: exact(*below(("movielens-paper", "wiki10"))),
        "movielens-paper, wiki10",
        REPRODUCED,
        "2026-11-18",
    ),
    Claim(
        "README.md",
        "paper's DEPSUE, and than ours, in all {cells} cells",
        lambda: {"cells": better_cells("movielens-paper", "wiki10")},
        lambda: "each cell a mean over 5 seeds",
        "movielens-paper, wiki10",
        REPRODUCED,
        "2026-11-18",
    ),
    *(
        Claim(
            "README.md",
            "| certified exploration | {row} |",
            lambda k=k: {"row": table_row("movielens-paper", f"explore_{k}", BETAS)},  # type: ignore[misc]
            lambda: "means over 5 seeds",
            "movielens-paper",
            REPRODUCED,
            "2026-11-18",
        )
        for k in (1, 5)
    ),
    *(
        Claim(
            "README.md",
            "| certified exploration | {row} |",
            lambda k=k: {"row": table_row("wiki10", f"explore_{k}", (0.8, 0.5, 0.2))},  # type: ignore[misc]
            lambda: "means over 5 seeds",
            "wiki10",
            REPRODUCED,
            "2026-11-18",
        )
        for k in (1, 5)
    ),
    Claim(
        "README.md",
        "[{cells} cells](docs/results/movielens-fitted/exploration.md), and no run of {n} fell "
        "below the floor.",
        lambda: {
            "cells": better_cells("movielens-fitted"),
            "n": below(("movielens-fitted",))[1] if below(("movielens-fitted",))[0] == 0 else "?",
        },
        lambda: exact(*below(("movielens-fitted",))),
        "movielens-fitted",
        REPRODUCED,
        "2026-11-18",
    ),
    Claim(
        "docs/results/audit.md",
        "None of {kinds} strict kinds exceeds delta = 0.05: {wrong} of {asked} certificates asked "
        "for were wrong",
        audited,
        lambda: "an exact one for each kind is on the page",
        "audit.jsonl",
        "depsue-research audit --replications 2000 --campaigns 400",
        "2026-11-18",
    ),
    Claim(
        "docs/results/soak.md",
        "| lost | {lost} | {other} |",
        lambda: dict(
            zip(("lost", "other"), found("soak.md", r"\| lost \| (\d+) \| (\d+) \|"), strict=True)
        ),
        lambda: "of {} acknowledged decisions on SQLite, {} on PostgreSQL".format(
            *found("soak.md", r"acknowledged decisions \| ([\d,]+) \| ([\d,]+)")
        ),
        "soak.md",
        "depsue-research soak",
        "2026-11-18",
    ),
    Claim(
        "docs/routers.md",
        "{wrong} of {n} deployments of certified exploration broke a promise",
        lambda: dict(zip(("wrong", "n"), broken("certified"), strict=True)),
        lambda: exact(*broken("certified")),
        "routers",
        ROUTERS,
        "2026-11-19",
    ),
    Claim(
        "docs/routers.md",
        "epsilon-greedy broke one in {wrong} of {n}",
        lambda: dict(zip(("wrong", "n"), broken("epsilon-greedy"), strict=True)),
        lambda: exact(*broken("epsilon-greedy")),
        "routers",
        ROUTERS,
        "2026-11-19",
    ),
    Claim(
        "docs/failures.md",
        "the new model got {dc:.1%} of the requests in the table of nine models, {pareto:.1%} in "
        "that of four",
        lambda: {
            name: last_mean("routers", "certified", "here", "novelty", table=name)
            for name in ("dc", "pareto")
        },
        lambda: "in the study, by table",
        "routers",
        ROUTERS,
        "2026-11-19",
    ),
    Claim(
        "docs/failures.md",
        "Safe OPG's bound passed in {passed} of {n} deployments with nine models",
        lambda: {
            "passed": sum(x["certified"] for x in rounds("routers", "Safe OPG", table="dc")),
            "n": len(rounds("routers", "Safe OPG", table="dc")),
        },
        lambda: exact(
            sum(x["certified"] for x in rounds("routers", "Safe OPG", table="dc")),
            len(rounds("routers", "Safe OPG", table="dc")),
        ),
        "routers",
        ROUTERS,
        "2026-11-19",
    ),
    Claim(
        "docs/upworthy.md",
        "{wrong} of {n} deployments of certified exploration were below the floor by the clicks "
        "that certificates are about",
        certified_here,
        lambda: "; ".join(
            f"{x}: {exact(*headlines('certified', 'here', x))}" for x in ("random", "worst")
        ),
        "upworthy",
        STUDY,
        "2026-11-19",
    ),
    Claim(
        "docs/failures.md",
        "{wrong} of {n} deployments of certified exploration were below the floor in later weeks, "
        "but their last policies stood at {later:.3f} of pi0 there, where they had {here:.3f} in "
        "the weeks that they were certified on",
        later_weeks,
        lambda: exact(*headlines("certified", "later", "worst")),
        "upworthy",
        STUDY,
        "2026-11-19",
    ),
)


def plain(text: str) -> str:
    """Text without line breaks and marks of emphasis, so that a sentence is found in it."""
    return " ".join(text.replace("**", "").split())


def table() -> str:
    """The table of all claims."""
    heading = ("claim", "where", "interval", "results", "command", "last run")
    lines = ["| " + " | ".join(heading) + " |", "|---" * len(heading) + "|"]
    for claim in CLAIMS:
        said = claim.stated().replace("|", "\\|").replace("](docs/", "](")
        page = claim.page.removeprefix("docs/")
        where = f"[{page}]({page})" if claim.page.startswith("docs/") else f"`{page}`"
        lines.append(
            f"| {said} | {where} | {claim.interval()} | `{claim.source}` | `{claim.command}` "
            f"| {claim.date} |"
        )
    return "\n" + "\n".join(lines) + "\n\n"


def page(text: str) -> str:
    """The page with the table as the results have it now."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), encoding="utf-8")
