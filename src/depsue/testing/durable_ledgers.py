"""The conformance suite of ledgers that outlive their process: a fixture `address` names one.

It is tried with processes of its own, some of which are killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from depsue.errors import ConfigError
from depsue.ledger import open_ledger
from depsue.testing.ledgers import observe, refused, sha, start

KILLS = 3 * int(os.environ.get("DEPSUE_SOAK", "1"))


class DurableConformance:
    """What a ledger promises that outlives its process, tried with real processes."""

    def test_what_was_written_is_there_when_it_is_opened_again(self, address: str) -> None:
        start(open_ledger(address))
        before = open_ledger(address).journal()
        ledger = open_ledger(address, create=False)
        assert ledger.journal() == before and len(before) == 4

    def test_two_certify_one_round_with_two_policies(self, address: str) -> None:
        start(open_ledger(address), retries=True)
        said = _together(address, "begin p1", "begin p2")
        assert sorted(one.split()[0] for one in said) == ["1", "refused"], said
        assert "one attempt at a time" in max(said), said
        assert open_ledger(address).count_reads(sha("d0")) == 1

    def test_two_certify_one_round_with_one_policy(self, address: str) -> None:
        start(open_ledger(address))
        said = _together(address, "begin p1", "begin p1")
        assert said == ["1", "1"]
        assert open_ledger(address).count_reads(sha("d0")) == 1

    def test_two_observe_one_file(self, address: str) -> None:
        open_ledger(address).create_campaign("spring", rounds=1, settings={}, by="ana")
        assert _together(address, "observe d0", "observe d0") == ["observed", "observed"]
        assert len(open_ledger(address).observations("spring")) == 1

    def test_two_make_the_ledger_at_once(self, address: str) -> None:
        assert _together(address, "create", "create") == ["created", "created"]
        assert len(open_ledger(address, create=False).campaigns()) == 1

    def test_a_running_process_holds_its_round_and_a_killed_one_lets_go(self, address: str) -> None:
        ledger = open_ledger(address)
        start(ledger)
        with _process(address, "hold p1") as process:
            assert _line(process) == "held"
            with refused("one process at a time|child began at"):
                with ledger.reads("spring", 1, sha("p1"), by="bo"):
                    pass
            process.kill()
            process.wait()
        for tries_left in reversed(range(200)):  # a server notices after a moment
            try:
                with ledger.reads("spring", 1, sha("p1"), by="bo") as reads:
                    assert reads.begin(sha("d0")) == 1
                break
            except ConfigError:
                assert tries_left, "the round is still held by a process that was killed"
                time.sleep(0.05)
        assert ledger.count_reads(sha("d0")) == 1

    def test_kill_9_loses_nothing_that_was_acknowledged(self, address: str) -> None:
        ledger, chance = open_ledger(address), random.Random(7)
        for kill in range(KILLS):
            acknowledged = []
            with _process(address, f"write {kill}") as process:
                for _ in range(chance.randrange(1, 12)):
                    acknowledged.append(_line(process))
                process.kill()
                acknowledged += (process.stdout or iter([])).read().split()  # type: ignore[union-attr]
                process.wait()
            names = [one.name for one in ledger.campaigns()]
            assert set(acknowledged) <= set(names)
            assert [line.campaign for line in ledger.journal()] == names
        ledger.create_campaign("after", rounds=1, settings={}, by="ana")


def child(address: str, task: str, *words: str) -> None:
    """What a process of the suite does; `sys.stdin` holds it back until all are ready."""
    if task == "create":
        print("ready", flush=True)
        sys.stdin.readline()
        open_ledger(address).create_campaign("spring", rounds=1, settings={}, by="child")
        print("created", flush=True)
        return
    ledger = open_ledger(address)
    if task == "write":
        for number in range(10_000):
            name = f"{words[0]}-{number}"
            ledger.create_campaign(name, rounds=1, settings={}, by="child")
            print(name, flush=True)
    elif task == "hold":
        with ledger.reads("spring", 1, sha(words[0]), by="child") as reads:
            reads.begin(sha("d0"))
            print("held", flush=True)
            sys.stdin.readline()
    else:
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            if task == "begin":
                print(ledger.begin_read("spring", 1, sha("d0"), sha(words[0]), "child"))
            else:
                observe(ledger, "spring", 0, words[0], by="child")
                print("observed")
        except ConfigError as problem:
            print("refused", problem)


@contextmanager
def _process(address: str, task: str) -> Iterator[subprocess.Popen[str]]:
    code = "import sys; from depsue.testing.durable_ledgers import child; child(*sys.argv[1:])"
    command = [sys.executable, "-c", code, address, *task.split()]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip() if process.stdout else ""


def _together(address: str, one: str, other: str) -> list[str]:
    """Two processes at the same time; what each said."""
    with _process(address, one) as first, _process(address, other) as second:
        both = (first, second)
        assert [_line(process) for process in both] == ["ready", "ready"]
        for process in both:
            if process.stdin:
                process.stdin.write("\n")
                process.stdin.flush()
        return [_line(process) for process in both]
