"""The example on the page is what the command prints."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from depsue.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "check.md"


def test_the_output_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    first = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    exec(compile(first, PAGE.name, "exec"), {})
    result = CliRunner().invoke(app, ["check", "logs.parquet", "items.csv"])
    assert result.exit_code == 3
    assert (
        result.output.strip() == re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL)[0].strip()
    )


def test_every_finding_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    source = Path(PAGE.parents[1] / "src" / "depsue" / "check")
    code = "\n".join(path.read_text(encoding="utf-8") for path in source.glob("*.py"))
    names = set(re.findall(r'CheckFinding(?:\.of)?\(\s*"([a-z-]+)"', code))
    assert len(names) > 20
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
