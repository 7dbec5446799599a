"""The conformance suite of ledgers: what is written once, what is refused, who waits for whom.

A new backend is tested in a few lines::

    class TestMine(LedgerConformance):
        @pytest.fixture
        def ledger(self) -> Ledger:
            return open_ledger("mine://...")

What it promises of registered rows is `depsue.testing.registrations.RegistrationConformance`. One
that outlives its process also passes `DurableConformance`, for which a fixture `address` names
it. That suite runs processes of its own, some of which are killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict

from depsue.errors import ConfigError
from depsue.ledger import Ledger, open_ledger
from depsue.testing.ledger_steps import (
    SmallCertificate,
    finish,
    observe,
    record,
    refused,
    sha,
    start,
)


class LedgerConformance:
    """What every ledger promises, tried in one process."""

    # once

    def test_a_campaign_from_beginning_to_end(self, ledger: Ledger) -> None:
        start(ledger)
        certificate = finish(ledger, "spring", 1, "p1", "d0", passed=True)
        ledger.deploy("spring", 1, sha("p1"), by="bo")
        ledger.deploy("spring", 1, sha("pi0"), "rollback", by="cy")
        observe(ledger, "spring", 1, "d1")
        record(ledger, "spring", 2, "p3")
        assert [seen.data_hash for seen in ledger.observations("spring")] == [sha("d0"), sha("d1")]
        assert [
            (candidate.round, candidate.folder) for candidate in ledger.candidates("spring")
        ] == [
            (1, "p1"),
            (1, "p2"),
            (2, "p3"),
        ]
        (attempt,) = ledger.attempts("spring")
        assert (attempt.state, attempt.certificate) == ("passed", certificate.to_json())
        assert attempt.finished_at is not None and attempt.finished_at > attempt.at
        served = [
            (deployment.kind, deployment.policy_hash, deployment.by)
            for deployment in ledger.deployments("spring")
        ]
        assert served == [("deploy", sha("p1"), "bo"), ("rollback", sha("pi0"), "cy")]
        what = "campaign registration observation policy policy read verdict deploy rollback "
        what += "registration observation policy"
        lines = ledger.journal("spring")
        assert [line.what for line in lines] == what.split()
        assert [line.at for line in lines] == sorted(line.at for line in lines)

    def test_the_same_again_is_the_first_one(self, ledger: Ledger) -> None:
        start(ledger)
        before = (ledger.campaigns(), ledger.observations("spring"), ledger.candidates("spring"))
        lines = ledger.journal()
        start(ledger)
        observe(ledger, "spring", 0, "d0", by="bo")
        after = (ledger.campaigns(), ledger.observations("spring"), ledger.candidates("spring"))
        assert after == before and ledger.journal() == lines

    def test_other_contents_are_refused(self, ledger: Ledger) -> None:
        start(ledger)
        lines = ledger.journal()
        with refused("campaign never changes|name 'spring': rounds 2 by ana at|now 3|another name"):
            ledger.create_campaign("spring", rounds=3, settings={}, by="ana")
        with refused("observation never changes|round 0: data_hash|by ana at|together"):
            observe(ledger, "spring", 0, "other")
        with refused("policy never changes|fixed|0.05|0.01|another candidate"):
            record(ledger, "spring", 1, "p1", delta=0.01)
        assert ledger.journal() == lines

    def test_a_deployment_repeated_is_one_and_a_change_is_another(self, ledger: Ledger) -> None:
        start(ledger)
        finish(ledger, "spring", 1, "p1", "d0", passed=True)
        first = ledger.deploy("spring", 1, sha("p1"), by="ana")
        assert ledger.deploy("spring", 1, sha("p1"), by="bo") == first
        ledger.deploy("spring", 1, sha("pi0"), "rollback", by="bo")
        ledger.deploy("spring", 1, sha("p1"), by="ana")
        assert len(ledger.deployments("spring")) == 3

    # order

    def test_rounds_go_in_order(self, ledger: Ledger) -> None:
        ledger.create_campaign("spring", rounds=2, settings={}, by="ana")
        with refused("begins when the one before it was observed|round 0|first"):
            record(ledger, "spring", 1, "p1")
        start(ledger)
        with refused("after something was deployed|round 1|rollback"):
            observe(ledger, "spring", 1, "d1")
        with refused("rounds go in order|round 1"):
            ledger.deploy("spring", 2, sha("pi0"), "rollback", by="ana")
        ledger.deploy("spring", 1, sha("pi0"), "rollback", by="ana")
        with refused("rows of its own|is round 0"):
            observe(ledger, "spring", 1, "d0")
        observe(ledger, "spring", 1, "d1")
        with refused("over once it was observed|by ana|round 2"):
            ledger.begin_read("spring", 1, sha("d0"), sha("p1"), "ana")
        with refused("over once"):
            record(ledger, "spring", 1, "p9")
        with refused("rounds 1 to 2|Found: 3"):
            record(ledger, "spring", 3, "p9")

    def test_a_rollback_is_recorded_also_after_its_round(self, ledger: Ledger) -> None:
        start(ledger)
        ledger.deploy("spring", 1, sha("pi0"), "rollback", by="ana")
        observe(ledger, "spring", 1, "d1")
        assert ledger.deploy("spring", 1, sha("older"), "rollback", by="bo").by == "bo"

    def test_only_what_passed_is_deployed(self, ledger: Ledger) -> None:
        start(ledger, retries=True)
        with refused("certificate of this round that passed|neither for policy|rollback"):
            ledger.deploy("spring", 1, sha("p1"), by="ana")
        finish(ledger, "spring", 1, "p1", "d0", passed=False)
        with refused("certificate of this round that passed"):
            ledger.deploy("spring", 1, sha("p1"), by="ana")
        attempt = ledger.begin_read("spring", 1, sha("d0"), sha("p2"), "ana")
        level = SmallCertificate("spring", sha("d0"), attempt, sha("p2, level 3"), True)
        ledger.finish_read("spring", 1, sha("p2"), level, "ana")
        ledger.deploy("spring", 1, sha("p2, level 3"), by="ana")

    def test_what_a_candidate_names_as_certain_needs_no_certificate(self, ledger: Ledger) -> None:
        start(ledger)
        ledger.record_candidate(
            "spring",
            1,
            policy_hash=sha("p3"),
            folder="p3",
            trained_on=[sha("d0")],
            fixed={"certain": [sha("pi0"), sha("naive")]},
            by="ana",
        )
        ledger.deploy("spring", 1, sha("naive"), by="ana")
        with refused("neither for policy"):
            ledger.deploy("spring", 1, sha("p3"), by="ana")
        observe(ledger, "spring", 1, "d1")
        record(ledger, "spring", 2, "p4")
        with refused("neither for policy"):  # it was certain in another round
            ledger.deploy("spring", 2, sha("naive"), by="ana")

    # reads

    def test_a_read_is_counted_before_its_verdict(self, ledger: Ledger) -> None:
        start(ledger)
        assert ledger.count_reads(sha("d0")) == 0
        assert ledger.begin_read("spring", 1, sha("d0"), sha("p1"), "ana") == 1
        assert ledger.count_reads(sha("d0")) == 1
        assert [attempt.state for attempt in ledger.attempts("spring")] == ["open"]

    def test_the_same_candidate_continues_its_attempt(self, ledger: Ledger) -> None:
        start(ledger)
        ledger.begin_read("spring", 1, sha("d0"), sha("p1"), "ana")
        assert ledger.begin_read("spring", 1, sha("d0"), sha("p1"), "bo") == 1
        assert ledger.count_reads(sha("d0")) == 1
        assert (ledger.journal()[-1].what, ledger.journal()[-1].by) == ("read continued", "bo")
        certificate = finish(ledger, "spring", 1, "p1", "d0", passed=False)
        assert finish(ledger, "spring", 1, "p1", "d0", passed=False) == certificate
        assert len(ledger.attempts("spring")) == ledger.count_reads(sha("d0")) == 1

    def test_while_one_is_open_another_hears_who_began(self, ledger: Ledger) -> None:
        start(ledger, retries=True)
        ledger.begin_read("spring", 1, sha("d0"), sha("p1"), "ana")
        when = ledger.attempts("spring")[0].at.isoformat()
        with refused(f"one attempt at a time|ana began attempt 1|{when}|abandon"):
            ledger.begin_read("spring", 1, sha("d0"), sha("p2"), "bo")
        assert ledger.count_reads(sha("d0")) == 1

    def test_another_candidate_is_refused_without_retries(self, ledger: Ledger) -> None:
        start(ledger)
        finish(ledger, "spring", 1, "p1", "d0", passed=False)
        with refused("read by one verdict|attempt 2|ana read them at|without retries|no verdict"):
            ledger.begin_read("spring", 1, sha("d0"), sha("p2"), "ana")

    def test_with_retries_it_is_the_next_attempt(self, ledger: Ledger) -> None:
        start(ledger, retries=True)
        finish(ledger, "spring", 1, "p1", "d0", passed=False)
        with ledger.reads("spring", 1, sha("p2"), by="ana") as reads:
            assert reads.count(sha("d0")) == 1
            assert reads.begin(sha("d0")) == 2
            assert reads.count(sha("d0")) == 1, "a retry is tested at the same level"
            assert (reads.retries, reads.delta_of_attempt(0.08, 2)) == (True, 0.02)

    def test_a_second_campaign_is_no_second_throw(self, ledger: Ledger) -> None:
        start(ledger)
        finish(ledger, "spring", 1, "p1", "d0", passed=False)
        start(ledger, "autumn")
        start(ledger, "winter", retries=True)
        for campaign in ("autumn", "winter"):
            with refused("in whatever campaign|round 1 of campaign 'spring'|without retries"):
                ledger.begin_read(campaign, 1, sha("d0"), sha("p2"), "ana")

    def test_campaigns_with_retries_share_one_count(self, ledger: Ledger) -> None:
        start(ledger, retries=True)
        finish(ledger, "spring", 1, "p1", "d0", passed=False)
        start(ledger, "autumn", retries=True)
        assert ledger.begin_read("autumn", 1, sha("d0"), sha("p1"), "ana") == 2

    def test_an_abandoned_attempt_stays_counted(self, ledger: Ledger) -> None:
        start(ledger, retries=True)
        ledger.begin_read("spring", 1, sha("d0"), sha("p1"), "ana")
        for _ in range(2):
            ledger.abandon_read("spring", 1, sha("p1"), why="its files are lost", by="bo")
        (attempt,) = ledger.attempts("spring")
        assert (attempt.state, attempt.note, attempt.finished_by) == (
            "abandoned",
            "its files are lost",
            "bo",
        )
        with refused("given up is not taken up again|attempt 1, abandoned by bo at"):
            ledger.begin_read("spring", 1, sha("d0"), sha("p1"), "ana")
        assert ledger.begin_read("spring", 1, sha("d0"), sha("p2"), "ana") == 2

    def test_a_verdict_is_written_once(self, ledger: Ledger) -> None:
        start(ledger)
        certificate = finish(ledger, "spring", 1, "p1", "d0", passed=False)
        other = SmallCertificate(
            "spring", certificate.data, certificate.attempt, certificate.policy, True
        )
        with refused("written once|ana wrote at|failed|now says passed|first one stands"):
            ledger.finish_read("spring", 1, sha("p1"), other, "ana")
        with refused("written once"):
            ledger.abandon_read("spring", 1, sha("p1"), why="a wish", by="ana")
        assert [attempt.state for attempt in ledger.attempts("spring")] == ["failed"]

    def test_a_certificate_belongs_to_its_attempt(self, ledger: Ledger) -> None:
        start(ledger)
        right = SmallCertificate("spring", sha("d0"), 1, sha("p1"), True)
        with refused("begun, and so counted|begin_read"):
            ledger.finish_read("spring", 1, sha("p1"), right, "ana")
        ledger.begin_read("spring", 1, sha("d0"), sha("p1"), "ana")
        for name, value in (("campaign", "autumn"), ("data", sha("d9")), ("attempt", 2)):
            wrong = SmallCertificate(**{**asdict(right), name: value})
            with refused(f"belongs to the attempt|{name} {value!r}"):
                ledger.finish_read("spring", 1, sha("p1"), wrong, "ana")
        assert [attempt.state for attempt in ledger.attempts("spring")] == ["open"]

    def test_only_recorded_candidates_read_the_newest_rows(self, ledger: Ledger) -> None:
        start(ledger)
        with refused("recorded, with all that is fixed|record it first"):
            ledger.begin_read("spring", 1, sha("d0"), sha("p9"), "ana")
        with refused("rows of the round before|round 0 observed"):
            ledger.begin_read("spring", 1, sha("d9"), sha("p1"), "ana")
        assert ledger.attempts("spring") == ()

    def test_reads_begin_while_the_round_is_held(self, ledger: Ledger) -> None:
        start(ledger)
        with refused("while its round is held|with ledger.reads"):
            ledger.reads("spring", 1, sha("p1"), by="ana").begin(sha("d0"))
        with ledger.reads("spring", 1, sha("p1"), by="ana") as reads:
            reads.begin(sha("d0"))
            with refused("one process at a time|ana began at|wait"):
                with ledger.hold("spring", 1):
                    pass
            with ledger.hold("spring", 2):
                pass
        with ledger.hold("spring", 1):
            pass

    # the door

    def test_refuses_what_is_no_name_hash_count_or_json(self, ledger: Ledger) -> None:
        start(ledger)
        for name in ("", " ", "a\nb", "a\0b", "\ud800", "x" * 1001):
            with refused("a campaign must"):
                ledger.create_campaign(name, rounds=1, settings={}, by="ana")
            with refused("who writes must"):
                ledger.create_campaign("autumn", rounds=1, settings={}, by=name)
        for settings in ({"a": float("nan")}, {"a": {1, 2}}):
            with refused("settings must be JSON"):
                ledger.create_campaign("autumn", rounds=1, settings=settings, by="ana")
        with refused("at most 1,048,576 characters|holds no rows"):
            ledger.create_campaign("autumn", rounds=1, settings={"a": "x" * 2**20}, by="ana")
        for rounds in (0, -1, True, 1.5):
            with refused("rounds must be a whole number"):
                ledger.create_campaign("autumn", rounds=rounds, settings={}, by="ana")  # type: ignore[arg-type]
        for hash in ("", "A" * 64, sha("a")[:-1], sha("a") + "\n"):
            with refused("SHA-256, 64 hexadecimal digits"):
                ledger.begin_read("spring", 1, hash, sha("p1"), "ana")
        with refused("a deployment is one of"):
            ledger.deploy("spring", 1, sha("p1"), "undo", by="ana")  # type: ignore[arg-type]
        assert len(ledger.campaigns()) == 1

    def test_an_unknown_campaign_is_named_with_those_there_are(self, ledger: Ledger) -> None:
        start(ledger)
        calls: list[Callable[[], object]] = [
            lambda: ledger.campaign("sprnig"),
            lambda: ledger.attempts("sprnig"),
            lambda: ledger.begin_read("sprnig", 1, sha("d0"), sha("p1"), "ana"),
        ]
        for call in calls:
            with refused("a campaign of that name|'sprnig'; there is 'spring'"):
                call()

    def test_names_and_values_of_all_scripts_come_back(self, ledger: Ledger) -> None:
        settings = {"a'; DROP TABLE": ["\0", "é", None, 1e300, {"b": True}], "größe": 2**60}
        name = "été'\"; -- 春 %s :x"
        ledger.create_campaign(name, rounds=1, settings=settings, by="Zoë")
        campaign = ledger.campaign(name)
        assert (campaign.settings, campaign.by) == (settings, "Zoë")

    def test_threads_share_a_ledger(self, ledger: Ledger) -> None:
        start(ledger)

        def work(number: int) -> None:
            ledger.create_campaign(f"c{number % 4}", rounds=1, settings={}, by=f"t{number}")
            ledger.journal()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(12)))
        assert len(ledger.campaigns()) == 5


KILLS = 3 * int(os.environ.get("DEPSUE_SOAK", "1"))


class DurableConformance:
    """What a ledger promises that outlives its process, tried with real processes."""

    def test_what_was_written_is_there_when_it_is_opened_again(self, address: str) -> None:
        start(open_ledger(address))
        before = open_ledger(address).journal()
        ledger = open_ledger(address, create=False)
        assert ledger.journal() == before and len(before) == 5
        assert len(ledger.id) == 32 and open_ledger(address).id == ledger.id
        assert ledger.registration("spring", 0).ledger == ledger.id

    def test_two_certify_one_round_with_two_policies(self, address: str) -> None:
        start(open_ledger(address), retries=True)
        answers = _together(address, "begin p1", "begin p2")
        assert sorted(answer.split()[0] for answer in answers) == ["1", "refused"], answers
        assert "one attempt at a time" in max(answers), answers
        assert open_ledger(address).count_reads(sha("d0")) == 1

    def test_two_certify_one_round_with_one_policy(self, address: str) -> None:
        start(open_ledger(address))
        answers = _together(address, "begin p1", "begin p1")
        assert answers == ["1", "1"]
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
            names = [campaign.name for campaign in ledger.campaigns()]
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
    code = "import sys; from depsue.testing.ledgers import child; child(*sys.argv[1:])"
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


def _together(address: str, task: str, other_task: str) -> list[str]:
    """Two processes at the same time; what each said."""
    with _process(address, task) as first, _process(address, other_task) as second:
        both = (first, second)
        assert [_line(process) for process in both] == ["ready", "ready"]
        for process in both:
            if process.stdin:
                process.stdin.write("\n")
                process.stdin.flush()
        return [_line(process) for process in both]
