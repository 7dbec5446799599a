"""The bound that docs/bounds.md adds passes the conformance suite as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from depsue.testing.bounds import BoundConformance

PAGE = (Path(__file__).parents[2] / "docs" / "bounds.md").read_text()


def _names_on_the_page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "docs"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(block, "docs/bounds.md", "exec", dont_inherit=True), names)
    return names


_OnThePage: type[BoundConformance] = _names_on_the_page()["TestHoeffding"]


class TestTheBoundOnThePage(_OnThePage):  # type: ignore[misc, valid-type]
    effort = 0.1
