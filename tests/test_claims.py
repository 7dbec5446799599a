"""What the README and the docs claim is what the committed results say."""

import pytest
from tools import claims

IDS = [f"{claim.page}-{place}" for place, claim in enumerate(claims.CLAIMS)]


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=IDS)
def test_a_claim_stands_on_its_page_as_the_results_have_it(claim: claims.Claim) -> None:
    text = claims.plain((claims.ROOT / claim.page).read_text("utf-8"))
    stated = claims.plain(claim.stated())
    assert stated in text, f"{claim.page} must say: {stated}"


def test_the_page_of_claims_is_up_to_date() -> None:
    text = claims.PAGE.read_text("utf-8")
    assert claims.page(text) == text, "run: python tools/claims.py"


def test_new_figures_are_written_into_a_sentence() -> None:
    claim = claims.CLAIMS[0]
    text = f"Before.\n{claim.stated()}\nAfter."
    older = text.replace("of 150", "of\n  99")
    assert older != text
    assert claims.plain(claim.written_into(older)) == claims.plain(text)
    assert claim.written_into(text) == text
    assert claim.written_into(older * 2) == older * 2  # which of them is not known
    assert claim.written_into("nothing of it") == "nothing of it"


def test_claims_follow_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another result is another sentence: nothing in it is written by hand."""
    cells = claims.cells

    def worse(name: str) -> tuple[dict[str, object], ...]:
        changed = []
        for cell in cells(name):
            deployments = [dict(d, value_test=0.0) for d in cell.get("deployments", [])]
            changed.append({**cell, "deployments": deployments})
        return tuple(changed)

    before = claims.CLAIMS[0].stated()
    monkeypatch.setattr(claims, "cells", worse)
    assert claims.CLAIMS[0].stated() != before
