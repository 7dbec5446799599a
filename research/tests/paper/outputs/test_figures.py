"""Figures show the data: checked on the artists, not on pixels."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from research.tests.paper.outputs.made_up import made_up_runs, movielens, wiki10

from depsue.data.checks import FloatArray
from depsue_research.paper.cells import Cell
from depsue_research.paper.outputs.drawing import COLOURS
from depsue_research.paper.outputs.figures import all_figures
from depsue_research.paper.outputs.reading import NAMES, Runs, half_width


def figures(runs: Runs) -> dict[str, Figure]:
    return {picture.name: picture.figure for picture in all_figures(runs)}


def xs(drawn: Line2D) -> FloatArray:
    return np.asarray(drawn.get_xdata(), dtype=float)


def ys(drawn: Line2D) -> FloatArray:
    return np.asarray(drawn.get_ydata(), dtype=float)


def line(axis: Axes, method: str, *, hollow: bool = False) -> FloatArray:
    """The y data of a method's line (or of the paper's hollow marks) in a panel."""
    lines = [
        ys(drawn)
        for drawn in axis.lines
        if drawn.get_marker() not in ("None", "_", "|")
        and to_hex(drawn.get_color()) == COLOURS[method]
        and (drawn.get_markerfacecolor() == "none") == hollow
    ]
    assert len(lines) == 1, f"{len(lines)} lines of {method}"
    return lines[0]


def story(cell: Cell) -> dict[str, object]:
    if cell.method == "depsue_5":
        return {
            "values": [1.0, 1.01, 1.02, 1.03, 1.04 + cell.level / 1000],
            "novelties": [0.02, 0.04, 0.06, 0.08, 0.10],
        }
    if cell.method.startswith("depsue"):
        return {"values": 1.02, "novelties": 0.05}
    worse = cell.method == "opg_min" and cell.level == 8
    return {
        "values": (0.8 if worse else 1.1) + 0.01 * cell.seed,
        "novelties": 0.15,
        "estimates": (0.7, 1.5, 1.2),
        "q": (0.3, 0.2),
        "q_hat": (0.4, 0.05) if cell.method == "opg_cql" else (0.3, 0.28),
    }


@pytest.fixture(scope="module")
def made() -> dict[str, Figure]:
    return figures(made_up_runs(movielens(), story))


def test_over_levels_shows_means_rates_and_the_papers_marks(made: dict[str, Figure]) -> None:
    value, violation, novelty = made["over_levels"].axes
    assert line(value, "opg_min") == pytest.approx([1.12, 1.12, 1.12, 1.12, 0.82, 1.12, 1.12])
    assert line(violation, "opg_min") == pytest.approx([0, 0, 0, 0, 1, 0, 0])
    assert line(novelty, "opg_mean") == pytest.approx([0.15] * 7)
    assert line(violation, "opg_cql", hollow=True) == pytest.approx(
        np.array([1, 17, 19, 6, 0, 1, 3]) / 30
    )
    best = [drawn for drawn in novelty.lines if drawn.get_linestyle() == "-."]
    assert len(best) == 1 and ys(best[0]) == pytest.approx([0.18] * 7)


def test_intervals_are_of_student_and_exact_for_rates(made: dict[str, Figure]) -> None:
    value, violation, _ = made["over_levels"].axes
    expected = half_width(1.1 + 0.01 * np.arange(5))
    bars = value.containers[0].lines[2][0].get_segments()  # type: ignore[attr-defined]
    assert [bar[1, 1] - bar[0, 1] for bar in bars] == pytest.approx([2 * (expected or 0)] * 7)
    rates = violation.containers[0].lines[2][0].get_segments()  # type: ignore[attr-defined]
    assert rates[0][:, 1] == pytest.approx([0, 0.5218], abs=1e-3)


def test_over_k_shows_last_and_average(made: dict[str, Figure]) -> None:
    last_value, last_novelty, mean_value, mean_novelty = made["over_k"].axes
    assert line(last_value, "depsue_5")[0] == pytest.approx(1.04 - 0.024)
    assert line(mean_value, "depsue_5")[0] == pytest.approx((4.06 + 1.04 - 0.024) / 5)
    assert line(last_novelty, "depsue_5") == pytest.approx([0.1] * 7)
    assert line(mean_novelty, "depsue_5") == pytest.approx([0.06] * 7)
    for panel in (last_novelty, mean_novelty):
        assert line(panel, "depsue_2", hollow=True)[0] == 0.075


def test_stages_have_one_line_a_level(made: dict[str, Figure]) -> None:
    value, novelty = made["stages"].axes
    named = {drawn.get_label(): drawn for drawn in novelty.lines}
    assert [name for name in named if str(name).startswith("beta")] == [
        f"beta = {level}" for level in (-24, -16, -8, 0, 8, 16, 24)
    ]
    assert ys(named["beta = 0"]) == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])
    lines = {drawn.get_label(): drawn for drawn in value.lines}
    assert ys(lines["beta = 24"])[-1] == pytest.approx(1.064)


def test_ope_against_truth_over_the_value_of_pi0(made: dict[str, Figure]) -> None:
    naive, cql = made["ope_against_truth"].axes
    points = [drawn for drawn in cql.lines if drawn.get_linestyle() == "None"]
    assert sorted({float(ys(p).mean()) for p in points}) == pytest.approx([0.7, 1.2, 1.5])
    assert all(len(xs(p)) == 35 for p in points)
    assert len([drawn for drawn in naive.lines if drawn.get_linestyle() == "None"]) == 6
    assert [ys(d)[0] for d in cql.lines if d.get_linestyle() == "--"] == [1]


def test_verdicts_can_be_seen_beside_estimates_that_are_far_off() -> None:
    def far(cell: Cell) -> dict[str, object]:
        return {"estimates": (1.01, 2.5 if cell.method == "opg_cql" else 1.02, 0.99)}

    figure = figures(made_up_runs(movielens(), far, seeds=[0]))["ope_against_truth"]
    naive, cql = figure.axes
    assert (naive.get_yscale(), cql.get_yscale()) == ("linear", "function")
    low, high = cql.get_ylim()
    assert low < 0.99 and high > 2.5
    heights = cql.transAxes.inverted().transform(cql.transData.transform([(1, 1), (1, 1.05)]))[:, 1]
    assert heights[1] - heights[0] > 0.1  # on a linear scale: .03


def test_distributions_are_three_by_three(made: dict[str, Figure]) -> None:
    panels = made["distributions"].axes
    assert len(panels) == 9
    assert [panel.get_title() for panel in panels[:3]] == ["beta = -16", "beta = 0", "beta = 16"]
    means = [[float(xs(drawn)[0]) for drawn in panel.lines] for panel in panels]
    assert means[0] == pytest.approx([0.3, 0.2])  # truth: supported, novel
    assert means[3] == pytest.approx([0.3, 0.28])  # naive
    assert means[6] == pytest.approx([0.4, 0.05])  # CQL
    shares = panels[0].patches[0].get_data().values  # type: ignore[attr-defined]
    assert shares == pytest.approx([0.25, 0.5, 0.25])


def test_r_against_the_bound_says_their_correlation(made: dict[str, Figure]) -> None:
    panels = [axis for axis in made["bound_against_r"].axes if axis.get_title()]
    assert len(panels) == 7
    offsets = np.asarray(panels[0].collections[0].get_offsets())
    assert offsets[:, 0] == pytest.approx([-1.6, -1.5, -1.4, -1.3])
    assert offsets[:, 1] == pytest.approx([0.9, 0.92, 0.95, 0.97])
    r = np.corrcoef(offsets.T)[0, 1]
    assert f"correlation {r:.2f}" in panels[0].get_title()


def test_wiki10_shows_every_method_at_every_epsilon() -> None:
    made = figures(made_up_runs(wiki10(), story, seeds=range(3)))
    assert "ope_against_truth" not in made and "distributions" not in made
    value, novelty = made["wiki10"].axes
    assert line(value, "depsue_1") == pytest.approx([1.02] * 3)
    assert line(novelty, "naive_safe", hollow=True) == pytest.approx([0.05] * 3)
    assert [tick.get_text() for tick in value.get_xticklabels()] == [
        "0.8\npoor",
        "0.5\nmedium",
        "0.2\nnear-optimal",
    ]
    (legend,) = made["wiki10"].legends
    assert set(NAMES.values()) <= {text.get_text() for text in legend.get_texts()}
    assert "wiki10" not in figures(made_up_runs(movielens(levels=[8]), seeds=[0]))


def test_one_colour_per_method() -> None:
    assert len(set(COLOURS.values())) == len(COLOURS) == len(NAMES)


def test_one_seed_and_missing_cells_are_drawn() -> None:
    runs = made_up_runs(
        movielens(), story, seeds=[0], without=lambda c: c.level > 0 or c.method == "opg_mean"
    )
    made = figures(runs)
    value = made["over_levels"].axes[0]
    assert len(line(value, "opg_min")) == 4
    for panel in made["over_levels"].axes:  # one seed: no interval
        bars = panel.containers[0].lines[2][0].get_segments()  # type: ignore[attr-defined]
        assert not any(np.isfinite(bar).any() for bar in bars)
    captions = {picture.name: picture.caption for picture in all_figures(runs)}
    assert "No interval with one seed." in captions["over_levels"]
    assert "No interval" not in captions["stages"]
    assert len(made["stages"].axes[1].lines) == 4
    assert len(made["distributions"].axes) == 9


def test_the_novelty_of_the_best_policy_is_of_all_seeds_at_every_level() -> None:
    runs = made_up_runs(
        movielens(),
        lambda c: {"best_novelty": 0.1 + 0.1 * c.seed},
        seeds=range(2),
        without=lambda c: c.seed == 1 and c.level > 0,
    )
    novelty = figures(runs)["over_levels"].axes[2]
    (best,) = [drawn for drawn in novelty.lines if drawn.get_linestyle() == "-."]
    assert ys(best) == pytest.approx([0.15] * 7)
    caption = next(p.caption for p in all_figures(runs) if p.name == "over_levels")
    assert "No interval with one seed, where there is but one." in caption


def test_the_fitted_simulator_has_no_hollow_marks() -> None:
    runs = made_up_runs(movielens(preset="fitted", levels=[-1, 0, 2]), story, seeds=range(2))
    for picture in all_figures(runs):
        assert "Hollow" not in picture.caption
    value = figures(runs)["over_levels"].axes[0]
    assert not [d for d in value.lines if d.get_markerfacecolor() == "none"]


def test_methods_that_did_not_run_leave_their_figures_out() -> None:
    made = figures(made_up_runs(movielens(methods=["naive_safe"]), seeds=[0]))
    assert made == {}
