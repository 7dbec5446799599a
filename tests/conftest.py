"""Shared by all tests: what may be skipped, and when nothing may."""

import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("depsue", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("soak", deadline=None, max_examples=5000)
settings.load_profile("soak" if os.environ.get("DEPSUE_SOAK") else "depsue")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With DEPSUE_NO_SKIPS set (as in CI), a skipped test fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("DEPSUE_NO_SKIPS"):
        return
    skipped = reporter.stats.get("skipped", [])
    if skipped:
        names = ", ".join(report.nodeid for report in skipped)
        reporter.write_line(f"skipped, which DEPSUE_NO_SKIPS forbids: {names}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """What version 0.1 wrote: a home with a campaign in its second round and its logs, policies and
    reward models of every kind; `facts.json` says what they answered."""
    with zipfile.ZipFile(Path(__file__).parent / "fixtures" / "written_by_0_1.zip") as archive:
        archive.extractall(tmp_path / "older")
    return tmp_path / "older"
