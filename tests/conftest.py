"""Shared by all tests: what may be skipped, and when nothing may."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from depsue import rng
from depsue.certificates import registration

settings.register_profile("depsue", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("soak", deadline=None, max_examples=5000)
settings.load_profile("soak" if os.environ.get("DEPSUE_SOAK") else "depsue")


class _Secrets:
    """Secrets of folds that come out the same for the same test, whatever ran before it."""

    drawn = 0

    @classmethod
    def draw(cls) -> str:
        cls.drawn += 1
        return rng.secret(cls.drawn, "tests")


@pytest.fixture(scope="session", autouse=True)
def seeded_secrets() -> Iterator[None]:
    """In place of the ledger's own chance, so that tests are seeded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration, "draw_secret", _Secrets.draw)
        yield


def pytest_runtest_logstart() -> None:
    """Before anything of a test is set up."""
    _Secrets.drawn = 0


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
