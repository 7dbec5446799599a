"""Campaigns whose every command is killed (kill -9) at random moments and tried again.

Run as a program of its own, with one thread: commands run in forked children, so that a kill costs
no start of Python. After every kill the ledger and the files are looked at: nothing acknowledged
may be lost, no round counted twice, no certificate be without its policy file, and no file half
written.

::

    python tests/campaigns/killed.py FOLDER --kills 200 [--ledger postgresql://...]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from depsue import artifacts  # all is loaded once, before the forks; no thread is started by it
from depsue.campaigns import Campaign, open_home
from depsue.cli.main import app
from depsue.data.writing import write_items, write_logs
from depsue.policies import BasePolicy, save
from depsue.world import SyntheticSettings, World, synthetic_world

ROWS, USERS = 1500, 40
Step = tuple[str, list[str]]
OK = (0, 4)
"""Exit codes of a command that did its work; 4 is a certificate that failed."""


class Soak:
    """One campaign after the other, until enough commands were killed.

    Args:
        folder: for everything that is made.
        ledger: an address, or None for a file of each campaign's own.
        seed: of the moments.
    """

    def __init__(self, folder: Path, ledger: str | None, seed: int) -> None:
        self.folder, self.ledger = folder, ledger
        self.draw = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self.campaigns = 0

    def run(self, kills: int) -> None:
        """Go on until so many commands were killed."""
        while self.kills.total() < kills or self.campaigns < 2:
            self._campaign(f"c{self.campaigns}-{os.getpid()}", hurried=self.campaigns > 0)
            self.campaigns += 1

    def _campaign(self, name: str, *, hurried: bool) -> None:
        home = self.folder / name
        self._in_child(self._write_logs)
        more = ["--home", str(home), "--by", "ana"]
        more += [] if self.ledger is None else ["--ledger", self.ledger]
        team = self.folder / "team"
        created = [str(team / "may.parquet"), str(team / "items.parquet"), "--rounds", "2"]
        steps: list[Step] = [
            ("create", [name, *created, "--pi0", str(team / "pi0"), "--seed", str(self.campaigns)])
        ]
        for k in (1, 2):
            steps += [("train", [name, "--quiet"]), ("certify", [name, "--quiet"])]
            steps += [("deploy", [name, "--yes"])]
            steps += [("serve", [name, str(k)])]
            steps += [("observe", [name, str(home / f"{k}.parquet"), "--yes"])]
        steps += [("rollback", [name, "--yes"]), ("report", [name])]
        for what, given in steps:
            arguments = [*given, *more]
            if what in ("report", "export"):
                arguments = [one for one in arguments if one not in ("--by", "ana")]
            self._step(what, arguments, home, name, hurried)
        self._look(home, name, done=True)

    def _step(self, what: str, arguments: list[str], home: Path, name: str, hurried: bool) -> None:
        """Run one command until it is let finish; a random number of tries are killed."""
        if what == "serve":
            self._in_child(lambda: self._serve(home, name, int(arguments[1])))
            return
        tries = self.draw.choice((0, 1, 1, 2, 3)) if hurried else 0
        for _ in range(tries):
            after = self.draw.uniform(0, 1.1) * self.seconds[what]
            if self._in_child(lambda: _command(what, arguments), kill_after=after) is None:
                self.kills[what] += 1
            self._look(home, name)
        began = time.monotonic()
        code = self._in_child(lambda: _command(what, arguments))
        if code not in OK:
            raise AssertionError(f"{what} ended with {code} after {dict(self.kills)} kills")
        self.seconds.setdefault(what, time.monotonic() - began)
        self.finished[what] += 1
        self._look(home, name)

    def _in_child(self, work: Callable[[], int], kill_after: float | None = None) -> int | None:
        """The exit code of a forked child; None if it was killed."""
        child = os.fork()
        if child == 0:
            try:
                code = work()
            except BaseException as problem:
                print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
                code = 70
            os._exit(code)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        return None if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)

    def _look(self, home: Path, name: str, *, done: bool = False) -> None:
        """Hold the ledger against the files, and both against what was acknowledged."""
        ledger = open_home(home, self.ledger, create=True)
        try:
            if name not in [one.name for one in ledger.campaigns()]:
                return
            seen = [one.round for one in ledger.observations(name)]
            assert seen == list(range(len(seen))), f"rounds observed: {seen}"
            tried = [one.round for one in ledger.attempts(name)]
            assert len(tried) == len(set(tried)), f"a round was certified twice: {tried}"
            for one in ledger.attempts(name):
                if one.certified is not None and one.passed:
                    saved = home / name / f"round-{one.round}" / f"policy-{one.certified[:16]}"
                    artifacts.read(saved, family="policy")
            for candidate in ledger.candidates(name):
                for part in ("old", "new"):
                    artifacts.read(home / name / candidate.folder / part, family="policy")
            for text in (home / name).rglob("*.json"):
                json.loads(text.read_text())
            if done:
                assert seen == [0, 1, 2] and tried == [1, 2], f"{seen}, {tried}"
                assert len(ledger.deployments(name)) == 3
        finally:
            ledger.close()

    def _write_logs(self) -> int:
        world = self._world()
        team = self.folder / "team"
        write_items(world.catalogue, team / "items.parquet")
        write_logs(world.deploy(world.logging_policy, ROWS, round=0), team / "may.parquet")
        pi0 = world.logging_policy
        if isinstance(pi0, BasePolicy):
            save(pi0, team / "pi0", catalogue=world.catalogue)
        return 0

    def _world(self) -> World:
        """Users who do otherwise in every campaign: no rows are certified on twice."""
        settings = SyntheticSettings(users=USERS, supported=8, novel=3, d=2)
        return synthetic_world(settings, seed=1).reseeded(self.campaigns)

    def _serve(self, home: Path, name: str, k: int) -> int:
        campaign = Campaign(open_home(home, self.ledger), home, name, by="ana")
        deployed = campaign.ledger.deployments(name)[-1]
        policy = campaign.policy(deployed.round, deployed.policy_hash)
        write_logs(self._world().deploy(policy, ROWS, round=k), home / f"{k}.parquet")
        return 0


def _command(what: str, arguments: list[str]) -> int:
    """A command as the command line runs it, without its words."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    try:
        app(["campaign", what, *arguments], standalone_mode=True)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def main() -> None:
    """Run a soak and print what was done as JSON."""
    given = argparse.ArgumentParser()
    given.add_argument("folder", type=Path)
    given.add_argument("--kills", type=int, default=200)
    given.add_argument("--ledger")
    given.add_argument("--seed", type=int, default=0)
    options = given.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    soak = Soak(options.folder, options.ledger, options.seed)
    soak.run(options.kills)
    print(json.dumps({"campaigns": soak.campaigns, "kills": dict(soak.kills)}))


if __name__ == "__main__":
    main()
