"""Rungs by name: how they are declared, what they say, what is refused."""

import pytest

from depsue.assumptions import NAMES, Rung, checked_rungs, columns_of
from depsue.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "rung"),
    [
        ("exchangeable", Rung("exchangeable")),
        ("exchangeable:genre", Rung("exchangeable", "genre")),
        ("groups:category", Rung("groups", "category")),
        ("proxies:like", Rung("proxies", "like")),
        ("proxies:like=0.02", Rung("proxies", "like", epsilon=0.02)),
        ("propensities-within=1.2", Rung("propensities-within", factor=1.2)),
    ],
)
def test_a_rung_is_read_as_it_is_written(text: str, rung: Rung) -> None:
    assert Rung.parsed(text) == rung
    assert str(rung) == text
    assert rung.in_words.startswith("if ") and all(rung.words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hope", "an assumption is one of propensities-within"),
        ("groups", "groups names a column of the items file"),
        ("proxies", "proxies names a column of the items file"),
        ("propensities-within", "within which factor"),
        ("propensities-within=0.5", r"has a factor in \[1, 100\]"),
        ("propensities-within:x=2", "takes a factor and no column"),
        ("proxies:like=-1", r"allowance \(epsilon\) of proxies"),
        ("proxies:like=much", "what follows = in an assumption is a number"),
        ("exchangeable=3", "exchangeable takes no number"),
    ],
)
def test_what_is_no_rung_is_refused_with_the_rule(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Rung.parsed(text)


def test_several_rungs_are_the_order_in_which_rounds_fall_back() -> None:
    rungs = checked_rungs(["groups:kind", "exchangeable:genre", "nothing"])
    assert [rung.name for rung in rungs] == ["groups", "exchangeable"]
    assert columns_of(rungs) == ("kind", "genre")
    assert checked_rungs("exchangeable") == (Rung("exchangeable"),)
    with pytest.raises(ConfigError, match="declared once"):
        checked_rungs(["exchangeable", "exchangeable"])
    with pytest.raises(ConfigError, match="propensities-within stands alone"):
        checked_rungs(["exchangeable", "propensities-within=1.2"])
    with pytest.raises(ConfigError, match="declared by name"):
        checked_rungs([3])  # type: ignore[list-item]


def test_every_rung_has_words_and_a_price() -> None:
    for name in NAMES:
        rung = Rung(name, "c" if name in ("proxies", "groups") else "")  # type: ignore[arg-type]
        assert 0 <= rung.share_of_delta < 1
