"""What the README and the docs say runs, and is complete."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

import depsue
from depsue.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_on_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_public_name_is_documented() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    missing = [name for name in depsue.__all__ if name not in text]
    assert missing == []


def test_every_command_and_option_is_documented() -> None:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        text = (ROOT / "docs" / f"{name}.md").read_text()
        within = getattr(command, "commands", {"": command})
        for step, inner in within.items():
            assert f"depsue {name} {step}".strip() in text
            for parameter in inner.params:
                if parameter.param_type_name == "option" and parameter.name != "help":
                    assert f"`{parameter.opts[0]}`" in text, (name, step, parameter.opts)


def test_the_readme_table_is_of_the_demos_shape() -> None:
    from depsue.demo.report import HEADINGS

    text = (ROOT / "README.md").read_text()
    assert "| " + " | ".join(HEADINGS) + " |" in text
