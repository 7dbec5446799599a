"""Who may do what, and that tokens are kept and shown nowhere."""

from __future__ import annotations

import hashlib
import hmac
import json
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.serving.asgi import Caller
from tests.serving.conftest import Log, Serve, listening, seeded_chance
from typer.testing import CliRunner

from depsue.campaigns import Campaign
from depsue.cli.main import app as command
from depsue.client import Client, Refused
from depsue.errors import ConfigError, FileError
from depsue.serving import app as app_module
from depsue.serving.access import ROLES, Access, TokenLimits, TooMuch, is_loopback
from depsue.serving.app import App
from depsue.serving.http import is_foreign
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings

NEEDED = {
    ("POST", "/v1/decide"): "decide",
    ("POST", "/v1/decide/batch"): "decide",
    ("GET", "/v1/context"): "decide",
    ("POST", "/v1/reward"): "reward",
    ("POST", "/v1/reward/batch"): "reward",
    ("GET", "/v1/status"): "admin",
    ("POST", "/v1/policy/stop"): "admin",
    ("POST", "/v1/policy/resume"): "admin",
    ("POST", "/v1/policy/share"): "admin",
    ("GET", "/metrics"): "admin",
}
OPEN = ("/healthz", "/readyz", "/openapi.json")


@pytest.fixture
def access(home: Path) -> Access:
    return Access(home)


@pytest.fixture
def tokens(access: Access) -> dict[str, str]:
    return {role: access.add(role, f"of {role}") for role in ROLES}


@pytest.fixture
def closed(service: Service, access: Access, tokens: dict[str, str]) -> Caller:
    """Calls a service that asks for tokens."""
    return Caller(App(service, access))


def test_a_token_opens_its_own_doors_and_no_others(closed: Caller, tokens: dict[str, str]) -> None:
    for (method, path), needed in NEEDED.items():
        for role in ROLES:
            status = closed.call(method, path, token=tokens[role]).status
            assert (status != 401) == (role in (needed, "admin")), (path, role, status)


def test_every_route_that_needs_a_token_is_among_these(closed: Caller) -> None:
    found = {key: one.role for key, one in closed.app.routes.items() if one.role is not None}
    assert found == NEEDED
    for path in OPEN:
        assert closed.get(path).status == 200


@pytest.mark.parametrize(
    "given",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer depsue_wrong",
        b"Basic {}",
        b"{}",
        b"Bearer {} {}",
        b"Bearer {}x",
        b"Bearer \xff\xfe",
        b"Bearer " + b"a" * 5000,
    ],
)
def test_anything_else_is_refused(
    closed: Caller, tokens: dict[str, str], given: bytes | None
) -> None:
    headers = []
    if given is not None:
        headers = [(b"authorization", given.replace(b"{}", tokens["admin"].encode()))]
    reply = closed.call("GET", "/v1/status", headers=headers)
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert "role admin" in reply.json["error"] and "depsue token add" in reply.json["cure"]
    scheme = [(b"authorization", f"bearer {tokens['admin']}".encode())]
    assert closed.call("GET", "/v1/status", headers=scheme).status == 200


def test_the_body_of_who_may_not_is_not_even_read(closed: Caller, tokens: dict[str, str]) -> None:
    refused = closed.call("POST", "/v1/decide", parts=[b"{", b"}"], token=tokens["reward"])
    assert (refused.status, refused.read) == (401, 0)
    read = closed.call("POST", "/v1/decide", parts=[b"{", b"}"], token=tokens["decide"])
    assert (read.status, read.read) == (422, 2)


def test_only_hashes_are_kept_and_only_the_owner_may_read_them(
    home: Path, access: Access, tokens: dict[str, str]
) -> None:
    path = home / "tokens.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    for token in tokens.values():
        assert len(token) > 40
        assert token not in text and token.removeprefix("depsue_") not in text
    assert len(set(tokens.values())) == 3
    assert all(len(one["sha256"]) == 64 for one in json.loads(text)["tokens"])
    access.remove("of reward")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_token_is_compared_in_constant_time(
    access: Access, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[str, str]] = []
    real = hmac.compare_digest

    def counted(a: str, b: str) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr("depsue.serving.access.hmac.compare_digest", counted)
    assert access.allows(tokens["decide"], "decide")  # the first of three: the rest is compared too
    assert len(compared) == 3
    assert not access.allows("depsue_wrong", "decide")
    assert len(compared) == 6
    assert all(len(a) == len(b) == 64 for a, b in compared)
    assert not access.allows("a" * 201, "decide") and not access.allows(None, "decide")


def test_names_and_roles_are_checked(access: Access, home: Path) -> None:
    access.add("decide", "shop")
    for role, name, words in (
        ("root", "x", "a role is one of decide, reward, admin"),
        ("decide", "", "1 to 100 printable"),
        ("decide", "a\nb", "1 to 100 printable"),
        ("decide", "a" * 101, "1 to 100 printable"),
        ("reward", "shop", "names of their own"),
    ):
        with pytest.raises(ConfigError, match=words):
            access.add(role, name)
    with pytest.raises(ConfigError, match="there must be such a token"):
        access.remove("nobody")
    assert [(token.name, token.role) for token in Access(home).tokens] == [("shop", "decide")]


def test_a_removed_token_is_noticed_and_a_damaged_file_changes_nothing(
    home: Path, access: Access, tokens: dict[str, str]
) -> None:
    Access(home).remove("of decide")  # as another process does
    assert access.allows(tokens["decide"], "decide")
    access.refresh()
    assert not access.allows(tokens["decide"], "decide")
    no_hash = '{"tokens": [{"name": "x", "role": "admin", "sha256": "ü", "made": ""}]}'
    fewer = ('{"tokens": [{"name": "x"}]}', '{"tokens": [{"role": "root"}]}')
    for damaged in ("{", "[]", *fewer, no_hash):
        (home / "tokens.json").write_text(damaged)
        access.refresh()
        assert access.allows(tokens["reward"], "reward")
        with pytest.raises(FileError, match="the file of tokens must be readable"):
            Access(home)
    (home / "tokens.json").unlink()
    access.refresh()
    assert not access.allows(tokens["admin"], "admin")


def test_a_running_service_notices_a_removal(
    campaign: Campaign,
    home: Path,
    access: Access,
    tokens: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app_module, "TOKENS_READ", 0.01)
    read, refresh = threading.Event(), access.refresh

    def noticed() -> None:
        refresh()
        read.set()

    monkeypatch.setattr(access, "refresh", noticed)
    service = Service(campaign, ServingSettings(wait=60.0), chance=seeded_chance())
    with listening(App(service, access)) as port:
        with Client(f"http://127.0.0.1:{port}", admin_token=tokens["admin"]) as client:
            assert client.status()["round"] == 1
            Access(home).remove("of admin")
            for _ in range(2):  # the first may have begun before
                read.clear()
                assert read.wait(60)
            with pytest.raises(Refused, match="role admin"):
                client.status()


def test_tokens_are_in_no_log_and_in_no_answer(
    serve: Serve,
    access: Access,
    tokens: dict[str, str],
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = serve(wait=60.0)
    caller = Caller(App(service, access))
    wrong = "depsue_" + "w" * 43
    replies = []
    for token in (*tokens.values(), wrong):
        for (method, path), _ in NEEDED.items():
            replies.append(caller.call(method, path, token=token))

    def broken(*_: Any) -> Any:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(service.worker, "decide", broken)
    replies.append(caller.post("/v1/decide", {"context": {}}, token=tokens["decide"]))
    assert replies[-1].status == 500 and "broken on purpose" in log.text
    everything = log.text + "".join(f"{one.headers} {one.text}" for one in replies)
    for token in (*tokens.values(), wrong):
        assert (
            token not in everything and hashlib.sha256(token.encode()).hexdigest() not in everything
        )
        assert token not in repr(access) + repr(vars(access))


@pytest.mark.parametrize(
    ("host", "only_this_machine"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("192.168.1.7", False),
        ("shop.example", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_tokens_are_left_out_on_loopback_only(
    host: str, only_this_machine: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_loopback(host) == only_this_machine
    ran: list[Access] = []
    monkeypatch.setattr(
        "depsue.serving.running.run", lambda campaign, settings, access, **_: ran.append(access)
    )
    words = ["serve", "spring", "--no-auth", "--host", host, "--home", str(home)]
    found = CliRunner().invoke(command, words)
    if only_this_machine:
        assert found.exit_code == 0, found.exception
        assert ran[0].open_to_all
    else:
        assert isinstance(found.exception, ConfigError) and not ran
        assert "on loopback only" in found.exception.rule
        assert "depsue token add" in found.exception.cure


def test_without_tokens_nothing_is_served(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Access] = []
    monkeypatch.setattr(
        "depsue.serving.running.run", lambda campaign, settings, access, **_: ran.append(access)
    )
    found = CliRunner().invoke(command, ["serve", "spring", "--home", str(home)])
    assert isinstance(found.exception, ConfigError) and not ran
    assert "needs a token" in found.exception.rule
    added = CliRunner().invoke(command, ["token", "add", "decide", "shop", "--home", str(home)])
    assert added.exit_code == 0
    token = added.stdout.splitlines()[0]
    assert Access(home).allows(token, "decide") and not Access(home).allows(token, "reward")
    found = CliRunner().invoke(command, ["serve", "spring", "--home", str(home)])
    assert found.exit_code == 0 and not ran[0].open_to_all
    listed = CliRunner().invoke(command, ["token", "list", "--home", str(home), "--json"])
    assert [one["name"] for one in json.loads(listed.stdout)] == ["shop"]
    assert token not in listed.stdout
    CliRunner().invoke(command, ["token", "remove", "shop", "--home", str(home)])
    assert (
        "no tokens yet"
        in CliRunner().invoke(command, ["token", "list", "--home", str(home)]).stdout
    )


@pytest.mark.parametrize(
    ("method", "headers", "foreign"),
    [
        ("POST", {}, False),
        ("POST", {"host": "anything"}, False),  # no browser: it would send an Origin
        ("GET", {"host": "127.0.0.1:8470"}, False),
        ("GET", {"host": "localhost"}, False),
        ("GET", {"host": "[::1]:8470"}, False),
        ("GET", {"host": "[::1]"}, False),
        ("POST", {"host": "localhost:8470", "origin": "http://localhost:8470"}, False),
        ("POST", {"host": "localhost:8470", "origin": "https://localhost:8470"}, False),
        ("POST", {"host": "localhost:8470", "origin": "http://localhost:1234"}, True),
        ("POST", {"host": "localhost:8470", "origin": "https://evil.example"}, True),
        ("POST", {"host": "localhost:8470", "origin": "null"}, True),
        ("POST", {"host": "evil.example:8470", "origin": "http://evil.example:8470"}, True),
        ("GET", {"host": "evil.example:8470"}, True),  # a name that leads here today
        ("GET", {"host": "localhost.evil.example"}, True),
    ],
)
def test_without_tokens_pages_of_other_sites_are_refused(
    call: Caller, closed: Caller, method: str, headers: dict[str, str], foreign: bool
) -> None:
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert is_foreign(method, given) == foreign
    path = "/v1/policy/stop" if method == "POST" else "/v1/status"
    body = [b'{"reason": "a page says so", "by": "a page"}']
    assert (call.call(method, path, parts=body, headers=given).status == 403) == foreign
    assert bool(closed.app.service.stopped) == (method == "POST" and not foreign)
    # with tokens there is nothing that a browser would send by itself
    assert closed.call(method, path, parts=body, headers=given).status == 401


def test_tokens_that_are_added_at_once_are_all_kept(home: Path) -> None:
    barrier, each = threading.Barrier(8), [Access(home) for _ in range(8)]

    def add(k: int) -> None:
        barrier.wait()
        each[k].add("reward", f"shop {k}")

    threads = [threading.Thread(target=add, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {token.name for token in Access(home).tokens} == {f"shop {k}" for k in range(8)}
    each[0].remove("shop 7")
    assert len(Access(home).tokens) == 7 and not (home / "tokens.json.lock").exists()


def test_a_token_sends_so_much_a_second() -> None:
    now = [0.0]
    limits = TokenLimits(100.0, 10, batch=50, clock=lambda: now[0])
    limits.spend("shop", 100)
    limits.spend("other", 100)  # each token has its own
    with pytest.raises(TooMuch, match="100 decisions and rewards a second") as refusal:
        limits.spend("shop", 50)
    assert refusal.value.seconds == 1
    now[0] = 0.5
    limits.spend("shop", 50)
    with pytest.raises(TooMuch):
        limits.spend("shop", 1)


def test_ids_that_become_known_or_old_make_room_for_others() -> None:
    now, known = [0.0], set[str]()
    limits = TokenLimits(100.0, 3, batch=50, clock=lambda: now[0])

    def admit(*ids: str) -> None:
        limits.admit("shop", ids, lambda asked: known & set(asked))

    admit("a", "b")
    admit("a", "b", "c")  # the same again counts once
    with pytest.raises(TooMuch, match="3 rewards an hour") as refusal:
        admit("d")
    assert refusal.value.seconds == 3600
    known.add("b")
    admit("d")
    now[0] = 3600.0
    admit("e", "f", "g")


def test_rewards_for_unknown_decisions_are_limited_by_token(serve: Serve, home: Path) -> None:
    service, access = serve(wait=60.0, unknown=5), Access(home)
    app = App(service, access)
    shop, decide = (Caller(app, access.add(role, role)) for role in ("reward", "decide"))

    def reward(*ids: str) -> int:
        rewards = [{"decision": id, "reward": 1.0} for id in ids]
        return shop.post("/v1/reward/batch", {"rewards": rewards}).status

    unknown = [f"{k:032x}" for k in range(100)]
    assert reward(*unknown[:5]) == 200  # a reward may come early
    reply = shop.post("/v1/reward", {"decision": unknown[6], "reward": 1.0})
    assert reply.status == 429 and 1 <= int(reply.headers["retry-after"]) <= 3600
    assert "5 rewards an hour" in reply.json["error"] and reply.json["cure"]
    assert reward(*unknown) == 429
    assert service.store.counts()["rewards"] == 5
    context = service.served.reader.example
    made = [decide.post("/v1/decide", {"context": context}).json["decision"] for _ in range(3)]
    assert reward(*made) == 200  # of known decisions as many as one likes
    fresh = Caller(App(service, access), shop.token)  # as after a restart: the store knows them
    rewards = [{"decision": id, "reward": 0.5, "event": "late"} for id in made]
    assert fresh.post("/v1/reward/batch", {"rewards": rewards}).status == 200


def test_a_token_that_sends_too_much_hears_when_to_try_again(serve: Serve, home: Path) -> None:
    service = serve(wait=60.0, rate=1.0)
    call = Caller(App(service, Access(home, open_to_all=True)))
    batch = {"decisions": [{"context": service.served.reader.example}] * 1000}
    assert call.post("/v1/decide/batch", batch).status == 200
    reply = call.post("/v1/decide/batch", batch)
    assert reply.status == 429 and int(reply.headers["retry-after"]) > 900
    assert "1 decisions and rewards a second" in reply.json["error"]


def test_tokens_that_eight_processes_add_at_once_are_all_there(tmp_path: Path) -> None:
    code = (
        "import sys; from depsue.serving.access import Access\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for k in range(5): Access(sys.argv[1]).add('decide', f'{sys.argv[2]}-{k}')"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(8)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes:
        with process:
            assert process.wait() == 0
    names = {token.name for token in Access(tmp_path).tokens}
    assert names == {f"{number}-{k}" for number in range(8) for k in range(5)}
