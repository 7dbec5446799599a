"""The ledger: what happened in every campaign, append-only. Its promise, in prose first.

**What it holds.** Campaigns, observations, candidates, attempts with their certificates,
deployments, and a journal of who did what when. Hashes, counts, sums, names of files: never a
row of the logs and never the id of a user, so deleting a user's data never touches the ledger.

**Rounds.** Round 0 is what pi0 logged before the campaign. Round k = 1..K goes: candidates are
recorded, one is put to the test on the rows of round k - 1, something is deployed, and what it
logged is observed as round k. A round is over once it is observed, and the next begins.

**Append-only.** Every record is one row that is written once. The database itself refuses to
change or delete one. An attempt is open until a second row, its verdict, stands beside it. Each
record is written together with its line in the journal, or not at all.

**Once.** A call that returned is on disk. A call that was cut short is repeated: what is there
already is found, not written twice, and the first record is returned. The same name, round or
hash with *other* contents is refused.

- An observation is a *set of files with one hash*, one set for each round: several files of a
  round are hashed and observed together. Other rows for a round that has some are refused, but for
  more rows before anything was learned from them (`observe_more`).
- Items and mapping of a round, and the certificate of a verdict, are pinned by their SHA-256 in the
  same transaction (`pins`). What was edited since is refused. What an older version recorded is
  pinned when its campaign is first opened, and the log says so.
- The same candidate twice is one candidate, if what was fixed beforehand is the same.

**Registration.** The rows of an observation are registered in the same transaction. The ledger
draws the secret that their folds hang on, and keeps a sketch by which it knows them again
(`depsue.data.identity`): in another campaign, with another r_max, catalogue, unit or column, in a
larger or a smaller file. Rows that come back keep their folds. Rows that come back with other folds
are refused, or count as an attempt where all campaigns on them declared retries.

**Reads of certifying rows.** `begin_read` counts an attempt durably before the rows are looked
at. Attempts are counted by the family of rows, over all rounds and campaigns of the ledger: a
second campaign on the same rows is no second throw of the dice. Campaigns that are meant to share
rows declare it before the first verdict (`declare_family`): each then has its own share of delta.

- The same candidate again, after a crash, continues its attempt: all that its verdict depends on
  was fixed beforehand, so it would come out the same. Whoever continues it, it counts once.
- Another candidate is another attempt. It is refused unless this campaign, and every campaign that
  read these rows before, declared retries when it was created; attempt j is tested at delta 2^-j.
- In one round one attempt is open at a time; while it is, others hear who began it, and when. An
  attempt that cannot be finished is given up by `abandon_read`: it stays counted.
- A verdict is written once. An attempt without one stays visible as open.
- `hold` keeps a second *running* process from a round; it ends with the process that has it.

**One writer at a time.** Writes wait for each other, up to `wait` seconds; none is lost and
none deadlock. Readers see whole records. A ledger may be shared by threads; a process opens its
own. Refusals are `ConfigError`s; a database that cannot be reached, read or written to is a
`FileError`, after which nothing is half written and the next try works.
"""

from depsue.ledger.ledger import Ledger, copy_ledger, open_ledger
from depsue.ledger.reads import CountedReads
from depsue.ledger.records import (
    AttemptRecord,
    CampaignRecord,
    CandidateRecord,
    DeploymentRecord,
    FamilyRecord,
    JournalEntry,
    ObservationRecord,
    certificate_pin,
)

__all__ = [
    "AttemptRecord",
    "CampaignRecord",
    "CandidateRecord",
    "CountedReads",
    "DeploymentRecord",
    "FamilyRecord",
    "JournalEntry",
    "Ledger",
    "ObservationRecord",
    "certificate_pin",
    "copy_ledger",
    "open_ledger",
]
