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


def test_what_type_checkers_see_is_what_there_is() -> None:
    tree = ast.parse(Path(depsue.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = [a.name for node in block.body if isinstance(node, ast.ImportFrom) for a in node.names]
    assert sorted(seen) == depsue.__all__


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, depsue; print([m for m in sys.modules if m.split('.')[0] in "
        "('torch', 'numpy', 'polars', 'matplotlib', 'rich', 'typer')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(depsue, "Oracle")
