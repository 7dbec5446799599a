"""What each page shows, and its JSON twin."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape
from tests.pages.browser import Browser
from tests.pages.conftest import HOSTILE, decided
from tests.serving.conftest import Clock

from depsue import codec
from depsue.campaigns import Campaign, open_home, story_of
from depsue.pages.figures import round_figures
from depsue.pages.report import rendered, report_of
from depsue.pages.words import sentences
from depsue.serving.service import Service

PAGES = (
    "/campaigns/spring",
    "/campaigns/spring/plan",
    "/campaigns/spring/stop",
    "/campaigns/spring/resume",
    "/campaigns/spring/certificates/1-1",
    "/campaigns/summer",
    "/campaigns/winter",
    "/campaigns/winter/certificates/1-1",
)


@pytest.mark.parametrize("path", ["/", *PAGES])
def test_every_page_is_whole_and_keeps_to_itself(visit: Browser, path: str) -> None:
    found = visit.get(path)
    assert found.status == 200
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy
    assert found.text.count("<h1>") == 1 and 'lang="en"' in found.text
    assert "<script>alert" not in found.text  # of who made the campaigns
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", found.text)
    assert not re.search(r"\son\w+=", found.text)  # no scripts in attributes


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_a_json_twin(visit: Browser, path: str) -> None:
    found = visit.get(f"{path}.json")
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    assert f'href="{path}.json"' in visit.get(path).text
    assert found.json["path"] == path


def test_the_overview_names_all_campaigns_and_what_is_served_here(visit: Browser) -> None:
    page, twin = visit.get("/").text, visit.get("/index.json").json
    assert twin["served"] == "spring"
    assert {one["name"]: one["state"] for one in twin["campaigns"]} == {
        "spring": "waiting",
        "summer": None,
        "winter": None,
        "easter": None,
    }
    assert twin["campaigns"][0]["name"] == "spring"
    for one in twin["campaigns"]:
        assert escape(one["headline"]) in page and f'href="{one["path"]}"' in page
    assert [one["round"] for one in twin["campaigns"]] == ["1 of 2", "2 of 2", "1 of 2", "1 of 2"]


def test_a_campaign_that_cannot_be_read_does_not_hide_the_others(
    visit: Browser, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from depsue.campaigns.settings import CampaignTerms
    from depsue.errors import FileError

    def refuses(record: object) -> CampaignTerms:
        raise FileError("settings must be of this version")

    monkeypatch.setattr(CampaignTerms, "of", refuses)
    twin = visit.get("/index.json").json
    assert all("of this version" in one["problem"] for one in twin["campaigns"])
    assert visit.get("/").status == 200
    assert visit.get("/campaigns/summer").status == 503


def test_the_live_part_says_what_was_served(visit: Browser, service: Service, clock: Clock) -> None:
    assert visit.get("/campaigns/spring.json").json["live"]["values"] == []
    decided(service, clock, 300)
    live = visit.get("/campaigns/spring.json").json["live"]
    point, last = service.account.points[-1], live["values"][-1]
    assert (last["decisions"], last["policy"]) == (300, list(point.policy or ()))
    assert last["pi0"] == list(point.pi0 or ())
    assert last["novelty"] == point.novelty and last["margin"] == pytest.approx(point.margin)
    tests = live["status"]["monitor"]["tests"]
    assert [one["name"] for one in tests] == [one.name for one in service.monitor.findings]
    assert all(0 <= one["share"] <= 1 for one in tests if one["share"] is not None)
    page = visit.get("/campaigns/spring").text
    for one in tests:
        assert escape(one["words"]) in page
    assert page.count('<script type="application/json">') == 5
    for heading in ("Value", "Novelty", "Margin"):
        assert f"{heading} as a table" in page


def test_new_items_are_counted_now_and_before(
    visit: Browser, service: Service, clock: Clock
) -> None:
    decided(service, clock, 300)
    account = service.account
    items = visit.get("/campaigns/spring.json").json["items"]
    novel = account.served.catalogue.novel
    assert items["shown_now"] == account.shown[novel].sum() == account.counts.new
    assert items["rows_now"] == account.shown.sum() == 300
    ids = [str(id) for id in account.served.ids]
    for one in items["items"]:
        place = ids.index(one["id"])
        assert one["shown_now"] == account.shown[place]
        assert one["mean_now"] == (1.0 if account.read[place] else None)  # each earned 1
    before = visit.get("/campaigns/summer.json").json
    assert before["live"] is None
    assert sum(one["shown"] for one in before["items"]["items"]) == before["items"]["shown"] > 0
    assert before["items"]["rows"] == 8000


def as_values(record: object) -> Any:
    """A record as a reader of its JSON gets it."""
    return json.loads(codec.encode(record))


def test_page_twin_report_and_status_render_one_story(visit: Browser, home: Path) -> None:
    campaign = Campaign(open_home(home), home, "summer", by="reader")
    story = story_of(campaign)
    twin, page = visit.get("/campaigns/summer.json").json, visit.get("/campaigns/summer").text
    report = as_values(report_of(story))
    assert twin["story"] == as_values(story) == report["story"]
    assert twin["words"] == report["words"] and twin["tiles"] == report["tiles"]
    written = rendered(report_of(story))
    words = sentences(story)
    for said in (words.headline, *words.paragraphs, *words.concerns, *words.promises, words.next):
        assert escape(said) in page and escape(said) in written
    for tile in twin["tiles"]:
        for shown in (tile["figure"], tile["what"]):
            assert escape(shown) in page and escape(shown) in written
    for name in ("value-0", "novelty", "margin-0"):
        figure = next(one for one in round_figures(story) if one.name == f"rounds-{name}")
        assert escape(figure.description) in page and escape(figure.description) in written
    assert f'class="stands {twin["mood"]}"' in page and f'class="stands {story.mood}"' in written
    assert twin["journal"][-1][1] == HOSTILE
    assert HOSTILE not in page and HOSTILE not in written


def test_the_page_of_a_certificate_and_its_twin_say_the_same(visit: Browser, home: Path) -> None:
    story = story_of(Campaign(open_home(home), home, "winter", by="reader"))
    path = "/campaigns/winter/certificates/1-1"
    twin, page = visit.get(f"{path}.json").json, visit.get(path).text
    assert twin["test"] == as_values(story.tests[0])
    for said in (*twin["sentences"], *twin["assumptions"], *(fact[1] for fact in twin["facts"])):
        assert escape(said) in page
    for verdict in twin["verdicts"]:
        assert all(escape(cell) in page for cell in verdict["cells"])


@pytest.mark.parametrize("path", PAGES)
def test_a_program_that_asks_for_json_gets_the_twin(visit: Browser, path: str) -> None:
    asked = visit.get(path, accept="application/json")
    assert asked.headers["content-type"] == "application/json"
    assert asked.json["path"] == visit.get(f"{path}.json").json["path"] == path
    assert visit.get(path, accept="text/html,application/json").text.startswith("<!doctype html>")


def test_what_the_ledger_tells_anew_is_seen(visit: Browser, home: Path) -> None:
    before = visit.get("/campaigns/summer.json").json
    Campaign(open_home(home), home, "summer", by="bo").rollback()
    after = visit.get("/campaigns/summer.json").json
    assert "rolled back" in after["words"]["headline"] != before["words"]["headline"]
    assert len(after["journal"]) == len(before["journal"]) + 1


@pytest.mark.parametrize(
    "path",
    [
        "/campaigns/autumn",
        "/campaigns/autumn/plan",
        "/campaigns/spring/certificates/7-1",
        "/campaigns/spring/nothing",
        "/campaigns/..%2fspring",
        "/nowhere",
    ],
)
def test_there_is_a_page_for_what_is_not_there(visit: Browser, path: str) -> None:
    found = visit.get(path)
    assert found.status == 404 and "There is no such page" in found.text
    if path.startswith("/campaigns/a"):
        assert visit.get(f"{path}.json").json["error"] == "there is no such page"
    assert visit.get("/nowhere", accept="application/json").json["error"] == "there is no such page"


def test_a_page_can_stand_still(visit: Browser) -> None:
    fresh, still = visit.get("/campaigns/spring").text, visit.get("/campaigns/spring?live=off").text
    assert "data-refresh" in fresh and "data-refresh" not in still
    assert "http-equiv" not in fresh  # without a script, only who asks for it
    assert "http-equiv" in visit.get("/campaigns/spring?live=on").text
    assert "data-refresh" not in visit.get("/campaigns/summer").text
    assert visit.get("/campaigns/spring?" + "&".join(f"a{k}=1" for k in range(99))).status == 200


def test_trouble_with_the_store_is_said(visit: Browser, service: Service) -> None:
    service.problem = "a policy's files must be those that were recorded"
    page = visit.get("/campaigns/spring")
    assert "A newer policy is not served: a policy" in page.text
    assert 'class="stands bad"' in page.text


def test_scripts_and_styles_come_from_here_and_stay(visit: Browser) -> None:
    page = visit.get("/campaigns/spring").text
    for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
        found = visit.get(path)
        assert found.status == 200 and "immutable" in found.headers["cache-control"]
        again = visit.get(path, if_none_match=found.headers["etag"])
        assert (again.status, again.body) == (304, b"")
        packed = visit.get(path, accept_encoding="gzip, br")
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == found.body
    plain = visit.get("/static/plotly.min.js")
    assert plain.headers["cache-control"] == "public, max-age=86400" and len(plain.body) > 1e6
    assert visit.get("/static/../dashboard.py").status == 404
    assert visit.get("/static/none.js", accept="*/*").status == 404


def test_every_twin_is_in_the_openapi_document(visit: Browser) -> None:
    paths = visit.get("/openapi.json").json["paths"]
    twins = {path for path in paths if path.endswith(".json") and path != "/openapi.json"}
    assert len(twins) == 7
    for path in twins:
        operation = paths[path]["get"]
        assert operation["summary"] and "role admin" in operation["description"]
        named = [each["name"] for each in operation.get("parameters", ())]
        assert named == re.findall(r"{(\w+)}", path)
        asked = path.replace("{name}", "spring").replace("{k}-{attempt}", "1-1")
        assert visit.get(asked).headers["content-type"] == "application/json"


def test_head_is_get_without_the_body(visit: Browser) -> None:
    for path in ("/", "/static/style.css", "/nowhere"):
        whole, head = visit.get(path), visit.call("HEAD", path, b"", {})
        assert head.status == whole.status and head.body == b""
        assert head.headers == whole.headers


def test_a_form_that_is_too_much_is_refused(visit: Browser) -> None:
    many = {f"field{k}": "x" for k in range(60)}
    refusal = visit.post("/campaigns/spring/stop", many)
    assert refusal.status == 400 and "A form must be readable" in refusal.text
    file = b'--b\r\ncontent-disposition: form-data; name="csrf"; filename="x"\r\n\r\nx\r\n--b--\r\n'
    headers = {"content_type": "multipart/form-data; boundary=b"}
    assert visit.call("POST", "/campaigns/spring/stop", file, headers).status == 400


def test_a_slash_too_many_leads_nowhere(visit: Browser) -> None:
    assert visit.get("/campaigns/spring/").status == 404
