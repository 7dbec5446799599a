"""The audit of dependencies: what it finds, and that what was not audited is never called so."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tools import audit
from tools.audit import Advisories, advisories, pins, read_answer, report, unlike, unpinned

ROOT = Path(__file__).parents[1]


def test_every_dependency_of_ours_is_pinned_once() -> None:
    pinned, wrong = pins((ROOT / "constraints.txt").read_text())
    assert wrong == [] and len(pinned) > 50
    assert unpinned(tomllib.loads((ROOT / "pyproject.toml").read_text()), pinned) == []


def test_what_is_not_a_pin_is_found() -> None:
    text = "# a comment\nAbc_D==1.0  # one more\n\nabc.d==1.1\nx>=2\ny\nz==1.*\n-e .\nhttps://x/y.whl\n"
    versions, wrong = pins(text)
    assert versions == {"abc-d": "1.0"}
    assert wrong == [
        "constraints.txt: pinned twice: abc.d",
        *(f"constraints.txt: not a pin: {one}" for one in ("x>=2", "y", "z==1.*", "-e .")),
        "constraints.txt: not a pin: https://x/y.whl",
    ]


def test_what_is_declared_without_a_pin_is_found() -> None:
    project = {
        "project": {
            "dependencies": ["Numpy>=2", "uvloop>=0.21; sys_platform != 'win32'", "a[b]>=1"],
            "optional-dependencies": {"dev": ["my.tool~=1.0"], "docs": ["numpy"]},
        }
    }
    assert unpinned(project, {"numpy": "2.0"}) == [
        "pyproject.toml: a has no pin",
        "pyproject.toml: my-tool has no pin",
        "pyproject.toml: uvloop has no pin",
    ]


def test_what_is_installed_otherwise_is_found() -> None:
    installed = [
        ("depsue", "0.1"),
        ("pip", "25"),
        ("torch", "2.13.0+cpu"),
        ("My_Tool", "1.0"),
        ("other", "1.0.1"),
        ("stray", "3"),
    ]
    pinned = {"torch": "2.13.0", "my-tool": "1.0", "other": "1.0", "absent": "1"}
    assert unlike(installed, pinned) == [
        "installed: other 1.0.1, pinned is 1.0",
        "installed: stray 3 has no pin",
    ]


SAFE: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}
UNSAFE: dict[str, Any] = {
    "name": "b",
    "version": "2",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}, {"id": "CVE-2", "fix_versions": []}],
}
UNKNOWN: dict[str, Any] = {"name": "c", "skip_reason": "not found on PyPI"}


def test_what_pip_audit_says_is_read() -> None:
    answer = read_answer(json.dumps({"dependencies": [SAFE, UNSAFE, UNKNOWN], "fixes": []}))
    assert answer == Advisories(
        (
            "advisory: b 2: PYSEC-1, mended in 2.1",
            "advisory: b 2: CVE-2, mended in no version yet",
        ),
        asked=2,
        unknown=("c",),
    )


def source(folder: Path, answers: dict[str, str]) -> list[str]:
    """The command of a program that answers as pip-audit does, by source."""
    script = folder / "said.py"
    script.write_text(
        f"import sys\nanswers = {answers!r}\n"
        "assert '--no-deps' in sys.argv and '--disable-pip' in sys.argv\n"
        "text = answers[sys.argv[sys.argv.index('--vulnerability-service') + 1]]\n"
        "print(text)\nsys.exit('PYSEC' in text)\n"
    )
    return [sys.executable, str(script)]


def said(*dependencies: dict[str, Any]) -> str:
    return json.dumps({"dependencies": list(dependencies), "fixes": []})


def test_the_second_source_is_asked_where_the_first_knows_nothing(tmp_path: Path) -> None:
    command = source(tmp_path, {"pypi": said(UNKNOWN), "osv": said(SAFE, UNSAFE)})
    heard = advisories(command, tmp_path / "constraints.txt")
    assert heard.asked == 2 and len(heard.findings) == 2 and not heard.problem
    command = source(tmp_path, {"pypi": said(SAFE), "osv": "never asked"})
    assert advisories(command, tmp_path / "constraints.txt") == Advisories(asked=1)


@pytest.mark.parametrize(
    "answers",
    [
        {"pypi": said(UNKNOWN, UNKNOWN), "osv": said()},
        {"pypi": "", "osv": "Traceback (most recent call last):"},
        {"pypi": "[]", "osv": '{"dependencies": [{}]}'},
        {},
    ],
)
def test_where_no_source_answers_nothing_is_called_audited(
    tmp_path: Path, answers: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    heard = advisories(source(tmp_path, answers), tmp_path / "constraints.txt")
    assert heard.problem and heard.asked == 0
    assert report([], heard, 7, required=False) == 0
    assert "NOT AUDITED" in capsys.readouterr().out
    assert report([], heard, 7, required=True) == 3


def test_a_program_that_is_not_there_is_no_answer(tmp_path: Path) -> None:
    heard = advisories([str(tmp_path / "nothing")], tmp_path / "constraints.txt")
    assert heard.problem.startswith("pypi: no answer")


def test_findings_end_in_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    fine = Advisories(asked=7)
    assert report([], fine, 7, required=True) == 0
    assert "NOT AUDITED" not in capsys.readouterr().out
    assert report(["installed: stray 3 has no pin"], fine, 7, required=False) == 1
    assert report([], Advisories(("advisory: b 2: PYSEC-1",), 7), 7, required=False) == 1
    said = capsys.readouterr().out
    assert "stray" in said and "PYSEC-1" in said
    partly = Advisories(asked=6, unknown=("c",))
    assert report([], partly, 7, required=False) == 0
    assert "NOT AUDITED, unknown there: c" in capsys.readouterr().out
    assert report([], partly, 7, required=True) == 3


def test_a_broken_environment_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "a 1 requires b, which is not installed.\n", "")

    monkeypatch.setattr("tools.audit.subprocess.run", broken)
    assert audit.pip_check() == ["pip check: a 1 requires b, which is not installed."]
    heard = audit.asked_for(fetch=False, constraints=Path("constraints.txt"))
    assert heard.problem == "pip-audit is not installed here; --fetch gets it"


def test_the_whole_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["a>=1"]\n')
    (tmp_path / "constraints.txt").write_text("a==1.0\n")
    monkeypatch.setattr(audit, "ROOT", tmp_path)
    monkeypatch.setattr(audit, "pip_check", lambda: [])
    monkeypatch.setattr(audit, "asked_for", lambda fetch, constraints: Advisories(asked=1))
    one = type("One", (), {"metadata": {"Name": "A"}, "version": "1.0"})
    monkeypatch.setattr(audit, "distributions", lambda: [one])
    assert audit.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "pins: 1 package, 0 findings",
        "advisories: 1 package audited, 0 findings",
    ]
    (tmp_path / "constraints.txt").write_text("a==1.1\n")
    assert audit.main(["--require-advisories"]) == 1
    assert "installed: a 1.0, pinned is 1.1" in capsys.readouterr().out
