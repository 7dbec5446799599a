"""The conformance suite of what a ledger promises of rows: they are known, counted and shared.

A new backend passes it beside `depsue.testing.ledgers.LedgerConformance`.
"""

from __future__ import annotations

import numpy as np

from depsue.data import Catalogue, LoggedData
from depsue.data.identity import LogSketch
from depsue.ledger import Ledger
from depsue.testing.ledger_steps import (
    PooledCertificate,
    begin_erasure,
    finish,
    observe,
    observe_more,
    record,
    refused,
    sha,
    start,
)


def sketch_of(n: int, seed: int = 0) -> LogSketch:
    """Of the first n rows of a world: other seeds are other rows, more rows contain fewer."""
    draw = np.random.default_rng(seed)
    actions = draw.integers(0, 20, 2000)[:n]
    return LogSketch.of(
        LoggedData.from_arrays(
            contexts=draw.normal(size=(2000, 2))[:n],
            actions=actions,
            rewards=np.zeros(n),
            propensities=np.full(n, 0.05),
            catalogue=Catalogue.of(range(20)),
            r_max=1.0,
        )
    )


class RegistrationConformance:
    """No second throw of the dice, in whatever campaign; and who shares rows says so."""

    def test_rows_are_registered_when_they_are_observed(self, ledger: Ledger) -> None:
        start(ledger)
        registration = ledger.registration("spring", 0)
        assert registration.drawn and registration.ledger == ledger.id
        assert ledger.registration("spring", 0) == registration
        start(ledger, "autumn")  # the same rows keep their folds, whatever the name
        again = ledger.registration("autumn", 0)
        assert (again.secret, again.family) == (registration.secret, registration.family)
        ledger.create_campaign("winter", rounds=2, settings={}, by="ana")
        observe(ledger, "winter", 0, "d9")
        assert ledger.registration("winter", 0).secret != registration.secret

    def test_known_rows_in_a_larger_file_are_no_second_throw(self, ledger: Ledger) -> None:
        for campaign, sketch in (("spring", sketch_of(400)), ("autumn", sketch_of(600))):
            ledger.create_campaign(campaign, rounds=1, settings={}, by="ana")
            observe(ledger, campaign, 0, campaign, sketch=sketch)
            record(ledger, campaign, 1, "p1")
        first, second = (ledger.registration(name, 0) for name in ("spring", "autumn"))
        assert (first.secret, first.family) == (second.secret, second.family)
        assert ledger.registration_of(sketch_of(500)) is not None
        assert ledger.registration_of(sketch_of(500, seed=1)) is None
        finish(ledger, "spring", 1, "p1", "spring", passed=False)
        with refused("in whatever campaign|round 1 of campaign 'spring'|depsue campaign family"):
            ledger.begin_read("autumn", 1, sha("autumn"), sha("p1"), "ana")

    def test_another_encoding_is_refused_or_an_attempt(self, ledger: Ledger) -> None:
        other = (0.5, 0.1, 0.4)
        for retries, names in ((False, ("a", "b")), (True, ("c", "d"))):
            seed = int(retries)
            for name in names:
                ledger.create_campaign(name, rounds=1, settings={}, retries=retries, by="ana")
            observe(ledger, names[0], 0, names[0], sketch=sketch_of(400, seed))
            if not retries:
                with refused("another throw of the dice|round 0 of campaign 'a'|declare retries"):
                    ledger.require_registrable(sketch_of(400, seed), other, retries=False)
                with refused("another throw of the dice"):
                    observe(ledger, "b", 0, "b", sketch=sketch_of(400, seed), fractions=other)
                assert ledger.observations("b") == ()
                continue
            observe(ledger, "d", 0, "d", sketch=sketch_of(400, seed), fractions=other)
            record(ledger, "d", 1, "p1")
            assert ledger.count_reads(sha("d"), "d") == 1, "no verdict has read anything"
            assert ledger.begin_read("d", 1, sha("d"), sha("p1"), "ana") == 2

    def test_more_rows_until_something_is_learned(self, ledger: Ledger) -> None:
        ledger.create_campaign("spring", rounds=1, settings={}, by="ana")
        with refused("rows can be added only to a round that was observed|observe it first"):
            observe_more(ledger, "spring", 0, "d0", sketch_of(400))
        observe(ledger, "spring", 0, "d0", sketch=sketch_of(400))
        before = ledger.registration("spring", 0)
        for _ in range(2):
            observe_more(ledger, "spring", 0, "more", sketch_of(600))
        assert ledger.registration("spring", 0) == before, "earlier rows keep their folds"
        (seen,) = ledger.observations("spring")
        assert (seen.data_hash, seen.rows) == (sha("more"), 600)
        assert ledger.supplemented("spring", 0)
        assert [line.what for line in ledger.journal()].count("supplement") == 1
        record(ledger, "spring", 1, "p1")
        with refused("until a candidate is trained|a candidate of round 1 exists"):
            observe_more(ledger, "spring", 0, "yet more", sketch_of(800))
        assert ledger.begin_read("spring", 1, sha("more"), sha("p1"), "ana") == 1

    def test_more_rows_that_only_their_hash_tells_keep_the_secret(self, ledger: Ledger) -> None:
        ledger.create_campaign("spring", rounds=1, settings={}, by="ana")
        observe(ledger, "spring", 0, "d0")
        before = ledger.registration("spring", 0)
        observe_more(ledger, "spring", 0, "more")
        assert ledger.registration("spring", 0) == before

    def test_a_later_round_is_not_declared_fresh_by_anybody(self, ledger: Ledger) -> None:
        start(ledger)
        ledger.deploy("spring", 1, sha("pi0"), "rollback", by="ana")
        observe(ledger, "spring", 1, "d1")
        assert not ledger.registration("spring", 1).declared_fresh
        ledger.create_campaign("autumn", rounds=1, settings={}, by="ana")
        observe(ledger, "autumn", 0, "d2", fresh=True)
        assert ledger.registration("autumn", 0).declared_fresh

    # families

    def test_rows_of_an_earlier_round_are_no_later_one(self, ledger: Ledger) -> None:
        ledger.create_campaign("spring", rounds=2, settings={}, by="ana")
        observe(ledger, "spring", 0, "d0", sketch=sketch_of(400))
        ledger.deploy("spring", 1, sha("pi0"), "rollback", by="ana")
        with refused("were drawn in it|rows of round 0|logged since the last deployment"):
            observe(ledger, "spring", 1, "d1", sketch=sketch_of(399))
        observe(ledger, "spring", 1, "d1", sketch=sketch_of(400, seed=1))

    def test_a_family_shares_delta(self, ledger: Ledger) -> None:
        shares = {"spring": 0.75, "autumn": 0.25}
        for name in shares:
            start(ledger, name)
        for _ in range(2):
            family = ledger.declare_family("shop", shares=shares, floor=None, by="ana")
        assert ledger.families() == (family,) and family.terms["shares"] == shares
        for name, share in shares.items():
            with ledger.reads(name, 1, sha("p2"), by="ana") as reads:
                assert reads.begin(sha("d0")) == 1
                assert reads.delta_of_attempt(0.08, 1) == 0.08 * share
        start(ledger, "winter")
        with refused("in whatever campaign|depsue campaign family"):
            ledger.begin_read("winter", 1, sha("d0"), sha("p1"), "ana")

    def test_candidates_of_a_family_have_not_seen_its_verdicts(self, ledger: Ledger) -> None:
        """Steered by 20 printed segment means of spring, autumn's would err in 64%."""
        shares = {"spring": 0.5, "autumn": 0.5}
        for name in shares:
            start(ledger, name)
        ledger.declare_family("shop", shares=shares, floor=None, by="ana")
        finish(ledger, "spring", 1, "p1", "d0", passed=False)
        record(ledger, "autumn", 1, "p3")
        with refused("train on the rows that they share before|campaign 'spring'|trained before"):
            ledger.begin_read("autumn", 1, sha("d0"), sha("p3"), "ana")
        with refused("chosen before it: the newest candidate of then|certify the newest one"):
            ledger.begin_read("autumn", 1, sha("d0"), sha("p1"), "ana")  # chosen among two, now
        assert ledger.begin_read("autumn", 1, sha("d0"), sha("p2"), "ana") == 1

    def test_rows_that_a_verdict_pooled_were_read(self, ledger: Ledger) -> None:
        start(ledger)
        ledger.deploy("spring", 1, sha("pi0"), "rollback", by="ana")
        observe(ledger, "spring", 1, "d1")
        record(ledger, "spring", 2, "p1")
        attempt = ledger.begin_read("spring", 2, sha("d1"), sha("p1"), "ana")
        for name in ("autumn", "winter"):
            start(ledger, name)
        with refused("in whatever campaign|in round 2 of campaign 'spring'"):
            ledger.begin_read("autumn", 1, sha("d0"), sha("p1"), "ana")  # it may have pooled them
        family = ledger.registration("spring", 0).family
        pooled = PooledCertificate("spring", sha("d1"), attempt, sha("p1"), True, (family,))
        ledger.finish_read("spring", 2, sha("p1"), pooled, "ana")
        with refused("in whatever campaign|in round 2 of campaign 'spring'"):
            ledger.begin_read("autumn", 1, sha("d0"), sha("p1"), "ana")
        assert ledger.read_elsewhere("autumn") == ("spring",)
        assert ledger.read_elsewhere("spring") == ()

    def test_rows_that_a_verdict_left_alone_were_not_read(self, ledger: Ledger) -> None:
        start(ledger)
        ledger.deploy("spring", 1, sha("pi0"), "rollback", by="ana")
        observe(ledger, "spring", 1, "d1")
        record(ledger, "spring", 2, "p1")
        finish(ledger, "spring", 2, "p1", "d1", passed=True)
        start(ledger, "autumn")
        assert ledger.read_elsewhere("autumn") == ()
        finish(ledger, "autumn", 1, "p1", "d0", passed=True)
        assert ledger.read_elsewhere("spring") == ("autumn",)
        assert ledger.read_elsewhere("spring", since=1) == ()  # only the first logs were

    def test_a_family_is_declared_before_its_first_verdict(self, ledger: Ledger) -> None:
        for name in ("spring", "autumn", "winter"):
            start(ledger, name)
        finish(ledger, "spring", 1, "p1", "d0", passed=False)
        with refused("before the first verdict|ana read rows for 'spring'"):
            ledger.declare_family(
                "shop", shares={"spring": 0.5, "autumn": 0.5}, floor=None, by="ana"
            )
        ledger.declare_family("late", shares={"autumn": 0.5, "winter": 0.5}, floor=None, by="ana")
        with refused("in whatever campaign|campaign 'spring'"):  # whose verdict stands
            ledger.begin_read("autumn", 1, sha("d0"), sha("p1"), "ana")
        with refused("a campaign is in one family|autumn in 'late'"):
            ledger.declare_family("more", shares={"autumn": 0.5, "x": 0.5}, floor=None, by="ana")
        with refused("family never changes"):
            ledger.declare_family("late", shares={"autumn": 0.9, "winter": 0.1}, floor=0.9, by="b")

    def test_a_joint_floor_holds_for_all_together(self, ledger: Ledger) -> None:
        promises = [{"floor": {"ratio": 0.95}}]
        settings = {"campaign": {"explore": {"promises": promises}}}
        shares = {"spring": 0.5, "autumn": 0.5}
        for name in shares:
            ledger.create_campaign(name, rounds=2, settings=settings, by="ana")
            observe(ledger, name, 0, "d0")
            record(ledger, name, 1, "p1")
        ledger.declare_family("shop", shares=shares, floor=0.92, by="ana")
        with refused("together keep 0.92|spring may lose 0.05, autumn may lose 0.05|higher floors"):
            ledger.begin_read("spring", 1, sha("d0"), sha("p1"), "ana")

    def test_only_floors_of_all_rewards_limit_what_a_family_loses(self, ledger: Ledger) -> None:
        whole, high, segment, other = (
            {"floor": {"ratio": 0.95}},
            {"floor": {"ratio": 1.05}},
            {"floor": {"ratio": 0.95}, "segment": ["de", 1.0]},
            {"floor": {"ratio": 0.95}, "reward": "minutes"},
        )
        lost = {
            "everybody": ([whole, {"floor": {"ratio": 0.5}, "segment": ["de", 1.0]}], "0.05"),
            "above": ([high], "0"),
            "segment": ([segment], "1"),
            "minutes": ([other], "1"),
        }
        for name, (promises, _) in lost.items():
            settings = {"campaign": {"explore": {"promises": promises}}}
            ledger.create_campaign(name, rounds=2, settings=settings, by="ana")
            observe(ledger, name, 0, f"of {name}")
            record(ledger, name, 1, "p1")
        ledger.declare_family("shop", shares=dict.fromkeys(lost, 0.25), floor=0.99, by="ana")
        words = "|".join(f"{name} may lose {loss}" for name, (_, loss) in lost.items())
        with refused(words):
            ledger.begin_read("above", 1, sha("of above"), sha("p1"), "ana")

    def test_terms_of_a_family_are_checked(self, ledger: Ledger) -> None:
        for shares in ({"a": 1.0}, {"a": 0.6, "b": 0.6}, {"a": 0.0, "b": 0.5}):
            with refused("two campaigns or more|sum to at most 1"):
                ledger.declare_family("shop", shares=shares, floor=None, by="ana")
        with refused("joint floor is a share"):
            ledger.declare_family("shop", shares={"a": 0.5, "b": 0.5}, floor=1.5, by="ana")
        assert ledger.families() == ()

    def test_an_erasure_leaves_what_is_left(self, ledger: Ledger) -> None:
        start(ledger)
        before = ledger.observations("spring")[0]
        begin_erasure(ledger, 0, "d0", "left")
        seen = ledger.observations("spring")[0]
        assert (seen.data_hash, seen.rows, seen.summary) == (sha("left"), 8, {"rows": 8})
        assert (seen.rows_erased, seen.source, seen.by) == (2, before.source, before.by)
        (gone,) = seen.erased
        assert (gone.data, gone.places, gone.certifying) == (sha("d0"), (3, 5), 1)
        begin_erasure(ledger, 0, "left", "less", unit="v")
        assert ledger.observations("spring")[0].rows_erased == 4
        with refused("as they were observed|round 0|again"):
            begin_erasure(ledger, 0, "d0", "other", unit="w")
        # rows that were erased are no way to a second throw
        assert ledger.count_reads(sha("less"), "spring") == 0
        finish(ledger, "spring", 1, "p1", "less", passed=False)
        assert ledger.count_reads(sha("less"), "spring") == 1
        with refused("in whatever campaign"):
            ledger.begin_read("spring", 1, sha("less"), sha("p2"), "ana")

    def test_an_erasure_is_begun_and_finished_once(self, ledger: Ledger) -> None:
        start(ledger)
        assert ledger.erasures("spring") == ()
        begin_erasure(ledger, 0, "d0", "left")
        (begun,) = ledger.erasures("spring")
        assert (begun.finished_at, begun.counts, begun.unit) == (None, None, sha("u"))
        # after a crash: nothing is new in the rounds
        again = ledger.begin_erasure("spring", unit=sha("u"), parts=[], by="bea")
        assert again == begun
        ledger.finish_erasure("spring", unit=sha("u"), counts={"rows": 2}, by="bea")
        ledger.finish_erasure("spring", unit=sha("u"), counts={"rows": 9}, by="cid")
        (done,) = ledger.erasures("spring")
        assert (done.finished_by, done.counts) == ("bea", {"rows": 2})
        lines = [(line.what, line.detail) for line in ledger.journal("spring")]
        assert lines[-2:] == [("erasure", "2 rows of round 0"), ("erased", "rows 2")]

    def test_no_row_is_erased_under_an_open_verdict(self, ledger: Ledger) -> None:
        start(ledger)
        ledger.begin_read("spring", 1, sha("d0"), sha("p1"), "ana")
        with refused("under a verdict|ana began attempt 1|depsue campaign certify spring"):
            begin_erasure(ledger, 0, "d0", "left")
