"""The demo's report in a real browser."""

import shutil
import subprocess
from pathlib import Path

import pytest

from depsue.demo.demo import DemoSettings, run_demo
from depsue.demo.report import write_report
from depsue.learners import OpgSettings, SafeOpgSettings
from depsue.rewards import RewardSettings
from depsue.world import SyntheticSettings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_the_report_renders_whole_and_fits_a_phone(tmp_path: Path) -> None:
    small = DemoSettings(
        world=SyntheticSettings(users=50, supported=10, novel=3, d=3),
        rows=3000,
        rewards=RewardSettings(members=2, max_epochs=1),
        naive=OpgSettings(steps=5),
        safe=SafeOpgSettings(steps=5),
    )
    page = write_report(run_demo(small, seed=0), tmp_path)
    probe = tmp_path / "probe.html"
    probe.write_text(
        page.read_text() + "<script>const d = document, e = d.documentElement;"
        "d.title = [e.scrollWidth <= e.clientWidth, d.querySelectorAll('tbody tr').length,"
        "[...d.querySelectorAll('figure > svg')].every(s => s.getBoundingClientRect().width > 200)"
        "].join('|');</script>"
    )
    command = [
        str(CHROMIUM),
        *FLAGS,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=500,900",
        "--dump-dom",
        probe.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "<title>true|7|true</title>" in done.stdout
