"""The tree in docs/architecture.md: one line a file, the first line of its docstring."""

from __future__ import annotations

import ast
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "depsue"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- tree -->\n", "<!-- end of tree -->"


def first_line(path: Path) -> str:
    """What a file says it is."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]


def tree() -> str:
    """A table for each package, the files at the top first."""
    files = sorted(SOURCE.rglob("*.py"), key=lambda path: (path.parent != SOURCE, path))
    parts = []
    for folder, members in groupby(files, key=lambda path: path.parent):
        rows = []
        heading = ""
        for path in members:
            name = path.relative_to(SOURCE).as_posix()
            if path.name == "__init__.py" and folder != SOURCE:
                heading = f"**{name.removesuffix('__init__.py')}** {first_line(path)}\n\n"
            elif path.name not in ("__init__.py", "__main__.py", "_version.py"):
                rows.append(f"| `{name}` | {first_line(path)} |")
        parts.append(heading + "| file | what it holds |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n" + "\n".join(parts) + "\n"


def page(text: str) -> str:
    """The page with the tree as it is now."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + tree() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
