"""A campaign's page: what it says in every state, from small ledgers without any training."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from markupsafe import Markup, escape
from tests.campaigns import made as campaigns
from tests.campaigns.made import sha

from depsue.campaigns.exposure import ItemCounts
from depsue.campaigns.records import ItemShare, NewItemShares
from depsue.certificates import Ceiling
from depsue.errors import FileError
from depsue.exploration.choices import Expected
from depsue.pages import report
from depsue.pages.drawing import Figure
from depsue.pages.report import rendered, report_of, write_report
from depsue.promises import Floor, Promise

HOSTILE = "<script>alert('$x_{')</script>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Made(campaigns.Made):
    """A made-up campaign with its report."""

    @property
    def page(self) -> str:
        return rendered(report_of(self.story))


@pytest.fixture(autouse=True)
def sketched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn only where a test asks for `drawn`: that takes most of the time."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(report, "draw_svg", sketch)


def sketch(figure: Figure) -> Markup:
    """A figure in words alone."""
    return Markup(f'<svg role="img" aria-label="{escape(figure.description)}"></svg>')


@pytest.fixture
def drawn() -> None:
    """Asks for figures as they are."""


def text_of(page: str) -> str:
    """What a reader sees, on one line."""
    body = page[page.index("<body>") :]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", body)))


class Outline(HTMLParser):
    """Headings, ids and tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if found.get("id"):
            self.ids.append(str(found["id"]))


def test_a_campaign_that_was_only_created() -> None:
    said = text_of(Made().page)
    assert "logs of the current policy (pi0) are not taken in yet" in said
    said = text_of(Made().observe(0).page)
    assert "Round 1 of 2: nothing is deployed yet." in said
    assert "the current policy (pi0) goes on as before the campaign" in said
    assert "reward: at least 95% of what the current policy (pi0) earns" in said
    assert "No candidate has been trained yet." in said
    assert "No new item has been observed yet; 2 are waiting." in said
    assert "There is no certificate yet, so nothing is guaranteed" in said
    assert "Next: depsue campaign train spring" in said


def test_a_candidate_and_a_test_without_a_verdict() -> None:
    made = Made().observe(0).train(1)
    assert "Round 1 of 2: a candidate is trained and not tested yet." in text_of(made.page)
    made.ledger.begin_read("spring", 1, sha("data", 0), sha("candidate", 1, 1), by="dee")
    assert re.search("a test that dee began at .* has no verdict yet", text_of(made.page))
    made.ledger.abandon_read("spring", 1, sha("candidate", 1, 1), why="disk <b>full", by="dee")
    page = made.page
    assert "the test was given up, which counts as failed" in text_of(page)
    assert "disk &lt;b&gt;full" in page and 'class="stands bad"' in page


def test_a_certificate_that_passed_and_is_not_deployed_yet() -> None:
    page = Made().observe(0).train(1).certify(1).page
    said = text_of(page)
    assert "Round 1 of 2: a candidate passed its test, with novelty 20%." in said
    assert "certified: novelty 0.200" in said and "What may be deployed now" in said
    assert "≥ 0.2023" in said, "floor 0.95 x 0.2, plus the bound on the difference"
    assert "certified at novelty 20.0%, anticipated value 1.280 of" in page
    assert "anticipated is not promised" in said
    assert 'class="stands good"' in page


def test_a_certificate_that_failed() -> None:
    page = Made().observe(0).train(1).certify(1, None).page
    said = text_of(page)
    assert "the candidate's test failed, so it is not deployed" in said
    assert 'class="stands bad"' in page and 'class="failed">failed' in page
    assert "-0.012300" in said, "the bound, for the statistician"
    assert "That a policy which failed is unsafe" in said
    assert "certified at novelty" not in page


def test_a_round_that_was_served_and_observed() -> None:
    made = Made().observe(0).round(1, 0.26)
    page = made.page
    said = text_of(page)
    assert "Round 2 of 2: it has just begun." in said
    assert "The certified policy of round 1 is deployed" in said
    assert "It is certified to show a new item in 20% of decisions." in said
    assert "In round 1 the mean of reward was 0.2600 ± 0.0088, 130% of pi0's" in said
    assert "against a floor of 0.19: above the floor." in said
    assert "+700.0" in said, "margin (0.26 - 0.19) x 10,000"
    assert "2,000 of 10,000 decisions in the campaign showed a new item" in said
    assert "no certificate spends any of it" in said
    assert "created the campaign" in said and "deployed the certified policy, novelty 20%" in said


def test_a_rollback_to_pi0(drawn: None) -> None:
    made = Made().observe(0).train(1).certify(1).deploy(1, sha("certified", 1, 1))
    made.deploy(1, sha("pi0"), "rollback")
    page = made.page
    assert "certified, not served" in page, "the certificate is about what does not serve"
    said = text_of(page)
    assert "Round 1 of 2 was rolled back to the current policy (pi0). Import what it logs" in said
    assert "The current policy (pi0) is deployed, after a rollback" in said
    assert "rolled back to pi0" in said
    made.observe(1, 0.2)
    assert not made.story.promises[0].outcomes[1].followed


def test_the_certain_level_serves() -> None:
    made = Made().observe(0).train(1).certify(1, None).deploy(1, sha("certain", 1))
    said = text_of(made.page)
    assert "The current policy (pi0) with a few new items, of round 1, is deployed" in said
    assert "It is meant to show a new item in 5% of decisions." in said
    assert "new items as the reward model prefers them, is certain" in text_of(
        Made().observe(0).train(1).certify(1, None).page
    ), "an older version trained the candidate: this is what it serves"


def test_a_campaign_that_is_over(drawn: None) -> None:
    page = Made().observe(0).round(1, 0.26).round(2, 0.25).page
    said = text_of(page)
    assert "The campaign is over: all 2 deployments were served and observed." in said
    assert "+1,300" in said, "margin of both rounds"
    assert "sum so far" in page


def test_a_value_below_the_floor_is_said_aloud() -> None:
    page = Made().observe(0).round(1, 0.15).page
    assert 'class="stands bad"' in page
    assert "the mean reward of round 1 lies below the floor by more than two standard" in text_of(
        page
    )
    close = Made().observe(0).round(1, 0.191).page
    assert "too close to tell" in text_of(close) and 'class="mind"' not in close


def test_several_promises_each_have_their_figures() -> None:
    promises = (
        Promise(Floor(0.9), "clicks"),
        Promise(Floor(None, 0.1), "sales <i>", "sold", 5.0, ("country", "SE")),
    )
    page = Made(promises=promises).observe(0).round(1, 0.26).page
    said = text_of(page)
    assert "clicks: at least 90% of what the current policy (pi0) earns" in said
    assert (
        "sales <i>: at least a mean reward of 0.1, in the column sold, where country is SE" in said
    )
    assert "All promises must pass, each at the full delta." in said
    assert "That pi0 itself keeps a floor" in said
    assert page.count("Mean reward by round") == 2 and page.count("earned above the floor by") == 2


def test_margin_that_a_certificate_counts_on() -> None:
    made = Made(safety="cumulative", per="campaign").observe(0).round(1, 0.26)
    made.train(2).certify(2, credit=0.01)
    page = made.page
    said = text_of(page)
    assert made.story.promises[0].outcomes[2].counted_on == pytest.approx(0.01 * 10_000)
    assert "round 2 not observed, 100.0 counted on" in page
    assert "all deployments so far, taken together" in said
    assert "each of up to 2 verdicts is tested at 2.5%" in said
    made.deploy(2, sha("certified", 1, 1), "rollback")
    assert "nothing certifies anew" in text_of(made.page)
    made.observe(2, 0.15, served=sha("certified", 1, 1))
    said = text_of(made.page)
    assert "below the floor; all 2 rounds together: above the floor." in said
    assert "deployments together lie below the floor" not in said
    lost = Made(safety="cumulative").observe(0).round(1, 0.12).page
    assert "reward: all deployments together lie below the floor" in text_of(lost)


def test_rounds_without_anything_yet_are_not_drawn() -> None:
    made = Made(rounds=3).observe(0).round(1, 0.26)
    page = made.page
    assert "round 2" not in page.split("<h2>Margin")[0].split("<h2>Value")[1].split("<table")[0]
    found = re.findall('aria-label="([^"]*)"', page)
    told = [one for one in found if "by round" in one or one.startswith("Share of decisions")]
    assert len(told) == 4 and all("round 1" in one and "round 2" not in one for one in told)
    made.train(2).certify(2)
    found = re.findall('aria-label="([^"]*)"', made.page)
    assert any("round 2 not observed, certified at least 0.2023" in one for one in found)
    assert any("round 2 served nothing, certified 20.0%" in one for one in found)
    assert not any("above the floor by round" in one and "round 2" in one for one in found)


def test_the_band_around_the_floor_is_in_the_legend(drawn: None) -> None:
    assert "floor ± 2 standard errors" in Made().observe(0).page
    declared = Made(promises=(Promise(Floor(None, 0.1)),)).observe(0).page
    assert "standard errors" in text_of(declared) and "floor ± 2" not in declared


def test_what_is_said_of_a_lone_figure_stands_beside_it() -> None:
    def beside(page: str, heading: str) -> bool:
        section = page.split(f"<h2>{heading}")[1].split("<h2>")[0]
        return "</div>" not in section.split('class="panels"')[1].split('<p class="note">')[0]

    one = Made().observe(0).round(1, 0.26).page
    assert not beside(one, "Value") and beside(one, "Margin") and beside(one, "How far")
    two = Made(promises=(Promise(), Promise(name="other"))).observe(0).round(1, 0.26).page
    assert beside(two, "Value") and not beside(two, "Margin")
    assert "the mean reward is a mean over units, each counted alike" in text_of(one)


def test_items_that_came_and_went_are_told_on_top() -> None:
    made = Made(rounds=3).observe(0)
    assert "Since the campaign began" not in made.page
    serves = [sha("certified", k, 1) for k in range(3)]
    made.train(1).certify(1).deploy(1, serves[1])
    arrived = ["mug", "<i>pot", "pan", "jug"]
    made.observe(1, 0.26, served=serves[1], arrived=arrived, withdrawn=["kettle"])
    said = text_of(made.page.split("<dl")[0])
    assert (
        "Since the campaign began, 4 new items arrived (after round 1: mug, <i>pot, pan, ...) and "
        "1 item was withdrawn (after round 1: kettle)." in said
    )
    made.train(2).certify(2).deploy(2, serves[2])
    gone = ["kettle", "lamp", "mug"]
    made.observe(2, 0.26, served=serves[2], arrived=["cup"], withdrawn=gone)
    said = text_of(made.page.split("<dl")[0])
    assert "5 new items arrived (after round 1: mug, <i>pot, pan, ...; after round 2: cup)" in said
    assert "3 items were withdrawn (after round 1: kettle; after round 2: lamp, mug)." in said


def test_one_of_a_kind_is_singular() -> None:
    made = Made(rounds=1, per="campaign").observe(0, items=[("kettle", 0, 0.0)])
    said = text_of(made.page)
    assert "1 deployment to show new items" in said and "1 of 1 deployment " in said
    assert "No new item has been observed yet; 1 is waiting." in said
    assert "at most 5% of the time: its one verdict is tested at 5%." in said
    made.round(1, 0.26, items=[("kettle", 0, 0.0), ("lamp", 10, 1.0)])
    said = text_of(made.page)
    assert "The campaign is over: its one deployment was served and observed." in said
    assert "1 of 2 listed new items was never shown." in said
    assert "Counted in this campaign: 1 read." in said
    bare = Made().page
    assert "The journal: 1 line<" in bare
    wrong = r"\b1 (items|rounds|deployments|decisions|levels|lines|reads|candidates|rows)\b"
    for page in (made.page, bare):
        assert not re.search(wrong, re.sub(r"of 1 \w+", "", text_of(page)))


def test_retries_are_counted() -> None:
    made = Made(retries=True).observe(0).train(1).certify(1, None)
    made.train(1, 2, trust=0.8).certify(1, 0.1, 2)
    said = text_of(made.page)
    assert "the j-th on the same rows is tested at 5% x 2^-j" in said
    assert "Counted in this campaign: 2 reads" in said and "passed (attempt 2)" in said
    assert "Round 1: failed" in said and "Round 1: passed" in said


def test_drift_that_was_declared_away_and_found() -> None:
    made = Made(no_drift=True).observe(0).round(1, 0.26).train(2)
    assert "pi0's value was found to have changed" in text_of(made.page)
    kept = Made(no_drift=True).observe(0).round(1, 0.26)
    kept.train(2, ceilings={"reward": Ceiling(0.21, 0.005, 100, sha("data", 0))})
    assert "found to have changed" not in text_of(kept.page)


def test_the_certificate_is_there_in_full() -> None:
    made = Made().observe(0).train(1).certify(1, assumes=("the sky is <blue>",))
    page = made.page
    certificate = made.ledger.attempts("spring")[0].certificate
    assert certificate is not None
    said = text_of(page)
    for words in (sha("data", 0), sha("certified", 1, 1), sha("candidate", 1, 1), "berry-esseen",
                  "sd_most 1.25", "19.5", "0.35, 0.05, 0.6", "22 of 31", "0.012300",
                  "terms do not overstate", "reward 0.05"):  # fmt: skip
        assert words in said, words
    assert "the sky is <blue> (round 1)" in said and "is &lt;blue" in page
    assert "&#34;sd_most&#34;: 1.25" in page, "as it was written"


def test_exposure_adds_up_over_rounds() -> None:
    made = Made().observe(0).round(1, 0.26, items=[("kettle", 900, 180.0), ("lamp", 100, 0.0)])
    made.round(2, 0.26, items=[("lamp", 300, 90.0), ("kettle", 100, 20.0), ("mug", 10, 5.0)])
    found = made.story.items
    assert [(one.id, one.shown, one.by_round) for one in found.items] == [
        ("kettle", 1000, (900, 100)),
        ("lamp", 400, (100, 300)),
        ("mug", 10, (0, 10)),
    ]
    kettle, lamp, mug = found.items
    assert kettle.mean == pytest.approx(0.2)
    assert kettle.error == pytest.approx((0.2 * 0.8 / 1000) ** 0.5), "exact for rewards of 0 or 1"
    assert lamp.mean == pytest.approx(90 / 400) and mug.error is None, "shown too seldom to say"
    assert (found.shown, found.rows) == (1410, 20_000)
    assert "0.200 ± 0.013" in text_of(made.page)


def test_exposure_is_forecast_before_it_is_deployed() -> None:
    shares = tuple(
        ItemShare(id, share, 0.25)
        for id, share in ((HOSTILE, 0.88), ("lamp", 0.06), ("mug", 0.04), ("pot", 0.02))
    )
    expected = Expected(old=1.4, new=0.8, logging=1.0, even=0.7)
    made = Made().observe(0).train(1, exposure=NewItemShares(shares, likely=0.1), expected=expected)
    said = text_of(made.page)
    assert "A forecast: the boldest level that is likely to pass, novelty 10.0%" in said
    assert f"{HOSTILE} 880 88.0% lamp 60 6.0%" in said and "<script" not in made.page
    assert "2 of 4 new items are forecast to be shown hardly at all" in said
    assert "new items about 500 times, each equally often." in said
    deployed = text_of(made.certify(1).deploy(1, sha("certified", 1, 1)).page)
    assert "the certified policy (novelty 0.200) shows new items about 2,000 times." in deployed
    assert "each equally often" not in deployed


def test_the_discoverable_corpus_has_a_figure_and_a_table() -> None:
    counts = ItemCounts(
        np.array([False, True, True]), np.array([900, 300, 20]), np.array([9, 4, 1])
    )
    made = Made().observe(0, counts=counts.packed())
    assert "Discoverable corpus" not in text_of(made.page), "no round was observed yet"
    made.train(1).certify(1).deploy(1, sha("certified", 1, 1))
    page = made.observe(1, 0.26, served=sha("certified", 1, 1), counts=counts.packed()).page
    assert "with at least 5 rewards in learn and select rows: round 1: 1 (0) of 2" in page
    assert "1 1 (0) of 2 1 (1) of 2 2 (1) of 3 2 (2) of 3" in text_of(page)


def test_only_the_items_shown_most_have_bars() -> None:
    items = [(f"item {place}", 100 - place, 10.0) for place in range(20)]
    page = Made().observe(0).round(1, 0.26, items=items).page
    assert page.count('<td class="bar">') == 15
    assert page.count("item 19") == 1 and page.count("<bdi>item 0</bdi>") == 2
    made = Made().observe(0, items=[(id, 0, 0.0) for id, _, _ in items], novel_items=50)
    made.round(1, 0.26, items=items)
    assert "30 more, shown least, are not kept one by one." in text_of(made.page)


def test_ids_and_names_are_text(drawn: None) -> None:
    items = [(HOSTILE, 500, 100.0), ("\u202eevil\ud800", 100, 10.0), ("灯 $\\frac", 90, 10.0)]
    made = Made(promises=(Promise(name=HOSTILE),)).observe(0)
    page = made.round(1, 0.26, items=items, assumes=(HOSTILE,)).page
    assert "<script" not in page and "&lt;script&gt;alert(" in page
    assert "<bdi>灯 $\\frac</bdi>" in page


def test_the_page_stands_alone_and_is_in_order(drawn: None, tmp_path: Path) -> None:
    made = Made(promises=(Promise(), Promise(name="other"))).observe(0).round(1, 0.26)
    items = (("\ud800", 10, 1.0),)
    made.train(2).certify(2).deploy(2, sha("certified", 2, 1))
    made.observe(2, 0.3, served=sha("certified", 2, 1), items=items)
    page = write_report(made.campaign, tmp_path / "deep" / "report.html")
    text = page.read_text(encoding="utf-8")
    found = Outline(text)
    assert found.headings[0] == 1 and found.headings.count(1) == 1
    steps = zip(found.headings, found.headings[1:], strict=False)
    assert all(after - before <= 1 for before, after in steps)
    assert len(set(found.ids)) == len(found.ids), "figures share no ids"
    figures = [attributes for tag, attributes in found.tags if tag == "svg"]
    assert len(figures) == 8
    assert all(one["role"] == "img" and one["aria-label"] for one in figures)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in found.tags}
    links = [v for _, attributes in found.tags for k, v in attributes.items() if "href" in k]
    assert all(str(link).startswith("#") for link in links)
    assert "@import" not in text and "url(http" not in text
    assert "prefers-color-scheme: dark" in text and "#1f5a96" not in text.split("</style>")[1]
    assert list(page.parent.iterdir()) == [page]
    again = write_report(made.campaign, tmp_path / "again.html")
    assert again.read_bytes() == page.read_bytes(), "the same ledger gives the same page"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here before")
    with pytest.raises(FileError, match="writable"):
        write_report(Made().observe(0).campaign, tmp_path / "file" / "report.html")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_the_page_fits_a_phone(drawn: None, tmp_path: Path) -> None:
    items = [(f"a long name of an item {place}" * 3, 500 - place, 100.0) for place in range(20)]
    made = Made().observe(0).round(1, 0.26, items=items).train(2).certify(2, None)
    probe = tmp_path / "probe.html"
    probe.write_text(
        made.page.replace("<details>", "<details open>")
        + "<script>const d = document, e = d.documentElement;"
        "d.title = [e.scrollWidth <= e.clientWidth,"
        "[...d.querySelectorAll('figure > svg')].every(s => s.getBoundingClientRect().width > 200)"
        "].join('|');</script>"
    )
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync"
    ).split()
    command = [
        str(CHROMIUM),
        *flags,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=500,900",
        "--dump-dom",
        probe.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "<title>true|true</title>" in done.stdout
