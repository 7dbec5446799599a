"""Numbers with their nouns."""

from depsue.plural import counted, plural


def test_one_and_many() -> None:
    assert [counted(n, "item") for n in (0, 1, 2, 1000)] == [
        "0 items",
        "1 item",
        "2 items",
        "1,000 items",
    ]
    assert counted(1, "is", "are") == "1 is" and counted(2, "is", "are") == "2 are"
    assert (plural(1, "was", "were"), plural(0, "was", "were")) == ("was", "were")
