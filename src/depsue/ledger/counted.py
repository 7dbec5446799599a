"""The ledger as `depsue.certificates.certify` asks for it: bound to one candidate."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from depsue.errors import ConfigError
from depsue.ledger.records import AttemptRecord, CertificateLike

if TYPE_CHECKING:
    from types import TracebackType

    from depsue.ledger.ledger import Ledger


class CountedReads:
    """Counts the reads of one candidate, as `depsue.certificates.Reads` does in a file.

    ::

        with ledger.reads("spring", 1, policy_hash, by="ana") as reads:
            reads.finish(certify(levels, folds, rules, reads))

    Args:
        ledger: where.
        campaign: its name.
        round: the deployment that the candidate is for.
        policy_hash: of the candidate.
        by: who certifies.
    """

    def __init__(
        self, ledger: Ledger, campaign: str, round: int, policy_hash: str, *, by: str
    ) -> None:
        self._ledger, self._campaign, self._round = ledger, campaign, round
        self._policy, self._by = policy_hash, by
        self._held = ExitStack()
        self._inside = False
        self.retries = ledger.campaign(campaign).retries

    def __enter__(self) -> Self:
        self._held.enter_context(self._ledger.hold(self._campaign, self._round))
        self._inside = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inside = False
        self._held.close()

    def begin(self, data: str) -> int:
        """Count a read, or continue this candidate's; which attempt on these rows it is."""
        if not self._inside:
            raise ConfigError(
                "a read begins while its round is held, so that two do not run at once",
                cure="with ledger.reads(...) as reads: certify(..., reads)",
            )
        return self._ledger.begin_read(self._campaign, self._round, data, self._policy, self._by)

    def count(self, data: str) -> int:
        """How many attempts on these rows came before this candidate's."""
        for one in self._ledger.attempts(self._campaign):
            if (one.round, one.policy_hash, one.data_hash) == (self._round, self._policy, data):
                return one.attempt - 1
        return self._ledger.count_reads(data)

    def delta_of_attempt(self, delta: float, attempt: int) -> float:
        """The delta at which that attempt is tested."""
        return delta * 2.0**-attempt if self.retries else delta

    def finish(self, certificate: CertificateLike) -> AttemptRecord:
        """Store the certificate."""
        return self._ledger.finish_read(
            self._campaign, self._round, self._policy, certificate, self._by
        )
