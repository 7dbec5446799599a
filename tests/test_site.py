"""The docs site: it names every page, every command has a guide, and it builds without the net."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.main import get_command

import depsue
from depsue.cli.main import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SETTINGS = (ROOT / "mkdocs.yml").read_text()
NAV = re.findall(r": (\S+\.md)$", SETTINGS.split("\nnav:\n")[1], flags=re.MULTILINE)


def test_the_nav_names_every_page_once() -> None:
    pages = [path.name for path in DOCS.glob("*.md")]
    pages += [f"results/{path.name}" for path in (DOCS / "results").glob("*.md")]
    assert sorted(NAV) == sorted(pages)


def test_every_command_has_a_guide_in_the_nav() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert [name for name in commands if f"{name}.md" not in NAV] == []


def test_the_reference_has_every_public_name_once() -> None:
    named = re.findall(r"^::: depsue\.(\w+)$", (DOCS / "reference.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(depsue.__all__)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install 'depsue[docs]'")
    target = tmp_path_factory.mktemp("site")
    # without --quiet, which would hide warnings from --strict
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(target)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target


def test_every_page_is_built_with_what_it_links_to(site: Path) -> None:
    """mkdocs checks links between pages; this is about files: reports, figures, scripts, styles."""
    for page in [*site.glob("*.html"), *(site / "results").glob("*.html")]:
        if page.name == "404.html":  # its links are from the server's root
            continue
        for target in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text()):
            if not re.match(r"[a-z]+:", target):
                assert (page.parent / target).exists(), (page.name, target)


def test_the_reference_shows_docstrings(site: Path) -> None:
    text = (site / "reference.html").read_text()
    assert "The first round of certified exploration" in text
    assert 'id="depsue.explore"' in text


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*")
    for page in site.rglob("*.html"):
        assert fetched.findall(page.read_text()) == [], page.name
    for style in site.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//|@import", style.read_text()) == [], style.name
