"""Lists of candidates: what is counted, each rule with its cure, and how pi0 is known."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.check.conftest import check, names

from depsue.check import check_logs
from depsue.data.mapping import LogMapping, write_mapping
from depsue.data.reading import Source
from depsue.diagnostics import stream_sample_ratio

ITEMS = np.array(["tea", "milk", "mate", "cola", "soda", "new"])
LANDS = ("no", "se", "dk", "fi", "is", "ee")
SCORES = np.array([0.0, 1.0, 0.5, -0.5, 0.2])
MAPPING = LogMapping(
    "shown",
    "click",
    "p",
    candidates="shortlist",
    probabilities="of_all",
    version="ranker",
    time="at",
)


def requests(rows: int = 3000, seed: int = 0) -> pl.DataFrame:
    """Each old item is in stock in 70% of requests, tea always; the new one in half of them."""
    draw = np.random.default_rng(seed)
    stock = draw.random((rows, 5)) < 0.7
    stock[:, 0] = True
    shares = np.where(stock, np.exp(SCORES), 0.0)
    shares /= shares.sum(axis=1, keepdims=True)
    action = (draw.random(rows)[:, None] > shares.cumsum(axis=1)).sum(axis=1).clip(max=4)
    lists, of_all = [], []
    for row in range(rows):
        items = [*np.flatnonzero(stock[row]), *([5] if row % 2 else [])]
        lists.append(ITEMS[items].tolist())
        of_all.append(np.append(shares[row], 0.0)[items].tolist())
    return pl.DataFrame(
        {
            "shown": ITEMS[action],
            "click": (draw.random(rows) < 0.2).astype(int),
            "p": shares[np.arange(rows), action],
            "shortlist": lists,
            "of_all": of_all,
            "ranker": np.where(np.arange(rows) < rows // 3, "v1", "v2"),
            "at": np.datetime64("2026-03-01T00:00:00", "us") + np.arange(rows).astype("m8[s]"),
        }
    )


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return requests()


@pytest.fixture
def items(tmp_path: Path) -> Path:
    path = tmp_path / "items.csv"
    pl.DataFrame({"id": ITEMS, "novel": ITEMS == "new"}).write_csv(path)
    return path


def with_lists(table: pl.DataFrame, change: Any, column: str = "shortlist") -> pl.DataFrame:
    """The table with the list of row 7 changed."""
    lists = table[column].to_list()
    lists[7] = change(lists[7])
    return table.with_columns(pl.Series(column, lists))


def test_good_logs_are_ready_and_told(table: pl.DataFrame, items: Path) -> None:
    report = check_logs(table, items, MAPPING)
    assert names(report) == [] and report.verdict == "ready"
    assert report.facts.candidates == "4 in the median, 1 to 6"
    assert report.facts.requests_with_new == 0.5
    assert report.facts.versions == 2
    told = [note for note in report.notes if note.startswith("pi0 changed")]
    assert len(told) == 1 and "'v1' (1,000 rows, 2026-03-01 00:00:00" in told[0]
    assert report.facts.inverse_propensity_ratio == pytest.approx(1, abs=0.05)
    text, plain = str(report), report.as_json()
    last = text.splitlines()[-1]
    assert last.startswith("A campaign can be created, and pi0 is known so: logged, by its prob")
    assert plain["outlook"] == {"campaign": True, "pi0": "logged", "sentence": last}


def test_pi0_is_chosen_where_only_the_shown_item_has_a_probability(table: pl.DataFrame) -> None:
    report = check(table, mapping=replace(MAPPING, probabilities=None))
    assert report.outlook.pi0 == "chosen"
    assert "pi0 is known so: chosen" in report.outlook.sentence
    assert "--pi0" in report.outlook.sentence


def test_a_table_of_propensities_is_logged(good: pl.DataFrame) -> None:
    assert check(good).outlook.pi0 == "chosen"
    table = good.with_columns(propensity=pl.lit(0.25))
    evenly = np.random.default_rng(5).integers(0, 4, len(good)) + 10
    even = table.with_columns(item_id=pl.Series(evenly))
    assert check(even).outlook.pi0 == "logged"
    broken = check(good.with_columns(propensity=pl.lit(1.0)))
    assert not broken.outlook.campaign
    assert broken.outlook.sentence.startswith("No campaign can be created: the logging policy")


@pytest.mark.parametrize(
    ("change", "column", "finding", "value"),
    [
        (lambda v: [], None, "candidates-empty", "1 row of 3,000; the first is row 7"),
        (lambda v: [*v, v[0]], "twice", "candidates-repeated", "row 7: 'tea'"),
        (lambda v: [f"{x}?" for x in v], "shortlist", "candidates-shown", "row 7: "),
        (lambda v: [x * 0.9 for x in v], "of_all", "probabilities-sum", "they sum to 0.9"),
        (lambda v: [x * 2 - 1 for x in v], "of_all", "probabilities-range", "outside"),
        (lambda v: [0.0] * len(v), "of_all", "probabilities-sum", "they sum to 0"),
        (lambda v: v[1:], "of_all", "candidates", "for"),
        (lambda v: None, "shortlist", "candidates", "None"),
    ],
)
def test_a_broken_rule_is_found_and_named(
    table: pl.DataFrame, change: Any, column: str | None, finding: str, value: str
) -> None:
    if column in (None, "twice"):
        wrong = with_lists(table, change)
        more = (lambda v: []) if column is None else (lambda v: [*v, 0.0])
        wrong = with_lists(wrong, more, "of_all")
    else:
        wrong = with_lists(table, change, column)
    report = check(wrong, mapping=MAPPING)
    found = {seen.name: seen for seen in report.findings}
    assert finding in found, names(report)
    assert value in found[finding].value and found[finding].cure
    assert not report.usable and not report.outlook.campaign


def test_a_propensity_that_pi0_denies(table: pl.DataFrame) -> None:
    row = pl.int_range(len(table))
    wrong = table.with_columns(p=pl.when(row == 9).then(pl.col("p") / 2).otherwise("p"))
    report = check(wrong, mapping=MAPPING)
    assert names(report) == ["probabilities-shown"]
    assert "the first is row 9" in report.findings[0].value
    later = wrong.with_columns(deployment=pl.when(row == 9).then(1).otherwise(0))
    assert names(check(later, mapping=replace(MAPPING, round="deployment"))) == []


def test_one_wrong_row_counts_as_one_in_the_sample_ratio(table: pl.DataFrame) -> None:
    """Its propensity must not stand for those of all rows with its request and item."""
    row = pl.int_range(len(table))
    for wrong in range(0, 400, 10):
        half = table.with_columns(p=pl.when(row == wrong).then(pl.col("p") / 2).otherwise("p"))
        found = stream_sample_ratio(Source.of(half), MAPPING)
        assert found is not None and found.ok, (wrong, str(found))


def test_a_check_says_the_same_in_every_process(table: pl.DataFrame, tmp_path: Path) -> None:
    """Whatever the hash seed of Python and the number of threads; ties go by value."""
    row = pl.int_range(len(table))
    table.with_columns(
        pl.when(row == 9).then(pl.col("p") / 2).otherwise("p").alias("p"),
        user_id=row % 25,
        land=pl.Series(LANDS).gather(row % 6),
    ).write_parquet(tmp_path / "logs.parquet", row_group_size=500)
    pl.DataFrame({"id": ITEMS[:2]}).write_csv(tmp_path / "items.csv")
    mapping = replace(MAPPING, unit="user_id", categorical={"land": LANDS})
    write_mapping(mapping, tmp_path / "m.toml")
    said = set()
    for seed, threads in (("1", "1"), ("2", "3")):
        command = (sys.executable, "-m", "depsue", "check", "logs.parquet", "items.csv")
        ran = subprocess.run(
            [*command, "--mapping", "m.toml"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed, "POLARS_MAX_THREADS": threads},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "candidates-unknown" in ran.stdout, ran.stderr
        said.add(ran.stdout)
    assert len(said) == 1


def test_an_entry_in_the_items_is_enough(table: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    pl.DataFrame({"id": ITEMS[:4]}).write_csv(path)
    report = check_logs(table, path, MAPPING)
    found = {seen.name: seen for seen in report.findings}
    assert "2 items are not: 'new', 'soda'" in found["candidates-unknown"].value
    assert "an entry is enough" in found["candidates-unknown"].cure
    pl.DataFrame({"id": ITEMS, "novel": (ITEMS == "new") | (ITEMS == "cola")}).write_csv(path)
    wrong = check_logs(table.filter(pl.col("shown") != "cola"), path, MAPPING)
    assert "novel-probability" in names(wrong)


def test_rows_of_an_item_that_were_removed(table: pl.DataFrame) -> None:
    left = table.filter(pl.col("shown") != "mate")
    report = check(left, mapping=MAPPING)
    found = {seen.name: seen for seen in report.findings}
    assert "'mate' was shown about" in found["candidates-removed"].value
    assert "--kept 0." in found["candidates-removed"].cure


def test_rows_that_were_removed_without_lists_are_seen_in_the_sums() -> None:
    draw = np.random.default_rng(0)
    item = draw.integers(0, 5, 8000)
    left = item[item != 4]
    table = pl.DataFrame(
        {
            "action": left,
            "reward": (draw.random(len(left)) < 0.2).astype(int),
            "propensity": np.full(len(left), 0.2),
        }
    )
    report = check(table)
    cures = {seen.name: seen.cure for seen in report.findings}
    assert "--kept 0.8" in cures["propensities-sum"]


def test_places_in_the_items_file(table: pl.DataFrame, items: Path) -> None:
    place = {item: number for number, item in enumerate(ITEMS.tolist())}
    lists = [[place[item] for item in row] for row in table["shortlist"].to_list()]
    numbered = table.with_columns(shortlist=pl.Series(lists))
    mapping = replace(MAPPING, given_as="index")
    report = check_logs(numbered, items, mapping)
    assert names(report) == [] and report.facts.requests_with_new == 0.5
    alone = check_logs(numbered, None, mapping)
    assert alone.usable and any("give ITEMS" in note for note in alone.notes)


def test_whole_ids_and_json_are_counted_alike(table: pl.DataFrame) -> None:
    place = {item: number for number, item in enumerate(ITEMS.tolist())}
    lists = [[place[item] for item in row] for row in table["shortlist"].to_list()]
    numbered = table.with_columns(
        shown=pl.Series([float(place[item]) for item in table["shown"].to_list()]),
        shortlist=pl.Series([str(row) for row in lists]),
    )
    report = check(numbered, mapping=MAPPING)
    assert names(report) == [] and report.facts.candidates == "4 in the median, 1 to 6"


def test_ids_that_are_said_to_be_places_are_refused(table: pl.DataFrame, items: Path) -> None:
    report = check_logs(Source.of(table), items, replace(MAPPING, given_as="index"))
    (finding,) = (each for each in report.findings if each.severity == "error")
    assert "whole numbers" in finding.rule and "given_as" in finding.cure and not report.usable


def test_no_share_is_named_that_could_not_be_kept(table: pl.DataFrame) -> None:
    left = table.filter(pl.col("shown") != "tea")
    certain = [[float(item == "tea") for item in each] for each in left["shortlist"]]
    found = {seen.name: seen for seen in check(
        left.with_columns(of_all=pl.Series(certain)), mapping=MAPPING).findings}  # fmt: skip
    assert "give the rows" in found["candidates-removed"].cure
    assert "--kept" not in found["candidates-removed"].cure
