"""`import depsue` is small, light and true."""

import ast
import subprocess
import sys
from pathlib import Path

import depsue


def test_every_name_can_be_reached() -> None:
    assert depsue.__all__ == sorted(depsue.__all__)
    for name in depsue.__all__:
        assert getattr(depsue, name).__name__ == name if name != "CQL" else depsue.CQL
    assert set(depsue.__all__) <= set(dir(depsue))


def test_what_a_user_types_is_there() -> None:
    typed = {"Campaign", "Client", "LoggedData", "certify", "check_logs", "create", "explore"}
    assert typed | {"plan", "verify"} <= set(depsue.__all__)


def test_the_table_has_a_line_for_each_name() -> None:
    table = Path(depsue.__file__).with_suffix(".pyi").read_text()
    lines = [node for node in ast.parse(table).body if isinstance(node, ast.ImportFrom)]
    names = [alias.name for line in lines for alias in line.names]
    assert sorted(names) == sorted([*depsue.__all__, "__version__"])
    assert all(alias.asname == alias.name for line in lines for alias in line.names)


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, depsue; print([m for m in sys.modules if m.split('.')[0] in "
        "('torch', 'numpy', 'polars', 'matplotlib', 'rich', 'typer')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(depsue, "Oracle")
