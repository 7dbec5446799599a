"""The claims in docs/claims.md: what the README and the docs say, computed from committed results.

A claim is a sentence of a page whose figures are filled in from results. A test holds that each
sentence stands on its page as the results have it, and that the table is up to date. After results
have changed, `python tools/claims.py` writes the new figures into the sentences and the table; a
sentence that it cannot find alone is changed by hand.
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
        what: it is about, in words.
        page: where it stands, from the root of the project.
        sentence: as it stands there, but for line breaks; {names} stand for figures.
        figures: the figures by name, from the results.
        interval: what the figure could have been, 95% where nothing else is said.
        source: the results, from docs/results.
        command: what makes them.
        date: when it was last run.
    """

    what: str
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

    def written_into(self, text: str) -> str:
        """The page's text with these figures, where the sentence stands once with others."""
        parts = re.split(r"\{[^}]+\}", self.sentence)
        ours = r"(\S+?)".join(_anywhere(part) for part in parts)
        matches = list(re.finditer(ours, text))
        if len(matches) != 1 or plain(self.stated()) in plain(text):
            return text
        match, names = matches[0], re.findall(r"\{([^}]+)\}", self.sentence)
        figures, out = self.figures(), text
        for place in reversed(range(len(names))):
            new = f"{{{names[place]}}}".format(**figures)
            out = out[: match.start(place + 1)] + new + out[match.end(place + 1) :]
        return out


def _anywhere(words: str) -> str:
    """A pattern of these words, whatever the line breaks."""
    return r"\s+".join(re.escape(word) for word in re.split(r"\s+", words))


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


def false_alarms() -> dict[str, int]:
    """Lives that were stopped where the promise is over users and just holds, and all."""
    pattern = r"at the need over users, below it over decisions \| (\d+) \| ([\d.]+)"
    lives, rate = found("monitor.md", pattern)
    return {"stopped": round(int(lives) * float(rate)), "lives": int(lives)}


def forecasts() -> dict[str, int]:
    """Forecasts above the certain level that the certificate reached, and all."""
    pattern = r"\*\*all\*\* \|[^|]*\|[^|]*\|[^|]*\| (\d+) of (\d+)"
    reached, n = found("plan.md", pattern)
    return {"reached": int(reached), "n": int(n)}


def speed() -> dict[str, Any]:
    """Decisions per second with new and returning contexts, of VW, and both ratios."""
    row = r"\| {} \| ([\d,]+) \|[^|]*\| ([\d,]+) \| ([\d.]+) \|"
    new, vw, less = found("serving.md", row.format("new"))
    returning, _, more = found("serving.md", row.format("returning"))
    return {"new": new, "returning": returning, "vw": vw, "less": less, "more": float(more)}


def not_held() -> dict[str, int]:
    """The paper's statements that do not hold, and those that were measured, by data set."""
    out = {}
    names = {"movielens-paper": ("movielens", "of"), "wiki10": ("wiki10", "them")}
    for folder, (against, every) in names.items():
        text = (RESULTS / folder / "claims.md").read_text("utf-8")
        out[against] = text.count("**Does not hold**")
        out[every] = out[against] + text.count("**Holds**")
    return out


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


def passed_headlines() -> dict[str, int]:
    """Certificates of headline tests that passed, and all."""
    every = rounds("upworthy", "certified")
    return {"passed": sum(one["certified"] for one in every), "n": len(every)}


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


REPRODUCED = "docs/results/README.md"
STUDY = "depsue-research upworthy-study --final --seeds 300-301"
ROUTERS = "depsue-research routers --final --seeds 300-301"
BETAS = (-24.0, -8.0, 0.0, 8.0, 24.0)
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Runs of certified exploration below the floor, MovieLens and Wiki10",
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
        "Cells with more novelty and more value than DEPSUE",
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
            f"Novelty / value, K = {k}, MovieLens",
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
            f"Novelty / value, K = {k}, Wiki10",
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
        "Cells of the fitted simulator with more of both, and runs below the floor",
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
        "Wrong certificates in the audit",
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
        "Acknowledged decisions that were lost while services were killed",
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
        "False alarms of the monitor at the very edge of a promise over users",
        "docs/serve.md",
        "{stopped} of {lives} where the promise is over users",
        false_alarms,
        lambda: exact(*false_alarms().values()),
        "monitor.md",
        "python benchmarks/monitor.py --replications 400 --decisions 60000",
        "2026-11-18",
    ),
    Claim(
        "Forecasts of plan that were reached, above the certain level",
        "docs/plan.md",
        "of forecasts above the certain level {reached} of {n} were reached",
        forecasts,
        lambda: exact(*forecasts().values()),
        "plan.md",
        "depsue-research forecasts --rows 12000 --seeds 20 --first-seed 9000",
        "2026-11-18",
    ),
    Claim(
        "Decisions per second of the service, against VW in the same server",
        "README.md",
        "each on disk before its reply ({returning}; {new} if no context comes twice) | VW's "
        "`cb_explore_adf` in the same server, predict only ({vw}) | {more:.0f}; {less} |",
        speed,
        lambda: "medians of 5 rounds on one machine; trust the ratios",
        "serving.md",
        "python benchmarks/serving.py",
        "2026-11-19",
    ),
    Claim(
        "Statements of the paper that do not hold here",
        "docs/failures.md",
        "{movielens} of {of} statements about MovieLens and {wiki10} of {them} about Wiki10 do not "
        "hold here",
        not_held,
        lambda: "by criteria in the code, on 5 and 3 seeds",
        "movielens-paper, wiki10",
        REPRODUCED,
        "2026-11-18",
    ),
    Claim(
        "Routers: floor or ceiling broken, certified exploration",
        "docs/routers.md",
        "{wrong} of {n} deployments of certified exploration broke a promise",
        lambda: dict(zip(("wrong", "n"), broken("certified"), strict=True)),
        lambda: exact(*broken("certified")),
        "routers",
        ROUTERS,
        "2026-11-19",
    ),
    Claim(
        "Routers: floor or ceiling broken, epsilon-greedy",
        "docs/routers.md",
        "epsilon-greedy broke one in {wrong} of {n}",
        lambda: dict(zip(("wrong", "n"), broken("epsilon-greedy"), strict=True)),
        lambda: exact(*broken("epsilon-greedy")),
        "routers",
        ROUTERS,
        "2026-11-19",
    ),
    Claim(
        "Routers: floor or ceiling broken, epsilon-greedy that is told the cost",
        "docs/routers.md",
        "it still broke a promise in {wrong} of {n}: a weight is no floor",
        lambda: dict(zip(("wrong", "n"), broken("epsilon-greedy, priced"), strict=True)),
        lambda: exact(*broken("epsilon-greedy, priced")),
        "routers",
        ROUTERS,
        "2026-11-19",
    ),
    Claim(
        "Routers: share of the new model after two rounds",
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
        "Routers: how often Safe OPG's bound passes",
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
        "Headline tests: deployments below the floor",
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
        "Headline tests: certificates that passed",
        "docs/failures.md",
        "with 400,000 a round {passed} of {n} passed",
        passed_headlines,
        lambda: exact(*passed_headlines().values()),
        "upworthy",
        STUDY,
        "2026-11-19",
    ),
    Claim(
        "Headline tests: later weeks, the worst packages new",
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
    heading = ("claim", "as it is said", "where", "interval", "results", "command", "last run")
    lines = ["| " + " | ".join(heading) + " |", "|---" * len(heading) + "|"]
    for claim in CLAIMS:
        said = claim.stated().strip("| ").replace("|", "\\|").replace("](docs/", "](")
        page = claim.page.removeprefix("docs/")
        where = f"[{page}]({page})" if claim.page.startswith("docs/") else f"`{page}`"
        lines.append(
            f"| {claim.what} | {said} | {where} | {claim.interval()} | `{claim.source}` "
            f"| {_command(claim.command)} | {claim.date} |"
        )
    return "\n" + "\n".join(lines) + "\n\n"


def _command(command: str) -> str:
    return "[commands](results/README.md)" if command == REPRODUCED else f"`{command}`"


def page(text: str) -> str:
    """The page with the table as the results have it now."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


def main() -> None:
    """Write the figures into the sentences, then the table."""
    for claim in CLAIMS:
        file = ROOT / claim.page
        if RESULTS in file.parents:  # written by the command that made it
            continue
        text = file.read_text("utf-8")
        changed = claim.written_into(text)
        if changed != text:
            file.write_text(changed, encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
