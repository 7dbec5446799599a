"""Are the packages that are installed those that were tested, and is one known to be unsafe?

    python tools/audit.py [--fetch] [--require-advisories]

Checks that everything declared in pyproject.toml and everything installed has its pin in
constraints.txt and is of that version, that `pip check` is content, and, with pip-audit, that no
pinned version has a known vulnerability. --fetch installs pip-audit in a folder of its own, away
from what is audited. Where no source of advisories can be reached this is said, and nothing is
called audited; with --require-advisories it is an error.

Exit codes: 0 nothing was found, 1 something was, 3 advisories were required and not to be had.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from depsue.plural import counted

ROOT = Path(__file__).parents[1]
PIP_AUDIT = "pip-audit==2.10.1"
SOURCES = ("pypi", "osv")
OWN = frozenset({"depsue", "depsue-research", "pip"})
"""Installed, and pinned by nobody: the packages of this repository, and what installs."""


@dataclass(frozen=True)
class Advisories:
    """What a source of advisories said.

    Args:
        findings: vulnerabilities, a line each.
        asked: packages that it knows.
        unknown: packages that it could not say anything about.
        problem: why none could be asked; "" if one could.
    """

    findings: tuple[str, ...] = ()
    asked: int = 0
    unknown: tuple[str, ...] = ()
    problem: str = ""


def plain(name: str) -> str:
    """A package's name as indexes compare them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> tuple[dict[str, str], list[str]]:
    """(versions by name, what is wrong with the file) of constraints.txt."""
    versions: dict[str, str] = {}
    wrong = []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+]+)", line)
        if match is None:
            wrong.append(f"constraints.txt: not a pin: {line}")
        elif plain(match[1]) in versions:
            wrong.append(f"constraints.txt: pinned twice: {match[1]}")
        else:
            versions[plain(match[1])] = match[2]
    return versions, wrong


def unpinned(project: Mapping[str, object], pinned: Mapping[str, str]) -> list[str]:
    """Requirements of pyproject.toml, extras included, that have no pin."""
    about = project["project"]
    assert isinstance(about, dict)
    asked = [*about.get("dependencies", [])]
    for extra in about.get("optional-dependencies", {}).values():
        asked += extra
    names = {
        plain(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]) for requirement in asked
    }
    return [f"pyproject.toml: {name} has no pin" for name in sorted(names - set(pinned))]


def unlike(installed: Iterable[tuple[str, str]], pinned: Mapping[str, str]) -> list[str]:
    """Installed packages without a pin, or of another version; 1.0+cpu counts as 1.0."""
    findings = []
    for name, version in sorted({(plain(name), version) for name, version in installed}):
        if name in OWN:
            continue
        if name not in pinned:
            findings.append(f"installed: {name} {version} has no pin")
        elif version.partition("+")[0] != pinned[name].partition("+")[0]:
            findings.append(f"installed: {name} {version}, pinned is {pinned[name]}")
    return findings


def pip_check() -> list[str]:
    """What `pip check` finds."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    said = (done.stdout + done.stderr).strip().splitlines()
    return [f"pip check: {line}" for line in said] if done.returncode else []


def advisories(command: Sequence[str], constraints: Path) -> Advisories:
    """Ask one source after the other, until one knows these packages."""
    problems = []
    for source in SOURCES:
        words = [*command, "--requirement", str(constraints), "--no-deps", "--disable-pip",
                 "--format", "json", "--progress-spinner", "off",
                 "--vulnerability-service", source]  # fmt: skip
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
            answer = read_answer(done.stdout)
        except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as problem:
            problems.append(f"{source}: no answer ({type(problem).__name__})")
            continue
        if answer.asked:
            return answer
        problems.append(f"{source}: knows none of {len(answer.unknown)} packages")
    return Advisories(problem="; ".join(problems))


def read_answer(text: str) -> Advisories:
    """What the JSON of pip-audit says."""
    findings, unknown, asked = [], [], 0
    for package in json.loads(text)["dependencies"]:
        if "skip_reason" in package:
            unknown.append(str(package["name"]))
            continue
        asked += 1
        for vulnerability in package["vulns"]:
            cure = ", ".join(vulnerability.get("fix_versions", [])) or "no version yet"
            words = (
                f"{package['name']} {package['version']}: {vulnerability['id']}, mended in {cure}"
            )
            findings.append(f"advisory: {words}")
    return Advisories(tuple(findings), asked, tuple(unknown))


def fetched(folder: Path) -> tuple[list[str], str]:
    """(the command of pip-audit, "") in a new folder; ([], why not) if it cannot be had."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", PIP_AUDIT],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return [], f"{PIP_AUDIT} cannot be installed"
    return [str(python), "-m", "pip_audit"], ""


def asked_for(fetch: bool, constraints: Path) -> Advisories:
    """Advisories, by pip-audit as it is installed, or fetched for this."""
    if not fetch:
        probe = [sys.executable, "-m", "pip_audit"]
        done = subprocess.run([*probe, "--version"], capture_output=True, check=False)
        if done.returncode:
            return Advisories(problem="pip-audit is not installed here; --fetch gets it")
        return advisories(probe, constraints)
    with tempfile.TemporaryDirectory() as folder:
        command, problem = fetched(Path(folder) / "audit")
        return advisories(command, constraints) if command else Advisories(problem=problem)


def report(findings: Sequence[str], heard: Advisories, packages: int, *, required: bool) -> int:
    """Say what was found; the exit code."""
    for line in (*findings, *heard.findings):
        print(line)
    print(f"pins: {counted(packages, 'package')}, {counted(len(findings), 'finding')}")
    if heard.problem:
        print(f"advisories: NOT AUDITED: {heard.problem}")
    else:
        audited = counted(heard.asked, "package")
        print(f"advisories: {audited} audited, {counted(len(heard.findings), 'finding')}")
        if heard.unknown:
            print(f"advisories: NOT AUDITED, unknown there: {', '.join(heard.unknown)}")
    if findings or heard.findings:
        return 1
    return 3 if required and (heard.problem or heard.unknown) else 0


def main(words: Sequence[str] | None = None) -> int:
    """Run the audit; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fetch", action="store_true", help="install pip-audit for this")
    parser.add_argument("--require-advisories", action="store_true", help="or exit with 3")
    options = parser.parse_args(words)
    constraints = ROOT / "constraints.txt"
    pinned, findings = pins(constraints.read_text())
    findings += unpinned(tomllib.loads((ROOT / "pyproject.toml").read_text()), pinned)
    here = [(package.metadata["Name"], package.version) for package in distributions()]
    findings += unlike(here, pinned)
    findings += pip_check()
    heard = asked_for(options.fetch, constraints)
    return report(findings, heard, len(here), required=options.require_advisories)


if __name__ == "__main__":
    sys.exit(main())
