"""Every verdict on the same rows is counted, also by another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from depsue.certificates import Reads
from depsue.errors import ConfigError, FileError


def test_a_second_read_is_refused_and_other_rows_are_free() -> None:
    reads = Reads()
    assert reads.begin("a") == 1 and reads.begin("b") == 1
    with pytest.raises(ConfigError, match=r"one verdict.*attempt 2 on data a.*retries=True"):
        reads.begin("a")
    assert reads.delta_of_attempt(0.05, 1) == 0.05


def test_retries_sum_to_at_most_delta() -> None:
    reads = Reads(retries=True)
    assert [reads.begin("a") for _ in range(3)] == [1, 2, 3]
    levels = [reads.delta_of_attempt(0.05, attempt) for attempt in range(1, 60)]
    assert levels[:3] == pytest.approx([0.025, 0.0125, 0.00625])
    assert sum(levels) <= 0.05


def test_a_file_remembers(tmp_path: Path) -> None:
    path = tmp_path / "reads.json"
    assert Reads(path).begin("a") == 1
    with pytest.raises(ConfigError, match="attempt 2"):
        Reads(path).begin("a")
    assert Reads(path).begin("b") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["reads.json"]


def test_two_who_share_a_file_see_each_others_reads(tmp_path: Path) -> None:
    path = tmp_path / "reads.json"
    mine, theirs = Reads(path), Reads(path)
    assert mine.begin("a") == 1
    with pytest.raises(ConfigError, match="attempt 2"):
        theirs.begin("a")
    theirs.begin("b")
    with pytest.raises(ConfigError, match="attempt 2"):
        mine.begin("b")


def test_the_read_is_on_disk_before_the_rows_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "reads.json"
    Reads(path, retries=True).begin("a")  # and here the process dies
    assert Reads(path, retries=True).begin("a") == 2


def test_retries_are_decided_before_the_first_verdict(tmp_path: Path) -> None:
    path = tmp_path / "reads.json"
    Reads(path).begin("a")
    words = r"before the first verdict.*retries=False in.*retries=True now.*retries=False"
    with pytest.raises(ConfigError, match=words):
        Reads(path, retries=True)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"retries": false, "reads": {"a": "x"}}'])
def test_a_damaged_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "reads.json"
    path.write_text(text)
    with pytest.raises(FileError, match=r"reads of a campaign.*reads.json.*from a copy"):
        Reads(path)
