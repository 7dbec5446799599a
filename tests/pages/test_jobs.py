"""Work in the background: one piece at a time, with a result or a reason."""

from __future__ import annotations

import threading

import pytest

from depsue.errors import ConfigError
from depsue.pages.jobs import MOST_JOBS, Jobs


def test_jobs_end_with_a_result_or_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    jobs = Jobs()

    def ended(key: str, work: object) -> object:
        job = jobs.start(key, key, {}, work)  # type: ignore[arg-type]
        assert job.done.wait(60)
        return job

    def refuses(watch: object) -> None:
        raise ConfigError("a rule", found="a value")

    def breaks(watch: object) -> None:
        raise RuntimeError("secret")

    assert ended("good", lambda watch: 42).result == 42  # type: ignore[attr-defined]
    assert ended("refused", refuses).problem == "a rule. Found: a value."  # type: ignore[attr-defined]
    broken = ended("broken", breaks)
    assert "secret" not in broken.problem  # type: ignore[attr-defined]
    assert caplog.messages == ["job failed"] and "RuntimeError: secret" in caplog.text
    for k in range(MOST_JOBS):
        ended(f"more {k}", lambda watch: None)
    assert jobs.of("good") is None and jobs.of(f"more {MOST_JOBS - 1}") is not None


def test_one_job_at_a_time() -> None:
    jobs, goes_on = Jobs(), threading.Event()
    first = jobs.start("a", "verifying a", {}, lambda watch: goes_on.wait(60))
    with pytest.raises(ConfigError, match="under way: verifying a"):
        jobs.start("b", "verifying b", {}, lambda watch: None)
    assert jobs.running is first
    goes_on.set()
    assert first.done.wait(60) and jobs.running is None
