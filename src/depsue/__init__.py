"""Safe exploration of new items, from logged data, in a few deployments.

What a user types is listed in one table, `__init__.pyi` beside this file: type checkers read it as
it is, and the names load their module (and torch, where it is needed) when first used.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

from depsue._version import __version__ as __version__

# The table is read, not repeated: `from module import name as name`, a line for each.
_HOME_OF: dict[str, str] = {
    alias.name: statement.module
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(statement, ast.ImportFrom) and statement.module
    for alias in statement.names
    if alias.name != "__version__"
}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'depsue' has no attribute '{name}'")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
