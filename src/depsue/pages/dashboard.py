"""Which page answers a path, and who may see it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from depsue.campaigns import Campaign, recompute
from depsue.errors import ConfigError, DepsueError, FileError
from depsue.pages import rendering
from depsue.pages.campaign import (
    Action,
    Glance,
    Overview,
    Stories,
    action_page,
    campaign_page,
    filled,
    glance,
    plan_page,
    planned,
    require_said,
    settings_of,
)
from depsue.pages.certificate import certificate_page
from depsue.pages.figures import levels_figure, live_figures, round_figures
from depsue.pages.jobs import Jobs
from depsue.pages.plan_report import frontier_figure
from depsue.pages.rendering import path_of, static
from depsue.pages.sessions import (
    Sessions,
    Visitor,
    carries,
    cookie,
    from_here,
    query_of,
    wants_json,
    wants_page,
    within,
)
from depsue.serving.access import Access
from depsue.serving.app import Pages, encode, refused
from depsue.serving.http import Answer, Request
from depsue.serving.service import Service

T = TypeVar("T")
PATIENCE = 3.0
"""Seconds that an answer waits for short work, before a page shows its progress instead."""
_PAGES = re.compile(
    r"/campaigns/(?P<name>[A-Za-z0-9][A-Za-z0-9_-]{0,63})"
    r"(?:/(?P<part>plan|stop|resume)|/certificates/(?P<k>[0-9]{1,4})-(?P<attempt>[0-9]{1,4}))?"
)


@dataclass(frozen=True)
class Visit:
    """A page that is asked for, by whom, and whether as JSON."""

    request: Request
    visitor: Visitor
    as_json: bool

    @property
    def posted(self) -> bool:
        """Whether a form was sent."""
        return self.request.method == "POST"


class NoSuchPage(Exception):
    """There is nothing at that path."""


class Dashboard(Pages):
    """The pages.

    Args:
        service: what serves; its ledger has the campaigns.
        access: whose tokens count.
        secure: whether the server speaks TLS.
    """

    def __init__(
        self,
        service: Service,
        access: Access,
        *,
        secure: bool = False,
    ) -> None:
        self._service, self._access = service, access
        self._secure = secure
        self._sessions = Sessions(access, service.campaign.by)
        self.plans, self.recomputations = Jobs(), Jobs()
        self._stories = Stories()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="depsue-pages")

    async def answer(self, request: Request) -> Answer | None:
        """The answer; None if there is no such page."""
        path = request.path
        if path.startswith("/static/"):
            return await self._in_thread(static, request)
        if request.method not in ("GET", "POST"):
            return refused(405, "pages take GET and POST", found=request.method)
        if request.method == "POST" and not from_here(request):
            return self._wrong(request, 403, "a form must be sent from these pages")
        visitor = self._sessions.visitor(request)
        if path == "/login":
            return self._login(request, visitor)
        as_json = path.endswith(".json") or (request.method == "GET" and wants_json(request))
        page = self._page(path.removesuffix(".json") if path != "/index.json" else "/")
        if page is None:
            wrong = "there is no such page"
            return self._wrong(request, 404, wrong) if wants_page(request) else None
        if visitor is None:
            return self._refused(request, as_json)
        if request.method == "POST" and as_json:
            return refused(405, "a page's JSON is read, not sent", cure="/openapi.json")
        if request.method == "POST" and not carries(request, visitor):
            return self._wrong(
                request,
                403,
                "a form must be of this session",
                cure="load the page again, and send it from there",
            )
        if path == "/logout" and request.method == "POST":
            self._sessions.end(request)
            return self._to("/login", cookie=cookie("", secure=self._is_secure(request)))
        return await self._in_thread(self._guarded, page, Visit(request, visitor, as_json))

    def _page(self, path: str) -> Callable[[Visit], Answer] | None:
        """What answers a path."""
        if path == "/":
            return self._overview
        if path == "/logout":
            return lambda visit: self._to("/")
        match = _PAGES.fullmatch(path)
        if match is None:
            return None
        name = match["name"]
        if match["k"] is not None:
            return partial(self._certificate, name, int(match["k"]), int(match["attempt"]))
        if match["part"] == "plan":
            return partial(self._plan, name)
        if match["part"] is not None:
            return partial(self._act, name, "stop" if match["part"] == "stop" else "resume")
        return partial(self._campaign, name)

    def _guarded(self, page: Callable[[Visit], Answer], visit: Visit) -> Answer:
        """The page, or why there is none."""
        status, rule, found, cure = 404, "there is no such page", "", ""
        try:
            return page(visit)
        except NoSuchPage as problem:
            found = str(problem)
        except DepsueError as problem:
            status = 503 if isinstance(problem, FileError) else 409
            rule, found, cure = problem.rule, problem.found, problem.cure
        if visit.as_json:
            return refused(status, rule, found=found, cure=cure)
        return self._wrong(visit.request, status, rule, found=found, cure=cure)

    def _overview(self, visit: Visit) -> Answer:
        served = self._service.campaign.name
        glances = []
        for record in reversed(self._service.campaign.ledger.campaigns()):
            name = record.name
            state = self._service.state if name == served else None
            try:
                glances.append(glance(self._stories.of(self._open(name)), state))
            except DepsueError as problem:
                glances.append(Glance(name, path_of(name), state=state, problem=str(problem)))
        glances.sort(key=lambda campaign: campaign.name != served)
        return self._shown("overview.html", Overview(served, tuple(glances)), visit)

    def _campaign(self, name: str, visit: Visit) -> Answer:
        page = campaign_page(self._stories.of(self._open(name)), self._serving(name))
        refresh = query_of(visit.request).get("live", "")
        return self._shown(
            "campaign.html",
            page,
            visit,
            live_figures=partial(_maybe, live_figures, page.live),
            round_figures=partial(round_figures, page.story),
            refresh=refresh if page.live is not None else "off",
        )

    def _certificate(self, name: str, k: int, attempt: int, visit: Visit) -> Answer:
        campaign, key = self._open(name), f"{name}/{k}-{attempt}"
        story = self._stories.of(campaign)
        page = certificate_page(story, k, attempt, self.recomputations.of(key))
        if page is None:
            raise NoSuchPage(f"no test {k}-{attempt} in campaign {name}")
        if visit.posted:
            if page.test.certificate is None:
                raise ConfigError("what is verified has a certificate", found=page.test.state)
            work = partial(recompute, campaign, k, attempt)
            job = self.recomputations.start(key, f"verifying {key}", {}, work)
            job.done.wait(PATIENCE)
            return self._to(f"{page.path}#verify")
        figure = partial(levels_figure, story, page.test, "How far the test went", "levels")
        return self._shown("certificate.html", page, visit, figure=figure)

    def _plan(self, name: str, visit: Visit) -> Answer:
        campaign = self._open(name)
        show = partial(plan_page, campaign, self.plans.of(name), running=self.plans.running)
        if visit.posted:
            form = filled(campaign.settings.explore, visit.request.form)
            page = show(form=form)
            try:
                explore = settings_of(campaign.settings.explore, form)
                if not page.possible:
                    raise ConfigError("there must be something to plan", found=page.logs[-1])
                work = partial(planned, self._open(name), explore)
                self.plans.start(name, f"a plan of {name}", form, work)
            except DepsueError as problem:
                page = show(form=form, problem=str(problem))
                return self._shown("plan.html", page, visit, status=422, figure=lambda: None)
            return self._to(page.path)
        page = show()
        figure = partial(_maybe, frontier_figure, page.result)
        return self._shown("plan.html", page, visit, figure=figure)

    def _act(self, name: str, action: Action, visit: Visit) -> Answer:
        campaign, service = self._open(name), self._serving(name)
        form = {"by": visit.visitor.name, "stops": "", **visit.request.form} if visit.posted else {}
        show = partial(action_page, action, campaign, service)
        if not visit.posted:
            return self._shown("action.html", show({"by": visit.visitor.name}), visit)
        try:
            reason, by = require_said(form)
        except ConfigError as problem:
            page = show(form, problem=str(problem))
            return self._shown("action.html", page, visit, status=422)
        page = show({**form, "reason": reason, "by": by}, sure=True)
        if not page.possible or service is None:
            return self._shown("action.html", page, visit, status=409)
        if form.get("sure") != "yes":
            return self._shown("action.html", page, visit)
        if action == "stop":
            service.stop_policy(f"{reason} (by hand)", by)
        else:
            service.resume_policy(page.stops, reason, by)
        visit.visitor.name = by
        return self._to(f"{path_of(name)}#monitor")

    def _login(self, request: Request, visitor: Visitor | None) -> Answer:
        """Take a token, give a session."""
        then = within(query_of(request).get("next", "/"))
        if visitor is not None and request.method == "GET":
            return self._to(then)
        if request.method == "GET":
            return rendering.page("login.html", None, problem="", next=then)
        then = within(request.form.get("next", "/"))
        id = self._sessions.begin(request.form.get("token", "").strip())
        if id is None:
            problem = "That is not the token of an admin."
            return rendering.page("login.html", None, status=401, problem=problem, next=then)
        return self._to(then, cookie=cookie(id, secure=self._is_secure(request)))

    def _refused(self, request: Request, as_json: bool) -> Answer:
        if as_json or not wants_page(request):
            return refused(
                401,
                "this needs a token of the role admin",
                found="none, or another",
                cure="authorization: Bearer TOKEN, or log in at /login",
                headers=((b"www-authenticate", b"Bearer"),),
            )
        return self._to(f"/login?next={quote(request.path, safe='')}")

    def _open(self, name: str) -> Campaign:
        """A campaign by name."""
        served = self._service.campaign
        if name not in {record.name for record in served.ledger.campaigns()}:
            raise NoSuchPage(f"no campaign {name}")
        home = served.files.folder.parent
        return Campaign(served.ledger, home, name, by=served.by, outside=served.outside)

    def _serving(self, name: str) -> Service | None:
        return self._service if name == self._service.campaign.name else None

    def _shown(
        self, template: str, page: Any, visit: Visit, *, status: int = 200, **more: Any
    ) -> Answer:
        """The page, or its JSON; what only the page needs is computed for it alone."""
        if visit.as_json:
            return Answer(status, encode(page))
        more = {name: value() if callable(value) else value for name, value in more.items()}
        return rendering.page(template, visit.visitor, status=status, page=page, **more)

    def _wrong(
        self, request: Request, status: int, rule: str, *, found: str = "", cure: str = ""
    ) -> Answer:
        """A page that says why not."""
        visitor = self._sessions.visitor(request)
        return rendering.page(
            "problem.html", visitor, status=status, rule=rule, found=found, cure=cure
        )

    def _to(self, path: str, *, cookie: bytes | None = None) -> Answer:
        more = () if cookie is None else ((b"set-cookie", cookie),)
        place = quote(path, safe="/?&=%#").encode()
        return Answer(303, b"", b"text/plain", ((b"location", place), *more))

    def _is_secure(self, request: Request) -> bool:
        return self._secure or request.headers.get(b"x-forwarded-proto") == b"https"

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


def _maybe(make: Callable[[Any], Any], of: Any) -> Any:
    return None if of is None else make(of)
