"""The record: its words, and its way through JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from depsue.certificates import Certificate, DeltaParts, Verdict
from depsue.errors import FileError
from depsue.promises import Floor, Promise


def verdict(name: str = "reward", bound: float = 0.2, need: float = 0.1) -> Verdict:
    return Verdict(
        promise=Promise(Floor(0.9), name, segment=("country", "SE")),
        delta=0.025,
        n=1234,
        mean=0.3,
        bound=bound,
        need=need,
        credit=0.0,
        ceiling=None,
        constants={"bound": "smoothing", "scales": [0.5, 2.0], "lower": -0.9, "why": ""},
        proof="because",
    )


def certificate(**changed: Any) -> Certificate:
    values: dict[str, Any] = {
        "kind": "strict",
        "campaign": "spring",
        "round": 2,
        "data": "ab" * 32,
        "fractions": (0.35, 0.05, 0.6),
        "attempt": 1,
        "retries": False,
        "delta": 0.05,
        "spent": DeltaParts({"reward": 0.025, "other": 0.025}),
        "bound": "smoothing",
        "clip": 20.0,
        "largest": 1.0,
        "shares": (0.9, 0.1),
        "tested": 3,
        "listed": 30,
        "policy": None,
        "verdicts": (verdict(), verdict("other")),
        "assumptions": ("rows are independent",),
    }
    return Certificate(**{**values, **changed})


def test_it_survives_json_and_a_file(tmp_path: Path) -> None:
    made = certificate()
    assert Certificate.from_json(made.to_json()) == made
    made.save(tmp_path / "certificate.json")
    assert Certificate.load(tmp_path / "certificate.json") == made
    json.loads((tmp_path / "certificate.json").read_text())


def test_parts_of_delta_are_read_as_version_0_1_named_them() -> None:
    values = json.loads(certificate(verdicts=(verdict(), verdict("margin, x"))).to_json())
    values["spent"] = {
        "ceiling on V(pi0), reward": 0.01,
        "margin, reward": 0.02,
        "reward": 0.005,
        "margin, x": 0.015,  # a promise of that name
    }
    assert Certificate.from_json(json.dumps(values)).spent == DeltaParts(
        tests={"reward": 0.005, "margin, x": 0.015},
        ceilings={"reward": 0.01},
        margins={"reward": 0.02},
    )


def test_parts_of_delta_in_words() -> None:
    parts = DeltaParts({"reward": 0.025}, ceilings={"reward": 0.01}, margins={"reward": 0.015})
    assert str(parts) == "ceiling on V(pi0), reward 0.01, margin, reward 0.015, reward 0.025"


def test_all_promises_must_pass() -> None:
    assert certificate().passed
    assert verdict(bound=0.1, need=0.1).passed
    assert not verdict(bound=float("nan")).passed
    failed = certificate(verdicts=(verdict(), verdict("other", bound=0.05)))
    assert not failed.passed and "failed" in str(failed)


def test_its_words_say_what_is_claimed() -> None:
    text = str(certificate())
    assert "strict certificate, campaign 'spring', on rows of round 2: passed" in text
    assert "errs at most 0.05 of the time" in text
    assert "bound 0.20000 >= need 0.10000 at delta 0.025, 1,234 values, smoothing" in text
    assert "assumes: rows are independent" in text
    low = str(certificate(verdicts=(verdict(bound=0.05),)))
    assert "bound 0.05000 < need 0.10000" in low


def test_a_paper_certificate_claims_no_error_rate() -> None:
    text = str(replace(certificate(), kind="paper"))
    assert text.startswith("paper certificate") and "errs at most" not in text
    assert "delta 0.05 as published, not guaranteed: see the gaps" in text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"verdicts": [{}]}', '{"verdicts": 3}'])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(FileError, match=r"a certificate as depsue writes it.*as it was written"):
        Certificate.from_json(text)


def test_an_unknown_field_is_refused() -> None:
    values = json.loads(certificate().to_json()) | {"more": 1}
    with pytest.raises(FileError, match="unknown key more"):
        Certificate.from_json(json.dumps(values))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"must be a certificate.*none.json.*check the path"):
        Certificate.load(tmp_path / "none.json")
