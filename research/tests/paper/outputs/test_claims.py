"""Verdicts follow the figures, and reasons are given only where the figures bear them out."""

import re
from typing import Any

import pytest
from research.tests.paper.outputs.made_up import Story, made_up_runs, movielens, wiki10
from research.tests.paper.outputs.stories import (
    as_the_paper_says,
    claim_on,
    movielens_claim,
    on_wiki10,
    only,
    uniform,
)

from depsue_research.paper.cells import Cell
from depsue_research.paper.outputs.claims import CHECKS, all_claims, claims_markdown, tally
from depsue_research.paper.outputs.evidence import FAILS, HOLDS, UNEXPLAINED, UNKNOWN
from depsue_research.paper.outputs.reading import OPG


def test_everything_holds_where_the_figures_are_as_the_paper_says() -> None:
    claims = all_claims(made_up_runs(movielens(), as_the_paper_says))
    broken = [c for c in claims if c.verdict != HOLDS and "its own tables" not in c.where]
    assert [(c.statement, c.measured) for c in broken] == []


def test_everything_holds_on_wiki10_too() -> None:
    claims = all_claims(made_up_runs(wiki10(), on_wiki10, seeds=range(3)))
    broken = [c for c in claims if c.verdict != HOLDS and "its own tables" not in c.where]
    assert [(c.statement, c.measured) for c in broken] == []


FLIPS: list[tuple[str, Story]] = [
    ("from poor to near-optimal", lambda c: {"pi0": 0.28}),
    ("worse than uniform", lambda c: {"uniform": 0.1}),
    ("violates the constraint considerably", only(("opg_min",), values=0.96)),
    ("in most cases when pi0 performs well", only(("opg_mean",), values=1.0)),
    ("OPG (w/ CQL) often violates", only(("opg_cql",), values=0.96)),
    ("far below the logging policy", only(OPG, values=0.91)),
    ("Safe OPG never", lambda c: {"values": 0.94} if c == Cell(3, 8.0, "depsue_1") else {}),
    ("Safe OPG hardly", only(("depsue_1",), novelties=0.13)),
    ("much more often than Safe OPG", only(("opg_cql",), novelties=0.05)),
    ("gradually improves novelty", only(("depsue_5",), novelties=0.1)),
    ("More than one deployment", only(("depsue_2",), novelties=0.01)),
    ("always satisfies the constraint", only(("depsue_2",), values=[1.2, 0.9])),
    ("average value up to every", only(("depsue_2",), values=[0.9, 1.2])),
    ("much higher than that of OPG (w/ CQL)", only(("depsue_5",), values=1.0)),
    ("explores when the logging policy is bad", only(("depsue_5",), novelties=0.1)),
    ("as high as observed", only(("opg_mean",), q_hat=(0.28, 0.2))),
    ("seriously overestimates", only(("opg_mean",), q_hat=(0.28, 0.25))),
    ("poorer than the observed ones", lambda c: {"q": (0.25, 0.25)}),
    ("CQL underestimates", only(("opg_cql",), q_hat=(0.4, 0.3))),
    ("CQL is overconfident", only(("opg_cql",), q_hat=(0.2, 0.02))),
    ("A larger R goes with", only(("depsue_1",), regulariser=[-1.3, -1.4, -1.5, -1.6])),
    ("bound rises in training", only(("depsue_1",), bound_history=[0.97, 0.95, 0.92, 0.9])),
    ("Training ends with a policy", only(("depsue_5",), bounds=0.5)),
    ("DM detects no unsafe policy", only(OPG, estimates=(0.9, 0.95, 0.9))),
    ("DR lets about half", only(OPG, estimates=(0.9, 1.2, 0.9))),
    ("IPS refuses almost all", only(("opg_mean",), estimates=(1.1, 1.2, 1.2))),
    ("IPS accepts more than 30%", only(("opg_cql",), estimates=(0.9, 1.2, 0.9))),
    ("IPS varies so much", only(("opg_cql",), estimates=(0.9, 1.2, 0.9))),
    ("in almost every condition", only(("depsue_1",), values=0.9)),
    ("Even in its worst case", only(("depsue_5",), values=0.89)),
    ("mean novelty of the OPGs is higher", only(("opg_cql",), novelties=0.05)),
    ("deviation of novelty is high", only(("opg_min",), novelties=0.3)),
    ("in a limited number of cases", only(("opg_min",), novelties=0.3)),
    ("in more cases than the baselines", only(("opg_min",), novelties=0.3)),
    ("Over the five stages", only(("depsue_5",), values=[1.2, 1.1, 1.1, 1.1, 1.1])),
    ("bolder when the logging policy is poor", only(("depsue_5",), novelties=0.1)),
    (
        "bound improves more easily",
        lambda c: {"bounds": 0.965 if c.level == -16 else 0.97 if c.level else 0.964},
    ),
    ("margin is larger", only(("depsue_5",), margins=0.1)),
    ("cautious when the logging policy", only(("depsue_5",), novelties=0.1)),
]


@pytest.mark.parametrize(("words", "changes"), FLIPS, ids=[words for words, _ in FLIPS])
def test_a_verdict_flips_with_its_figures_and_gives_a_reason(words: str, changes: Story) -> None:
    claim = movielens_claim(words, changes)
    assert claim.verdict == FAILS, claim
    assert claim.reason


def test_every_movielens_statement_is_flipped_above() -> None:
    statements = [c.statement for c in CHECKS["movielens"] if "its own tables" not in c.where]
    flipped = [next(s for s in statements if words in s) for words, _ in FLIPS]
    assert sorted(flipped) == sorted(statements)


WIKI10_FLIPS: list[tuple[str, Story]] = [
    ("better than uniform choice", lambda c: {"uniform": 0.25}),
    ("scarce", lambda c: {"uniform": 0.22}),
    ("in every run", lambda c: {"values": 0.96} if c == Cell(1, 0.5, "opg_min") else {}),
    ("perfectly", lambda c: {"values": 0.9} if c == Cell(1, 0.5, "depsue_5") else {}),
    ("grows with K", only(("depsue_5",), novelties=0.06)),
    ("starts cautiously", only(("depsue_5",), novelties=0.1)),
    ("explores more novel actions than Naive", only(("depsue_1",), novelties=0.04)),
    ("higher value than Naive", only(("depsue_5",), values=0.97)),
]


@pytest.mark.parametrize(("words", "changes"), WIKI10_FLIPS, ids=[w for w, _ in WIKI10_FLIPS])
def test_wiki10_verdicts_flip(words: str, changes: Story) -> None:
    claim = claim_on(words, wiki10(), lambda c: {**on_wiki10(c), **changes(c)}, seeds=range(3))
    assert claim.verdict == FAILS, claim


def test_criteria_name_the_levels_that_they_are_about() -> None:
    good = movielens_claim("violates the constraint considerably")
    assert "beta = 8, 16, 24" in good.criterion and "half" in good.criterion
    assert "beta = -16, -8, 0" in movielens_claim("OPG (w/ CQL) often").criterion
    bound = movielens_claim("bound improves more easily")
    assert "beta = -8, 0, 8 " in bound.criterion and bound.verdict == HOLDS


def test_without_published_figures_good_and_poor_are_measured() -> None:
    pi0 = {-1: 0.2, 0: 0.251, 2: 0.254, 3: 0.256, 4: 0.29}  # uniform .25, best .3
    fitted = movielens(preset="fitted", levels=list(pi0))
    claims = all_claims(
        made_up_runs(fitted, lambda c: {"pi0": pi0[int(c.level)], "values": 0.9}, seeds=[0])
    )
    by_words = {c.statement[:40]: c for c in claims}
    good = by_words["OPG (naive) violates the constraint cons"]
    assert "beta = 3, 4." in good.criterion and good.verdict == HOLDS
    assert "each of beta = -1." in by_words["CQL is overconfident about observed acti"].criterion
    spans = by_words["A negative beta gives a policy worse tha"]
    assert "beta = -1, > at beta = 2, 3, 4" in spans.criterion and spans.verdict == HOLDS
    bound = by_words["The bound improves more easily where the"]
    assert bound.verdict == UNKNOWN and "no figures of this simulator" in bound.reason
    assert "at each of no beta" in bound.criterion
    flat = claim_on("violates the constraint considerably", fitted, lambda c: {"values": 0.9})
    assert flat.verdict == UNKNOWN and "each of no beta" in flat.criterion


def test_zero_is_named_once_where_it_is_poor_too() -> None:
    fitted = movielens(preset="fitted", levels=[-2, -1, 0, 4])
    claim = claim_on(
        "OPG (w/ CQL) often", fitted, lambda c: {"pi0": 0.24 if c.level <= 0 else 0.29}
    )
    assert "each of beta = -1, 0." in claim.criterion


def test_methods_are_compared_over_the_seeds_that_all_have() -> None:
    def story(cell: Cell) -> dict[str, Any]:
        return {"values": 0.2} if cell == Cell(4, 8.0, "opg_cql") else {}

    def gone(cell: Cell) -> bool:
        return cell == Cell(4, 8.0, "depsue_5")

    assert "OPG (w/ CQL) 0.200" in movielens_claim("Even in its worst", story).measured
    part = movielens_claim("Even in its worst", story, without=gone)
    assert "OPG (w/ CQL) 0.880" in part.measured
    assert "OPG (w/ CQL) 0.200" in movielens_claim("far below", story, without=gone).measured
    apart = movielens_claim(
        "Even in its worst",
        without=lambda c: c.level == 8 and (c.method == "depsue_5") == (c.seed < 3),
    )
    assert apart.verdict == UNKNOWN and "No seed with finished cells of all of" in apart.reason


def test_half_of_the_seeds_is_considerable_but_not_most() -> None:
    def half(cell: Cell) -> dict[str, Any]:
        return {"values": 0.9 if cell.seed < 2 else 1.0} if cell.method in OPG[:2] else {}

    assert movielens_claim("considerably", half, seeds=range(4)).verdict == HOLDS
    assert movielens_claim("in most cases", half, seeds=range(4)).verdict == FAILS
    assert movielens_claim("considerably", half, seeds=range(5)).verdict == FAILS


def test_one_method_far_below_is_enough_for_can() -> None:
    claim = movielens_claim("far below the logging policy", only(OPG[:2], values=1.0))
    assert claim.verdict == HOLDS


def test_measured_figures_are_in_the_claim() -> None:
    claim = movielens_claim("violates the constraint considerably")
    assert "OPG (naive, mean) 8: 5/5, 16: 5/5, 24: 5/5" in claim.measured
    assert "0.52" in movielens_claim("Safe OPG never").measured  # what 0 of 5 cannot rule out


def test_no_known_cause_is_said() -> None:
    claim = movielens_claim("Safe OPG hardly", only(("depsue_1",), novelties=0.13))
    assert claim.reason == UNEXPLAINED


def test_a_long_reason_is_told_once() -> None:
    claims = all_claims(made_up_runs(movielens(), lambda c: {**as_the_paper_says(c), **uniform(c)}))
    reasons = [c.reason for c in claims if "near the uniform policy" in c.reason]
    assert len(reasons) >= 3
    assert sum("Eq. 2" in reason for reason in reasons) == 1
    assert all(re.search(r"uniform policy: see no. \d", reason) for reason in reasons[1:])


def test_missing_cells_leave_their_statements_unmeasured() -> None:
    def gone(cell: Cell) -> bool:
        return cell.method == "opg_min" and cell.level == 16

    claim = movielens_claim("violates the constraint considerably", without=gone)
    assert claim.verdict == UNKNOWN and claim.measured == "-"
    assert claim.reason == "No finished cell of OPG (naive, min) at beta = 16."
    assert movielens_claim("Safe OPG never", without=gone).verdict == HOLDS


def test_one_seed_has_no_deviation_to_compare() -> None:
    claim = movielens_claim("deviation of novelty is high", seeds=[0])
    assert claim.verdict == UNKNOWN and "two seeds" in claim.reason
    assert movielens_claim("Safe OPG never", seeds=[0]).verdict == HOLDS


def test_no_worse_policy_means_nothing_to_accept() -> None:
    claim = movielens_claim("DM detects", only(OPG, values=1.2))
    assert claim.verdict == UNKNOWN and "worse than pi0" in claim.reason


def test_the_paper_contradicts_itself_where_its_tables_say_so() -> None:
    claims = all_claims(made_up_runs(movielens(), as_the_paper_says))
    own = {c.statement: c for c in claims if "its own tables" in c.where}
    assert len(own) == 4 and {c.verdict for c in own.values()} == {FAILS}
    assert "beta = 8, 16, 24" in own["Novelty grows with K."].reason
    assert "0.000 and 1.000" in next(c for s, c in own.items() if "error rates" in s).measured
    wiki = [c for c in all_claims(made_up_runs(wiki10(), on_wiki10)) if "own tables" in c.where]
    assert [c.verdict for c in wiki] == [HOLDS, FAILS, FAILS]
    assert "0.968 against 0.978" in wiki[2].measured


def test_another_simulator_has_nothing_of_the_papers_to_contradict() -> None:
    fitted = movielens(preset="fitted", levels=[1, 2])
    claims = all_claims(made_up_runs(fitted, lambda c: {"values": 1.1}))
    own = [c for c in claims if "its own tables" in c.where or "as its table says" in c.statement]
    assert own and {c.verdict for c in own} == {UNKNOWN}
    assert {c.verdict for c in claims if "poor and stochastic" in c.statement} == {UNKNOWN}


def test_an_empty_run_measures_nothing() -> None:
    claims = all_claims(made_up_runs(movielens(), seeds=[]))
    assert {c.verdict for c in claims if "its own tables" not in c.where} == {UNKNOWN}


def test_markdown_keeps_what_does_not_hold() -> None:
    claims = all_claims(made_up_runs(movielens(), lambda c: {**as_the_paper_says(c), **uniform(c)}))
    text = claims_markdown(claims, "Checked", "5 seeds.")
    assert text.startswith(f"# Checked\n\nOf {len(claims)} statements: {tally(claims)}. 5 seeds.\n")
    assert text.count("## ") == len(claims) == text.count("- Criterion: ")
    assert "**Does not hold**" in text and "- Reason: OPG (naive) ends near" in text
