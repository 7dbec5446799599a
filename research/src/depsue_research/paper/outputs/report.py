"""Everything that a reproduction shows: tables, figures, claims, one page; and a short summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from depsue._version import __version__
from depsue.errors import FileError, require
from depsue_research.paper.cells import Cell, CellStore, Result
from depsue_research.paper.outputs.published import published_for
from depsue_research.paper.outputs.reading import Runs, mean, novelty, value
from depsue_research.paper.outputs.table import number, rate
from depsue_research.paper.outputs.tables import PHASES
from depsue_research.paper.recipe import Recipe, differences

DPI = 110


def write_outputs(
    recipe: Recipe, results: Mapping[Cell, Result], folder: str | Path, command: str
) -> Path:
    """Write all tables (.md, .csv), figures (.png, .svg), claims.md and index.html to one folder.

    Args:
        recipe: the experiment.
        results: its finished cells; some may be missing.
        folder: where; made if need be.
        command: what made them, for the page.

    Returns:
        the page's path.
    """
    import matplotlib
    from jinja2 import Environment, PackageLoader

    from depsue.files import writable_folder
    from depsue.pages.drawing import as_svg
    from depsue_research.paper.outputs.claims import all_claims, claims_markdown, tally
    from depsue_research.paper.outputs.evidence import GROUPS_NOTE
    from depsue_research.paper.outputs.figures import all_figures
    from depsue_research.paper.outputs.tables import TITLES_NOTE, all_tables

    runs = Runs(recipe, results)
    require(
        bool(runs.methods),
        "outputs need at least one finished cell of the recipe",
        found=f"none of {len(results):,} is of {recipe.name}",
        cure="run the experiment first, or name the folder that its cells are in",
    )
    target = writable_folder(folder)
    paper, differs = published_for(recipe), differences(recipe)
    titles = TITLES_NOTE if runs.of_titles else ""
    groups = "" if paper.seeds else GROUPS_NOTE
    tables, claims = all_tables(runs), all_claims(runs)
    for table in tables:
        _write(target / f"{table.name}.md", table.markdown())
        _write(target / f"{table.name}.csv", table.csv())
    pictures = []
    for picture in all_figures(runs):
        with matplotlib.rc_context({"svg.hashsalt": picture.name}):  # same cells, same file
            svg = as_svg(picture.figure)
        _write(target / f"{picture.name}.svg", svg)
        picture.figure.savefig(target / f"{picture.name}.png", dpi=DPI)
        pictures.append((picture, svg))
    heading = f"The paper's statements on {_title(recipe)}, checked"
    words = " ".join(filter(None, (f"{runs.seeds_in_words()}.", differs, titles, groups)))
    _write(target / "claims.md", claims_markdown(claims, heading, words))
    page = Environment(
        loader=PackageLoader("depsue_research"), autoescape=True, trim_blocks=True
    ).get_template("reproduction.html")
    text = page.render(
        title=_title(recipe),
        recipe=recipe,
        runs=runs,
        paper=paper,
        differs=differs,
        titles=titles,
        groups=groups,
        command=command,
        claims=claims,
        tally=tally(claims),
        tables=tables,
        pictures=pictures,
        version=__version__,
        made_by=", ".join(sorted({r["version"] for m in runs.methods for r in runs.over(m)})),
    )
    _write(target / "index.html", text)
    return target / "index.html"


def report_again(folder: str | Path, out: str | Path) -> Path:
    """Write the outputs of a finished reproduction again, from its cells and its record alone.

    Args:
        folder: where `cells.jsonl` and `run.json` are.
        out: where the outputs go; made if need be.

    Returns:
        the page's path.
    """
    store = CellStore(folder)
    record = store.record()
    results = store.with_configs(record.configs)
    return write_outputs(record.load_recipe(), results, out, record.command)


def summary(recipe: Recipe, results: Mapping[Cell, Result]) -> str:
    """What has come of the finished cells, in lines that fit a terminal: mean relative value, mean
    novelty and violations (test users, last policy), by method and level; then the time."""
    runs = Runs(recipe, results)
    if not runs.methods:
        return "no cell has finished yet"
    blocks: list[tuple[str, Callable[[str, float], str]]] = [
        ("V(pi)/V(pi0)", lambda m, v: number(mean(runs.numbers(m, v, value())))),
        ("novelty", lambda m, v: number(mean(runs.numbers(m, v, novelty())))),
        (f"below {recipe.floor:g}", lambda m, v: rate(*runs.violations(m, v))),
    ]
    lines = [f"{recipe.name}: {runs.seeds_in_words()}; last policy, test {runs.who}"]
    for title, cell in blocks:
        levels = "".join(f"{level:>8g}" for level in runs.levels)
        lines.append(f"{title:<13}{levels}  {recipe.level_name}")
        for method in runs.methods:
            cells = [cell(method, level) for level in runs.levels]
            lines.append(f"  {method:<11}" + "".join(f"{text:>8}" for text in cells))
    return "\n".join([*lines, _time(runs)])


def _time(runs: Runs) -> str:
    """Where the time went: seconds per phase over all cells, and the largest memory."""
    spent: Counter[str] = Counter()
    results = [result for method in runs.methods for result in runs.over(method)]
    for result in results:
        spent.update(result["seconds"])
    phases = [*PHASES, *sorted(set(spent) - set(PHASES))]
    parts = ", ".join(f"{name} {spent[name]:,.0f}" for name in phases if name in spent)
    peak = max(float(result["peak_mib"]) for result in results)
    return f"seconds in all: {parts}; peak {peak:,.0f} MiB"


def _title(recipe: Recipe) -> str:
    if recipe.experiment == "wiki10":
        return "Wiki10"
    return "MovieLens" + ("" if recipe.preset == "paper" else f" ({recipe.preset} simulator)")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise FileError(
            "the folder for the outputs must be writable and have room",
            found=f"{path}: {problem.strerror}",
            cure="choose another with --out",
        ) from problem
