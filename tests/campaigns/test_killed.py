"""kill -9 at random moments of every command, then the books balanced.

DEPSUE_KILLS sets how many commands are killed on SQLite (a soak run takes 200); on PostgreSQL it
is a quarter of that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.database.conftest import Server

KILLS = int(os.environ.get("DEPSUE_KILLS", "8"))
SCRIPT = Path(__file__).with_name("killed.py")


def soaked(folder: Path, kills: int, *more: str) -> int:
    """How many commands were killed."""
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), "--kills", str(kills), *more],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return sum(json.loads(ran.stdout.splitlines()[-1])["kills"].values())


def test_nothing_is_lost_on_sqlite(tmp_path: Path) -> None:
    assert soaked(tmp_path, KILLS) >= KILLS


def test_nothing_is_lost_on_postgresql(tmp_path: Path, postgres: Server) -> None:
    kills = max(KILLS // 4, 2)
    assert soaked(tmp_path, kills, "--ledger", postgres.new_schema()) >= kills
