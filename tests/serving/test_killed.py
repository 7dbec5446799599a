"""kill -9 under load, then the books balanced; DEPSUE_KILLS sets how often."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("killed.py")
KILLS = int(os.environ.get("DEPSUE_KILLS", "8")) // 4


def test_nothing_answered_is_lost_and_nothing_is_there_twice(home: Path) -> None:
    found = subprocess.run(
        [sys.executable, str(SCRIPT), str(home.parent), "--kills", str(max(KILLS, 2))],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert found.returncode == 0, found.stderr[-3000:]
    books = json.loads(found.stdout.strip().splitlines()[-1])
    assert books["decided"] >= 80 and books["rewarded"] >= 20
