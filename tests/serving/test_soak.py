"""A small dose of the soak: kills under load, and then every book closes (`make soak` has more)."""

from __future__ import annotations

from pathlib import Path

from tests.database.conftest import Server

from depsue_research.soak import PartSettings, run_part


def test_a_service_on_a_file_keeps_its_word(home: Path, tmp_path: Path) -> None:
    part = PartSettings("sqlite", kills=10, seed=1, clients=3, life=0.15, wait=0.5)
    result = run_part(part, home, tmp_path / "part")
    assert not result.breaks, "\n".join(map(str, result.breaks))
    assert result.counts["kills of a service"] >= 10
    assert result.counts["acknowledged decisions"] > 200


def test_two_services_on_postgres_keep_their_word(
    home: Path, tmp_path: Path, postgres: Server
) -> None:
    part = PartSettings("postgresql", kills=3, seed=1, clients=3, life=0.15, wait=0.5)
    result = run_part(part, home, tmp_path / "part", postgres=postgres)
    assert not result.breaks, "\n".join(map(str, result.breaks))
    assert result.counts["acknowledged decisions"] > 200
