"""The Upworthy Research Archive: randomised headline tests of a news site, as a recommender's logs.

Each test had some packages (a headline and a picture). Each visitor of a test saw one of them,
drawn evenly, and clicked or did not: the request is the test, its candidates are its packages, and
the propensity is 1/k. The archive has totals for each package, which for a policy over packages is
all that matters: rows are drawn from them.

Read are the archive's CSV files as its authors publish them, and Parquet files of the columns test,
package, headline, week, impressions, clicks and perhaps embedding. (J. N. Matias, K. Munger, M. A.
Le Quere, C. Ebersole. 2021. The Upworthy Research Archive, a time series of 32,487 experiments in
U.S. media. Scientific Data 8, 195. OSF jd64p. Research use with citation; nothing of it is
shipped.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from depsue import rng
from depsue.check import check_logs, guess_mapping
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.logs import LoggedData
from depsue.data.reading import open_source
from depsue.data.requests import Candidates, Requests
from depsue.data.writing import write_items, write_logs
from depsue.errors import DataError, FileError, require
from depsue.exploration.rounds import run_exploration
from depsue.exploration.settings import ExploreSettings
from depsue.policies import BasePolicy, BroughtPolicy, Uniform
from depsue.protocols import Policy
from depsue.rewards import RewardSettings
from depsue.shop import decided, mean_of_choices

PUBLISHED = {"clickability_test_id": "test", "test_week": "week", "": "package"}
"""Columns of the archive's CSV files, and what they are called here."""
NEEDED = ("test", "package", "week", "impressions", "clicks")
WORDS = 32
"""Numbers that stand for a headline where the file has no embedding: hashed words."""
BROKEN = (201325, 201401)
"""Weeks in which randomisation was broken: 24 June 2013 to 12 January 2014, in the archive's own
numbers, which begin with the first Monday of a year. (In 2024 its authors announced that it was
from 25 June to 10 January.)"""
FEWEST = 100
"""Impressions of a package below which its rate says too little; its test is left out of worlds."""
CURE = (
    "download the archive from https://osf.io/jd64p, and name its file with --data, or the folder "
    "above it with the variable DEPSUE_DATA"
)


@dataclass(frozen=True, eq=False)
class UpworthyTests:
    """t tests with m packages; those of test i are starts[i] to starts[i + 1].

    Args:
        tests: (t,) their ids.
        week: (t,) year and week, such as 201326; week 1 begins with the first Monday of the year.
        starts: (t + 1,) where the packages of each begin.
        package: (m,) ids.
        text: (m, d) numbers that stand for the headlines.
        impressions: (m,) how often each package was shown.
        clicks: (m,) how often it was clicked.
    """

    tests: np.ndarray[tuple[int], np.dtype[np.str_]]
    week: IntArray
    starts: IntArray
    package: IntArray
    text: FloatArray
    impressions: IntArray
    clicks: IntArray

    def __len__(self) -> int:
        return len(self.tests)

    @property
    def sizes(self) -> IntArray:
        """(t,) packages of each test."""
        return np.diff(self.starts)

    @property
    def test(self) -> IntArray:
        """(m,) which test each package belongs to."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def take(self, kept: Mask) -> UpworthyTests:
        """Some of the tests, with all of their packages."""
        mine = kept[self.test]
        return UpworthyTests(
            self.tests[kept],
            self.week[kept],
            np.concatenate([[0], np.cumsum(self.sizes[kept])]),
            self.package[mine],
            self.text[mine],
            self.impressions[mine],
            self.clicks[mine],
        )

    def outside(self, weeks: tuple[int, int] = BROKEN) -> UpworthyTests:
        """The tests of all other weeks."""
        return self.take((self.week < weeks[0]) | (self.week > weeks[1]))


def read_upworthy(path: str | Path) -> UpworthyTests:
    """Read the tests with at least two packages out of a CSV or Parquet file, all checked.

    Args:
        path: the file, or the folder that holds packages.parquet.
    """
    file = Path(path)
    file = file / "packages.parquet" if file.is_dir() else file
    rule = "the Upworthy archive is one CSV or Parquet file"
    if not file.is_file():
        raise FileError(rule, found=f"no file at {file}", cure=CURE)
    try:
        table = pl.read_csv(file) if file.suffix == ".csv" else pl.read_parquet(file)
    except (pl.exceptions.PolarsError, OSError) as problem:
        raise FileError(rule, found=f"{type(problem).__name__} in {file}", cure=CURE) from problem
    table = table.rename({old: new for old, new in PUBLISHED.items() if old in table.columns})
    if "package" not in table.columns:
        table = table.with_row_index("package")
    missing = [name for name in NEEDED if name not in table.columns]
    if missing:
        raise DataError(
            f"the archive has the columns {', '.join(NEEDED)}",
            column=missing[0],
            found=f"{', '.join(table.columns[:12])}",
            cure=CURE,
        )
    table = table.with_columns(pl.col("test").cast(pl.String)).sort("test", "package")
    counts = table.select("impressions", "clicks").to_numpy()
    wrong = np.flatnonzero(~((counts[:, 1] >= 0) & (counts[:, 0] >= counts[:, 1])))
    if len(wrong):
        raise DataError(
            "a package has at least as many impressions as clicks",
            column="clicks",
            row=int(wrong[0]),
            value=counts[wrong[0]].tolist(),
            count=len(wrong),
            cure=CURE,
        )
    sizes = table.group_by("test", maintain_order=True).agg(pl.len(), pl.col("week").min())
    every = UpworthyTests(
        tests=sizes["test"].to_numpy().astype(str),
        week=sizes["week"].to_numpy().astype(np.int64),
        starts=np.concatenate([[0], np.cumsum(sizes["len"].to_numpy().astype(np.int64))]),
        package=table["package"].to_numpy().astype(np.int64),
        text=_text(table),
        impressions=counts[:, 0].astype(np.int64),
        clicks=counts[:, 1].astype(np.int64),
    )
    require(len(every) > 0, "there must be a test", found="none", cure=CURE, error=FileError)
    return every.take(every.sizes > 1)


def impressions_as_logs(tests: UpworthyTests, each: int, *, seed: int) -> LoggedData:
    """About `each` impressions a test, drawn without replacement from all it had, as logs of pi0.

    What was shown is what the site really showed, so that `check` sees how it was drawn; whether
    it was clicked is drawn with the package's observed rate.
    """
    draw = rng.generator(seed, "upworthy impressions")
    test, place = [], []
    for i in range(len(tests)):
        mine = np.arange(tests.starts[i], tests.starts[i + 1])
        shown = tests.impressions[mine]
        total = int(min(each, shown.sum()))
        counts = draw.multivariate_hypergeometric(shown, total)
        place.append(np.repeat(mine, counts))
        test.append(np.full(total, i))
    rows, shown_at = np.concatenate(test), np.concatenate(place)
    rate = tests.clicks / np.maximum(tests.impressions, 1)
    return LoggedData.from_arrays(
        contexts=_contexts(tests),
        context_rows=rows,
        candidates=_sets(tests, np.repeat(1 / tests.sizes, tests.sizes)),
        actions=tests.package[shown_at],
        rewards=draw.random(len(rows)) < rate[shown_at],
        propensities=1 / tests.sizes[rows],
        catalogue=Catalogue(tests.package, np.zeros(len(tests.package), dtype=bool), tests.text),
        r_max=1.0,
        times=_monday(tests.week)[rows] + draw.integers(0, 7 * 86_400, len(rows)),
    )


class UpworthyWorld:
    """An `Environment`: visitors come to tests, see a package, and click with its observed rate.

    Some packages of each test are declared new, and pi0 shows the others evenly. Tests come up
    equally often. The observed rates are the truth here, though each is an estimate.

    Args:
        tests: those without broken randomisation: `UpworthyTests.outside`.
        new: how many packages of each test are new, at most; pi0 keeps one at least.
        known: whether requests bring pi0's probabilities ("logged"), or pi0 is asked ("called").
        seed: which packages are new, and what visitors do.
        first: (m,) of each test the packages with the smallest are new; None goes by a hash.
    """

    def __init__(
        self,
        tests: UpworthyTests,
        *,
        new: int = 1,
        known: str = "logged",
        seed: int,
        first: FloatArray | None = None,
    ) -> None:
        require(new >= 1, "some packages of each test must be new", found=new)
        require(known in ("called", "logged"), "pi0 is called or logged", found=known)
        shown = np.minimum.reduceat(tests.impressions, tests.starts[:-1])
        self.tests = tests = tests.take(shown >= FEWEST)
        self.known, self._seed = known, seed
        # a hash of its id decides whether a package is new: it has nothing to do with its clicks
        order = np.array([_mixed(seed, package) for package in tests.package.tolist()])
        sorted_ = np.lexsort((order, tests.test) if first is None else (order, first, tests.test))
        rank = np.arange(len(order)) - tests.starts[tests.test[sorted_]]
        novel = np.zeros(len(order), dtype=bool)
        novel[sorted_] = rank < np.minimum(new, tests.sizes - 1)[tests.test[sorted_]]
        self._catalogue = Catalogue(tests.package, novel, tests.text)
        even = ~novel / np.add.reduceat((~novel).astype(float), tests.starts[:-1])[tests.test]
        sets = _sets(tests, even if known == "logged" else None)
        self.requests = Requests(_contexts(tests), sets)
        self.rates = tests.clicks / tests.impressions

    @property
    def catalogue(self) -> Catalogue:
        """All packages of all tests."""
        return self._catalogue

    @property
    def logging_policy(self) -> BasePolicy:
        """pi0: even among the packages of a test that are not new."""
        if self.known == "logged":
            return BroughtPolicy(len(self._catalogue))
        return Uniform(~self._catalogue.novel)

    def deploy(self, policy: Policy, n: int, *, round: int) -> LoggedData:
        """n decisions, as the logs of that round."""
        draw = rng.generator(self._seed, "upworthy", round)
        return self.decisions(policy, draw.integers(0, len(self.requests), n), draw, round)

    def decisions(
        self, policy: Policy, rows: IntArray, draw: np.random.Generator, round: int
    ) -> LoggedData:
        """Decisions at the given (n,) tests, as the logs of a round."""
        n = len(rows)
        action, propensity, _ = decided(policy, self.logging_policy, self.requests, rows, draw)
        return LoggedData.from_arrays(
            contexts=self.requests.contexts,
            context_rows=rows,
            candidates=self.requests.sets,
            actions=self._catalogue.ids[action],
            rewards=draw.random(n) < self.rates[action],
            propensities=propensity,
            catalogue=self._catalogue,
            r_max=1.0,
            rounds=np.full(n, round),
            times=round + np.sort(draw.random(n)),
        )

    def value(self, policy: Policy) -> float:
        """V(pi), exactly."""
        return self._mean(policy, self.rates)

    def novelty(self, policy: Policy) -> float:
        """N(pi), exactly."""
        return self._mean(policy, self._catalogue.novel.astype(np.float64))

    def value_of(self, policy: Policy, tests: IntArray) -> float:
        """V(pi) where only the given tests come up, exactly."""
        sets = self.requests.take(tests)
        if sets.sets is None:
            return mean_of_choices(policy, self.logging_policy, sets, self.rates)
        worth = self.rates[sets.sets.items]
        return mean_of_choices(policy, self.logging_policy, sets, worth)

    def _mean(self, policy: Policy, by_item: FloatArray) -> float:
        sets = self.requests.sets
        worth = by_item if sets is None else by_item[sets.items]
        return mean_of_choices(policy, self.logging_policy, self.requests, worth)


def story(tests: UpworthyTests, folder: Path, each: int, rows: int, seed: int) -> Iterator[str]:
    """What `check` finds, with and without the broken weeks; then a campaign, line by line.

    Args:
        tests: all tests.
        folder: where logs.parquet and items.parquet are written.
        each: impressions of a test in these logs.
        rows: of a round; 0 for no campaign.
        seed: of all draws.
    """
    for name, some in (("all weeks", tests), ("without the broken weeks", tests.outside())):
        logs = impressions_as_logs(some, each, seed=seed)
        write_logs(logs, folder / "logs.parquet")
        write_items(logs.catalogue, folder / "items.parquet")
        source = open_source(folder / "logs.parquet")
        report = check_logs(source, folder / "items.parquet", guess_mapping(source)[0])
        found = [finding for finding in report.findings if finding.name == "sample-ratio"]
        yield f"{name}: {len(some):,} tests, {len(logs):,} rows"
        yield f"  {found[0].value if found else 'nothing refutes how often items were shown'}"
    if rows:
        world = UpworthyWorld(tests.outside(), seed=seed)
        yield from campaign_table(world, rows, seed=seed)


def campaign_table(world: UpworthyWorld, rows: int, *, rounds: int = 3, seed: int = 0) -> list[str]:
    """A campaign of some rounds, its verdicts beside the truth: lines of a Markdown table.

    Args:
        world: tests, some of whose packages are new.
        rows: of the first logs, and of each round.
        rounds: K.
        seed: of all training.
    """
    settings = ExploreSettings(
        deployments=rounds, objective="most novelty", rewards=RewardSettings(members=1)
    )
    result = run_exploration(world, rows * rounds, settings, seed=seed)
    pi0 = world.value(world.logging_policy)
    lines = [
        "| round | certificate | served | share of new packages | true V / V(pi0) |",
        "|---|---|---|--:|--:|",
    ]
    for deployment in result.deployments:
        explored = deployment.explored
        policy, certificate = explored.policy, explored.certificate
        passed = certificate is not None and certificate.passed
        lines.append(
            f"| {deployment.k} | {'passed' if passed else 'failed'} "
            f"| {'certified' if explored.certified else 'what is certain'} "
            f"| {world.novelty(policy):.3f} | {world.value(policy) / pi0:.3f} |"
        )
    return lines


def _sets(tests: UpworthyTests, pi0: FloatArray | None) -> Candidates:
    """The packages of each test; the catalogue has them in the same order."""
    return Candidates.of_flat(tests.sizes, np.arange(len(tests.package)), pi0)


def _contexts(tests: UpworthyTests) -> FloatArray:
    """(t, d) what a test is about: the mean of its headlines."""
    sums = np.add.reduceat(tests.text, tests.starts[:-1], axis=0)
    return np.asarray(sums / tests.sizes[:, None], dtype=np.float32)


def _text(table: pl.DataFrame) -> FloatArray:
    """(m, d) the embeddings, or else hashed words of the headlines."""
    if "embedding" in table.columns:
        rows = [np.asarray(row, dtype=np.float32) for row in table["embedding"].to_list()]
        require(
            len({len(row) for row in rows}) == 1,
            "every headline has an embedding of as many numbers",
            found=f"{sorted({len(row) for row in rows})}",
            cure=CURE,
        )
        return np.stack(rows)
    out = np.zeros((len(table), WORDS), dtype=np.float32)
    headlines = table["headline"].to_list() if "headline" in table.columns else []
    for row, headline in enumerate(headlines):
        for word in str(headline or "").lower().split():
            digest = hashlib.sha256(word.encode()).digest()
            out[row, digest[0] % WORDS] += 1.0 if digest[1] % 2 else -1.0
        out[row] /= max(float(np.linalg.norm(out[row])), 1.0)
    return out


def _monday(week: IntArray) -> np.ndarray[tuple[int], np.dtype[np.datetime64]]:
    """(t,) the first second of a week, given as year and week."""
    january = (week // 100 - 1970).astype("datetime64[Y]").astype("datetime64[D]")
    monday = january + (4 - january.astype(np.int64)) % 7  # the first of the year; day 4 was one
    return np.asarray((monday + 7 * (week % 100 - 1)).astype("datetime64[s]"))


def _mixed(seed: int, package: int) -> int:
    return rng.derive(seed, "new package", package)
