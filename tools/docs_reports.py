"""A hook of mkdocs: the reports of the results folders, made from their cells into the site.

Only the cells, the tables and the pictures that pages show are committed. `make docs` sets
DEPSUE_REPORTS, and then every folder below docs/results with a record of its run gets index.html
with all figures, tables as CSV, and a link on the page of results. It takes half a minute, so a
build without the variable, as tests make it, leaves the reports out and links to none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

PAGE = "results/README.md"


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Add links to the reports to the page of results, if they are made."""
    if page.file.src_uri != PAGE or not _wanted():
        return markdown
    # HTML, for mkdocs looks for the targets of Markdown links before the reports are made
    links = [f'<a href="{name}/index.html">{name}</a>' for name in _folders(config)]
    return (
        f"{markdown}\n\nAll figures, tables and claims of a run on one page: {', '.join(links)}.\n"
    )


def on_post_build(*, config: Any) -> None:
    """Make the reports."""
    if not _wanted():
        return
    from depsue_research.paper.outputs.report import report_again

    for name, folder in _folders(config).items():
        report_again(folder, Path(config["site_dir"]) / "results" / name)


def _wanted() -> bool:
    return bool(os.environ.get("DEPSUE_REPORTS"))


def _folders(config: Any) -> dict[str, Path]:
    """The folders of results that have a record of their run, by name."""
    records = sorted((Path(config["docs_dir"]) / "results").glob("*/run.json"))
    return {record.parent.name: record.parent for record in records}
