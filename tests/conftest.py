"""Shared by all tests: what may be skipped, and when nothing may."""

import os

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
