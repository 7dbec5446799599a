"""The tree: files are concepts, and no two classes share a name."""

import ast
import re
from collections import Counter
from pathlib import Path

from tools import tree

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
LONGEST = 600
MOST_WITH_ONE_USER = 15
ONE_USER: dict[str, str] = {
    "depsue.campaigns.scoring": "copied into exports, where nothing of depsue is at hand",
    "depsue.certificates.strict": "the verdict, which users call through the package",
    "depsue.cli.columns": "which column is what on the command line, apart from what plan does",
    "depsue.cli.logs": "the commands on logs, one file",
    "depsue.cli.main": "the entry of the command line, as of python -m depsue",
    "depsue.cli.serve": "the commands of the service, one file",
    "depsue.ledger.reads": "the rules of counted reads, apart from the ledger's records",
    "depsue.pages.campaign": "the pages of one campaign, apart from the routes",
    "depsue.pages.dashboard": "the routes of the dashboard, which the command hands to the service",
    "depsue.pages.report": "the report, which a command writes",
    "depsue.policies.files": "save and load, which users call through the package",
    "depsue.serving.erasing": "erasing a unit wherever its rows are, which a command calls",
    "depsue.serving.places": "how readers miss no transaction, apart from the store's tables",
    "depsue.serving.running": "the process around the service: sockets, uvicorn, the log",
    "depsue.world": "simulated worlds, which users and research call through the front door",
}
"""Modules that exactly one other module imports, each with the reason why it is a file of its own.
Imports in an __init__ do not count: they only hand names on."""


def modules() -> dict[str, Path]:
    paths = sorted(SRC.rglob("*.py"))
    names = [".".join(path.relative_to(SRC).with_suffix("").parts) for path in paths]
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


def imported(path: Path) -> set[str]:
    """All names that a file imports: modules, and modules with the name taken from them."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_a_module_with_one_user_has_a_reason() -> None:
    paths = modules()
    users: Counter[str] = Counter()
    for name, path in paths.items():
        if path.name != "__init__.py":
            users.update(other for other in imported(path) & set(paths) if other != name)
    single = {name for name, path in paths.items() if users[name] == 1}
    single = {name for name in single if paths[name].name != "__init__.py"}
    assert single == set(ONE_USER)
    assert len(ONE_USER) <= MOST_WITH_ONE_USER
    assert all(len(reason.split()) >= 4 for reason in ONE_USER.values())


def test_no_file_is_too_long() -> None:
    folders = ("src", "research/src", "benchmarks", "examples", "tools")
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines())
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {path: count for path, count in lines.items() if count > LONGEST} == {}


def test_no_class_name_is_used_twice() -> None:
    names = Counter(
        node.name
        for folder in ("src", "research/src")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_page_shows_the_tree_as_it_is() -> None:
    assert tree.page(tree.PAGE.read_text()) == tree.PAGE.read_text(), "run: python tools/tree.py"


def test_files_that_the_page_names_are_there() -> None:
    text = tree.PAGE.read_text()
    named = set(re.findall(r"`((?:src/depsue/)?[a-z_/]+\.py)(?:`|:)", text))
    places = [ROOT, ROOT / "src" / "depsue"]
    assert [name for name in named if not any((place / name).is_file() for place in places)] == []
    assert len(named) > 100


def test_names_that_the_page_points_at_are_there() -> None:
    pairs = re.findall(r"`([a-z_/]+\.py)`: `(\w+)", tree.PAGE.read_text())
    assert len(pairs) >= 6
    for name, thing in pairs:
        text = (ROOT / "src" / "depsue" / name).read_text()
        assert re.search(rf"^(def|class) {thing}\b", text, re.MULTILINE), f"{thing} in {name}"
