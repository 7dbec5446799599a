"""Which page answers a path, and who may see it: an application of Starlette's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

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
    share_said,
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
    form_of,
    from_here,
    set_session,
    wants_json,
    wants_page,
    within,
)
from depsue.serving.access import Access
from depsue.serving.app import Operation
from depsue.serving.http import Receive, Scope, Send, encode, refused
from depsue.serving.service import Service

T = TypeVar("T")
PATIENCE = 3.0
"""Seconds that an answer waits for short work, before a page shows its progress instead."""


@dataclass(frozen=True)
class Visit:
    """A page that is asked for, by whom, with which form, and whether as JSON."""

    request: Request
    visitor: Visitor
    form: Mapping[str, str]
    as_json: bool

    @property
    def posted(self) -> bool:
        """Whether a form was sent."""
        return self.request.method == "POST"

    @property
    def name(self) -> str:
        """The campaign that the path names."""
        return str(self.request.path_params["name"])


class NoSuchPage(Exception):
    """There is nothing at that path."""


@dataclass(frozen=True)
class Page:
    """A page: where it is, what shows it, and what its JSON twin tells.

    Args:
        path: with the names of parameters in braces.
        show: makes it.
        summary: in words, for the OpenAPI document.
        takes_form: whether a form can be sent to it.
        twin: where its JSON is; None is the path with `.json`.
    """

    path: str
    show: Callable[[Visit], Response]
    summary: str
    takes_form: bool = False
    twin: str | None = None

    @property
    def operation(self) -> Operation:
        """Its JSON twin, as programs ask for it."""
        return Operation("GET", self.twin or f"{self.path}.json", "admin", self.summary)


class CampaignName(Convertor[str]):
    """A name that can be a folder's."""

    regex = "[A-Za-z0-9][A-Za-z0-9_-]{0,63}"

    def convert(self, value: str) -> str:
        """As it is."""
        return value

    def to_string(self, value: str) -> str:
        """As it is."""
        return value


class SmallNumber(Convertor[int]):
    """The number of a round or of an attempt."""

    regex = "[0-9]{1,4}"

    def convert(self, value: str) -> int:
        """The number."""
        return int(value)

    def to_string(self, value: int) -> str:
        """Its digits."""
        return str(value)


register_url_convertor("campaign", CampaignName())
register_url_convertor("small", SmallNumber())
PARAMETERS = {"{name}": "{name:campaign}", "{k}": "{k:small}", "{attempt}": "{attempt:small}"}
"""What the parameters of a path may be."""


class Dashboard:
    """The pages, as an application of Starlette's.

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
        of, test = "/campaigns/{name}", "/campaigns/{name}/certificates/{k}-{attempt}"
        pages = (
            Page("/", self._overview, "All campaigns", twin="/index.json"),
            Page(of, self._campaign, "A campaign, and what serves now"),
            Page(f"{of}/plan", self._plan, "The plan of its next round", takes_form=True),
            Page(
                f"{of}/share",
                self._share,
                "Which share of traffic is on its policy",
                takes_form=True,
            ),
            Page(f"{of}/stop", self._stop, "Whether its policy can be stopped", takes_form=True),
            Page(f"{of}/resume", self._resume, "Whether it can be resumed", takes_form=True),
            Page(test, self._certificate, "A test and its certificate", takes_form=True),
        )
        self.operations = [page.operation for page in pages]
        """What programs may ask: the JSON twins."""
        routes = [route for page in pages for route in self._routes(page)]
        self._app = Starlette(
            routes=[
                *routes,
                Route("/login", self._login, methods=["GET", "POST"]),
                Route("/logout", self._logout, methods=["GET", "POST"]),
                Route("/static/{name}", self._static),
            ],
            exception_handlers={HTTPException: self._turned_away},
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        await self._app(scope, receive, send)

    def _routes(self, page: Page) -> list[Route]:
        """The page and its twin."""
        path, twin = page.path, page.operation.path
        for plain, typed in PARAMETERS.items():
            path, twin = path.replace(plain, typed), twin.replace(plain, typed)
        methods = ["GET", "POST"] if page.takes_form else ["GET"]
        return [
            Route(path, partial(self._visited, page, False), methods=methods),
            Route(twin, partial(self._visited, page, True), methods=["GET"]),
        ]

    async def _visited(self, page: Page, as_json: bool, request: Request) -> Response:
        """A page, for who may see it."""
        posted = request.method == "POST"
        as_json = as_json or (not posted and wants_json(request))
        if posted and not from_here(request):
            return self._wrong(request, 403, "a form must be sent from these pages")
        visitor = self._sessions.visitor(request)
        if visitor is None:
            return self._refused(request, as_json)
        form = await form_of(request) if posted else {}
        if posted and not carries(form, visitor):
            return self._not_of_this_session(request)
        visit = Visit(request, visitor, form, as_json)
        return await self._in_thread(self._guarded, page.show, visit)

    async def _static(self, request: Request) -> Response:
        """A script or a style."""
        file = await self._in_thread(static, request, request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        return file

    async def _turned_away(self, request: Request, problem: Exception) -> Response:
        """What Starlette refuses: no such path, another method, a form that is none."""
        status = problem.status_code if isinstance(problem, HTTPException) else 400
        if status == 405:
            headers = getattr(problem, "headers", None) or {}
            takes = ", ".join(sorted(headers.get("Allow", "").split(", ")))
            return _refusal(
                405,
                "the path does not take this method",
                found=request.method,
                cure=f"it takes {takes}",
                headers=((b"allow", takes.encode()),),
            )
        rule = "there is no such page" if status == 404 else "a form must be readable"
        if request.method == "POST" and not from_here(request):
            status, rule = 403, "a form must be sent from these pages"
        if wants_page(request):
            return self._wrong(request, status, rule)
        return _refusal(status, rule, cure="GET /openapi.json")

    def _guarded(self, page: Callable[[Visit], Response], visit: Visit) -> Response:
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
            return _refusal(status, rule, found=found, cure=cure)
        return self._wrong(visit.request, status, rule, found=found, cure=cure)

    def _overview(self, visit: Visit) -> Response:
        served = self._service.campaign.name
        glances = []
        for record in reversed(self._service.campaign.ledger.campaigns()):
            name = record.name
            service = self._serving(name)
            try:
                glances.append(glance(self._stories.of(self._open(name)), service))
            except DepsueError as problem:
                state = None if service is None else service.state
                glances.append(Glance(name, path_of(name), state=state, problem=str(problem)))
        glances.sort(key=lambda campaign: campaign.name != served)
        return self._shown("overview.html", Overview(served, tuple(glances)), visit)

    def _campaign(self, visit: Visit) -> Response:
        name = visit.name
        page = campaign_page(self._stories.of(self._open(name)), self._serving(name))
        refresh = visit.request.query_params.get("live", "")
        return self._shown(
            "campaign.html",
            page,
            visit,
            live_figures=partial(_maybe, live_figures, page.live),
            round_figures=partial(round_figures, page.story),
            refresh=refresh if page.live is not None else "off",
        )

    def _certificate(self, visit: Visit) -> Response:
        name, parameters = visit.name, visit.request.path_params
        k, attempt = parameters["k"], parameters["attempt"]
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

    def _plan(self, visit: Visit) -> Response:
        name = visit.name
        campaign = self._open(name)
        show = partial(plan_page, campaign, self.plans.of(name), running=self.plans.running)
        if visit.posted:
            form = filled(campaign.settings.explore, visit.form)
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

    def _stop(self, visit: Visit) -> Response:
        return self._act("stop", visit)

    def _resume(self, visit: Visit) -> Response:
        return self._act("resume", visit)

    def _share(self, visit: Visit) -> Response:
        return self._act("share", visit)

    def _act(self, action: Action, visit: Visit) -> Response:
        name = visit.name
        campaign, service = self._open(name), self._serving(name)
        form = {"by": visit.visitor.name, "stops": "", **visit.form} if visit.posted else {}
        show = partial(action_page, action, campaign, service)
        if not visit.posted:
            return self._shown("action.html", show({"by": visit.visitor.name}), visit)
        try:
            reason, by = require_said(form)
            share = share_said(form) if action == "share" else 0.0
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
        elif action == "share":
            service.change_share(share, reason, by)
        else:
            service.resume_policy(page.stops, reason, by)
        visit.visitor.name = by
        return self._to(f"{path_of(name)}#monitor")

    async def _login(self, request: Request) -> Response:
        """Take a token, give a session."""
        if request.method != "POST":
            then = within(request.query_params.get("next", "/"))
            if self._sessions.visitor(request) is not None:
                return self._to(then)
            return rendering.page("login.html", None, problem="", next=then)
        if not from_here(request):
            return self._wrong(request, 403, "a form must be sent from these pages")
        form = await form_of(request)
        then = within(form.get("next", "/"))
        id = self._sessions.begin(form.get("token", "").strip())
        if id is None:
            problem = "That is not the token of an admin."
            return rendering.page("login.html", None, status=401, problem=problem, next=then)
        entered = self._to(then)
        set_session(entered, id, secure=self._is_secure(request))
        return entered

    async def _logout(self, request: Request) -> Response:
        """End the session; a link alone does not."""
        visitor = self._sessions.visitor(request)
        if request.method == "POST" and not from_here(request):
            return self._wrong(request, 403, "a form must be sent from these pages")
        if visitor is None:
            return self._refused(request, as_json=False)
        if request.method != "POST":
            return self._to("/")
        if not carries(await form_of(request), visitor):
            return self._not_of_this_session(request)
        self._sessions.end(request)
        left = self._to("/login")
        set_session(left, "", secure=self._is_secure(request))
        return left

    def _not_of_this_session(self, request: Request) -> Response:
        return self._wrong(
            request,
            403,
            "a form must be of this session",
            cure="load the page again, and send it from there",
        )

    def _refused(self, request: Request, as_json: bool) -> Response:
        if as_json or not wants_page(request):
            return _refusal(
                401,
                "this needs a token of the role admin",
                found="none, or another",
                cure="authorization: Bearer TOKEN, or log in at /login",
                headers=((b"www-authenticate", b"Bearer"),),
            )
        return self._to(f"/login?next={quote(request.scope['path'], safe='')}")

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
    ) -> Response:
        """The page, or its JSON; what only the page needs is computed for it alone."""
        if visit.as_json:
            return Response(encode(page), status, media_type="application/json")
        more = {name: value() if callable(value) else value for name, value in more.items()}
        return rendering.page(template, visit.visitor, status=status, page=page, **more)

    def _wrong(
        self, request: Request, status: int, rule: str, *, found: str = "", cure: str = ""
    ) -> Response:
        """A page that says why not."""
        visitor = self._sessions.visitor(request)
        return rendering.page(
            "problem.html", visitor, status=status, rule=rule, found=found, cure=cure
        )

    def _to(self, path: str) -> Response:
        return RedirectResponse(quote(path, safe="/?&=%#"), 303)

    def _is_secure(self, request: Request) -> bool:
        return self._secure or request.headers.get("x-forwarded-proto") == "https"

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


def _refusal(
    status: int,
    rule: str,
    *,
    found: str = "",
    cure: str = "",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Response:
    """Why not, for a program; as the routes of the service say it."""
    answer = refused(status, rule, found=found, cure=cure)
    named = {name.decode(): value.decode() for name, value in headers}
    return Response(answer.body, status, named, "application/json")


def _maybe(make: Callable[[Any], Any], of: Any) -> Any:
    return None if of is None else make(of)
