"""What the pages and files for operators say: commands, paths, metrics, log lines, backups."""

from __future__ import annotations

import http.client
import io
import json
import logging
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from tests.database.conftest import PASSWORD, Server
from tests.serving.asgi import Caller
from tests.serving.conftest import Clock, Log, Serve, listening, seeded_chance
from typer.main import get_command

from depsue.campaigns import Campaign, open_home
from depsue.cli.main import app as command
from depsue.ledger import open_ledger
from depsue.serving.access import Access
from depsue.serving.app import App, Metrics
from depsue.serving.running import GRACE, log_to, warn_of_open_files
from depsue.serving.schema import MonitorEvent
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings
from depsue.serving.store import Store

ROOT = Path(__file__).parents[2]
SERVE, RUNBOOK = (ROOT / "docs" / f"{name}.md" for name in ("serve", "runbook"))
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
CONTEXT = {"x0": 0.1, "x1": -0.2, "x2": 0.3, "x3": 0.0}


def parsed(words: list[str]) -> dict[str, Any]:
    """The options of a `depsue` command line; fails on what the command does not know."""
    found: Any = get_command(command)
    while hasattr(found, "commands"):
        found, words = found.commands[words[0]], words[1:]
    options: dict[str, Any] = found.make_context("depsue", list(words)).params
    return options


def blocks(page: Path, language: str) -> list[str]:
    """The code of a page in one language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [code for of, code in found if of == language]


def test_every_command_line_on_the_pages_is_one() -> None:
    seen = 0
    for page in (SERVE, RUNBOOK, ROOT / "docs" / "token.md"):
        text = page.read_text()
        lines = [line for block in blocks(page, "") for line in block.splitlines()]
        lines += re.findall(r"`(depsue [^`]*)`", text)
        for line in lines:
            found = re.search(r"(?:^depsue|run --rm depsue) (.*)", line.partition("#")[0])
            if found is not None and re.match(r"(serve|token|campaign \w+) [a-z]", found[1]):
                parsed(shlex.split(found[1]))
                seen += 1
    assert seen > 15


CURLS = [
    (page.name, line)
    for page in (SERVE, RUNBOOK)
    for block in blocks(page, "bash")
    for line in block.splitlines()
    if line.startswith("curl")
]


def asked(line: str, admin: str) -> tuple[str, dict[str, str], bytes | None]:
    """(path, headers, body) of a curl command."""
    words = iter(shlex.split(line)[1:])
    path, headers, body = "", {}, None
    for word in words:
        if word == "-d":
            body = next(words).encode()
        elif word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value.replace("$ADMIN", admin)
        elif word != "-s":
            path = word.removeprefix("http://127.0.0.1:8470")
            assert path.startswith("/"), word
    return path, headers, body


@pytest.fixture(scope="module")
def guarded_port(
    made_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, str]]:
    """(port, admin token) of a service that asks for tokens; all its tests use it in turn."""
    home = Path(shutil.copytree(made_home, tmp_path_factory.mktemp("guarded") / "campaigns"))
    admin = Access(home).add("admin", "ana")
    campaign = Campaign(open_home(home), home, "spring", by="ana")
    service = Service(campaign, ServingSettings(wait=60.0), chance=seeded_chance())
    with listening(App(service, Access(home))) as port:
        yield port, admin


def test_every_curl_on_the_pages_is_answered(guarded_port: tuple[int, str]) -> None:
    """The campaign on the page has three columns, this one four: one is added to its contexts."""
    port, admin = guarded_port
    assert len(CURLS) >= 11
    for page, line in CURLS:
        path, headers, body = asked(line, admin)
        if page == SERVE.name:  # where no token is asked for
            headers["Authorization"] = f"Bearer {admin}"
        if body is not None and b'"context"' in body:
            body = body.replace(b'"x2"', b'"x3": 0, "x2"')
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        resumed_twice = "policy/resume" in path and answer.status == 409
        assert answer.status == 200 or resumed_twice, (line, text)
        if path == "/v1/decide":
            example = json.loads(blocks(SERVE, "json")[0])
            assert set(json.loads(text)) == set(example)


def names_of(metrics: str) -> set[str]:
    """The metrics of a text."""
    return set(re.findall(r"^# TYPE (\w+) \w+$", metrics, flags=re.MULTILINE))


def test_the_runbook_has_every_metric_and_no_other(serve: Serve, home: Path, clock: Clock) -> None:
    service = serve(wait=0.0)
    call = Caller(App(service, Access(home, open_to_all=True)))
    for _ in range(30):
        call.post("/v1/decide", {"context": CONTEXT})
    call.post("/v1/reward", {"decision": "0" * 32, "reward": 1.0})
    clock.advance(1.0)
    service.turn()
    found = names_of(call.get("/metrics").text)
    assert "depsue_value" in found and "depsue_rewards_total" in found
    text = RUNBOOK.read_text()
    table = text.partition("## Metrics")[2].partition("```")[0]
    assert set(re.findall(r"`(depsue_\w+)`", table)) == found
    known = found | {"depsue_request_seconds_bucket"}
    assert set(re.findall(r"\bdepsue_\w+", text)) <= known


def test_the_alerts_of_the_runbook_are_rules_and_told_apart() -> None:
    (rules,) = (yaml.safe_load(block) for block in blocks(RUNBOOK, "yaml"))
    (group,) = rules["groups"]
    names = [one["alert"] for one in group["rules"]]
    assert len(set(names)) == len(names) > 5
    assert all(set(one) <= {"alert", "expr", "for"} for one in group["rules"])


def test_the_runbook_has_every_event_of_the_log_and_no_other() -> None:
    logged: set[str] = set()
    for folder in ("serving", "pages"):
        for path in (ROOT / "src" / "depsue" / folder).rglob("*.py"):
            logged |= set(re.findall(r"\blog\.\w+\(\s*\"([^\"]+)\"", path.read_text()))
    table = RUNBOOK.read_text().partition("## Log lines")[2].partition("\n## ")[0]
    said = {
        word
        for line in table.splitlines()
        if line.startswith("| `")
        for word in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    assert said == logged


def test_metrics_are_in_the_format_of_prometheus() -> None:
    metrics = Metrics()
    metrics.count("decisions", 12_345_678, decided_by="policy")
    metrics.count("decisions", decided_by='a "quoted" \\ name\n')
    for seconds in (0.0004, 0.001, 0.0011, 0.3, 60.0):
        metrics.took("/v1/decide", seconds)
    text = metrics.text({"value": 0.123456789, "round": 3.0, "large": 1e15})
    line = re.compile(r'[a-z_]+(\{([a-z_]+="([^"\\\n]|\\.)*",?)*\})? (\+Inf|[-0-9.e+]+)')
    for one in text.splitlines():
        assert one.startswith("# TYPE ") or line.fullmatch(one), one
    assert text.endswith("\n")
    assert 'depsue_decisions_total{decided_by="policy"} 12345678\n' in text  # all its digits
    assert 'depsue_decisions_total{decided_by="a \\"quoted\\" \\\\ name\\n"} 1\n' in text
    assert "depsue_value 0.123456789\n" in text
    assert "depsue_large 1000000000000000\n" in text
    bucket = 'depsue_request_seconds_bucket{route="/v1/decide",le="%s"} %d\n'
    for le, count in (("0.001", 2), ("0.002", 3), ("0.2", 3), ("0.5", 4), ("5", 4), ("+Inf", 5)):
        assert bucket % (le, count) in text
    assert 'depsue_request_seconds_count{route="/v1/decide"} 5\n' in text


def test_logs_are_lines_of_json(log: Log) -> None:
    logger = logging.getLogger("depsue.serving.stops")
    details = {"reason": 'two\nlines and "quotes"', "path": Path("x"), "number": 3}
    logger.warning("policy stopped", extra=details)
    try:
        raise OSError("no room")
    except OSError:
        logger.exception("writer failed")
    stopped, failed = log.lines
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", stopped.pop("at"))
    assert stopped == {
        "level": "warning",
        "logger": "depsue.serving.stops",
        "event": "policy stopped",
        "reason": 'two\nlines and "quotes"',
        "path": "x",
        "number": 3,
    }
    assert failed["error"] == "OSError: no room" and "test_logs_are_lines" in failed["where"]


def test_a_secret_that_others_may_read_is_told(tmp_path: Path, log: Log) -> None:
    closed, opened = tmp_path / "secret.json", tmp_path / "tokens.json"
    for path, mode in ((closed, 0o600), (opened, 0o644)):
        path.write_text("{}")
        path.chmod(mode)
    warn_of_open_files((closed, opened, tmp_path / "missing.json"))
    (line,) = log.lines
    assert line["event"] == "secret open to others" and line["cure"] == "chmod 600"
    assert line["found"] == f"{opened}, mode 644"


def test_the_log_is_set_up_once_and_a_setup_of_before_wins() -> None:
    before = logging.getLogger().handlers[:]
    log_to(io.StringIO())  # pytest has its own handlers
    assert logging.getLogger().handlers == before


def test_a_copy_made_while_it_serves_can_be_restored(
    serve: Serve, home: Path, campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve(wait=60.0)
    call = Caller(App(service, Access(home, open_to_all=True)))
    made = [call.post("/v1/decide", {"context": CONTEXT}).json["decision"] for _ in range(20)]
    service.stop_policy("a test", "ana")
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks(RUNBOOK, "") for line in block.splitlines()]
    copying = [line for line in lines if line.startswith(("python -c", "tar "))]
    assert len(copying) == 3
    for line in copying:
        words = shlex.split(line)
        words = [sys.executable if word == "python" else word for word in words]
        subprocess.run(words, check=True)
    more = call.post("/v1/decide", {"context": CONTEXT}).json["decision"]  # after the copy
    service.close()
    restored = tmp_path / "restored"
    restored.mkdir()
    subprocess.run(["tar", "-xzf", "campaigns-copy.tar.gz", "-C", restored], check=True)
    folder = restored / "campaigns"
    assert not list(folder.rglob("*.db")) and not list(folder.rglob("*.db-*"))
    (tmp_path / "decisions-copy.db").rename(folder / "spring" / "decisions.db")
    (tmp_path / "ledger-copy.db").rename(folder / "ledger.db")
    again = Service(
        Campaign(open_home(folder), folder, "spring", by="ana"),
        ServingSettings(wait=60.0),
        chance=seeded_chance(2),
    )
    again.start()
    try:
        rows, _ = again.reader.read()
        assert [row.id for row in rows] == made and more not in made
        assert "a test" in again.stopped
        answer = Caller(App(again, Access(folder, open_to_all=True))).post(
            "/v1/decide", {"context": CONTEXT}
        )
        assert answer.json["decided_by"] == "pi0"
    finally:
        again.close()


def instructions(name: str) -> list[str]:
    """The lines of one kind in the Dockerfile."""
    whole = DOCKERFILE.replace("\\\n", " ")
    return [line.partition(" ")[2] for line in whole.splitlines() if line.startswith(f"{name} ")]


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"  # then what is let in
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    copied: set[str] = set()
    for line in instructions("COPY"):
        if not line.startswith("--from"):
            copied |= set(line.split()[:-1])
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {project["project"]["readme"], *project["project"]["license-files"]}
    needed |= {
        Path(one).parts[0]
        for one in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    assert needed <= copied


def test_the_image_is_pinned_and_runs_without_rights() -> None:
    installs = [line for line in instructions("RUN") if "pip install" in line]
    assert len(installs) == 2 and all("-c constraints.txt" in line for line in installs)
    assert installs[0].endswith(" torch") and "TORCH_INDEX=" in "".join(instructions("ARG"))
    assert "[postgres]" in installs[1]
    assert re.search(r"^torch==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert instructions("USER") == ["depsue"]
    assert all(line.startswith("python:3.11-slim") for line in instructions("FROM"))
    assert instructions("ENTRYPOINT") == ['["depsue"]']
    said = DOCKERFILE + (ROOT / "compose.yaml").read_text()
    assert not re.search(r"(?i)(password|token|secret)\s*[=:]\s*['\"]?[a-z0-9]{4}", said)


def health_check() -> list[str]:
    """The command that tells whether the container is well."""
    (line,) = instructions("HEALTHCHECK")
    found: list[str] = json.loads(line.partition("CMD ")[2])
    return found


def test_the_health_check_asks_whether_decisions_can_be_made(
    campaign: Campaign, home: Path
) -> None:
    def healthy(port: int) -> bool:
        words = [word.replace(":8470", f":{port}") for word in health_check()]
        assert f":{port}" in words[-1] and words[0] == "python"
        done = subprocess.run([sys.executable, *words[1:]], capture_output=True)
        return done.returncode == 0

    settings = ServingSettings(wait=60.0, on_gone="stop")
    with listening(App(Service(campaign, settings), Access(home))) as port:
        assert healthy(port)  # tokens are asked for, but not here
    assert not healthy(port)
    without_store = Service(campaign, settings, store="postgresql://nobody@127.0.0.1:1/none")
    with listening(App(without_store, Access(home))) as port:
        assert not healthy(port)


def filled(value: Any, given: dict[str, str]) -> Any:
    """A value of the compose file with its variables filled in; fails where one must be set."""
    if isinstance(value, list):
        return [filled(one, given) for one in value]
    if isinstance(value, dict):
        return {key: filled(one, given) for key, one in value.items()}
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        name, default = match[1], match[2] or ""
        if name in given:
            return given[name]
        if default.startswith(":?"):
            raise KeyError(name)
        return default.removeprefix(":-")

    return re.sub(r"\$\{(\w+)(:[-?][^}]*)?\}", fill, value)


def test_the_compose_file_serves_a_campaign_with_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError, match="POSTGRES_PASSWORD"):
        filled(COMPOSE, {})
    found = filled(COMPOSE, {"POSTGRES_PASSWORD": "w0rd", "DEPSUE_CAMPAIGN": "autumn"})
    depsue, postgres = found["services"]["depsue"], found["services"]["postgres"]
    assert postgres["image"] == "postgres:15"
    assert depsue["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert "pg_isready" in postgres["healthcheck"]["test"][1]
    for name, value in depsue["environment"].items():
        monkeypatch.setenv(name, value)
    options = parsed(depsue["command"])
    address = "postgresql://depsue@postgres:5432/depsue"
    assert (options["name"], options["host"], options["port"]) == ("autumn", "0.0.0.0", 8470)
    assert options["ledger"] == options["store"] == address and options["by"] == "compose"
    assert not options["no_auth"]
    user, database = (postgres["environment"][f"POSTGRES_{name}"] for name in ("USER", "DB"))
    assert address == f"postgresql://{user}@postgres:5432/{database}"
    assert depsue["environment"]["PGPASSWORD"] == postgres["environment"]["POSTGRES_PASSWORD"]
    assert depsue["ports"] == ["127.0.0.1:8470:8470"] and "ports" not in postgres
    kept = [one.partition(":")[0] for service in (depsue, postgres) for one in service["volumes"]]
    assert {one for one in kept if not one.startswith(".")} == set(found["volumes"])
    home = next(line for line in instructions("ENV") if "DEPSUE_HOME=/campaigns" in line)
    assert home and "campaigns:/campaigns" in depsue["volumes"]
    assert int(depsue["stop_grace_period"].removesuffix("s")) > GRACE


def test_the_password_may_come_from_the_environment(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database().replace(f":{PASSWORD}@", "@")
    assert PASSWORD not in url
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    ledger = open_ledger(url)
    ledger.create_campaign("spring", rounds=1, settings={}, by="ana")
    store = Store(url, "spring", writing=True)
    store.open()
    store.add_events([MonitorEvent("w", 7.0, "watch", 1, "policy", "a test", "ana")])
    store.close()
    assert [one.kind for one in store.events()] == ["watch"]


def test_sigterm_finishes_what_was_accepted(home: Path) -> None:
    """As `docker stop` does, on the real command."""
    depsue = Path(sys.executable).with_name("depsue")
    words = [str(depsue), "serve", "spring", "--no-auth", "--port", "0", "--wait", "60"]
    environment = {**os.environ, "DEPSUE_HOME": str(home), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as service:
        assert service.stderr is not None
        url = json.loads(service.stderr.readline())["url"]
        connection = http.client.HTTPConnection(url.removeprefix("http://").rstrip("/"))
        body = json.dumps({"decisions": [{"context": CONTEXT}] * 200})
        connection.connect()
        connection.request("POST", "/v1/decide/batch", body)
        answer = connection.getresponse()
        made = [one["decision"] for one in json.loads(answer.read())["decisions"]]
        service.terminate()
        _, said = service.communicate(timeout=60)
        connection.close()
    assert service.returncode in (0, -15, 143)
    assert json.loads(said.splitlines()[-1])["event"] == "ended"
    rows = sqlite3.connect(f"file:{home}/spring/decisions.db?mode=ro", uri=True)
    found = [id for (id,) in rows.execute("SELECT id FROM serving_decisions ORDER BY seq")]
    rows.close()
    assert found == made
