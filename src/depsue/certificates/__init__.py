"""Certificates: what may be claimed of a policy, on which rows, and how anyone can check it."""

from depsue.certificates.assumed import AssumedFacts, AssumedRung, ItemDraw, ItemSplit, rule_of
from depsue.certificates.certificate import Certificate, DeltaParts, Verdict
from depsue.certificates.folds import (
    FRACTIONS,
    Folds,
    Registration,
    Stratum,
    StreamedFolds,
    UnitRows,
    declared_units,
    promised_rows,
    teaching_rows,
    three_folds,
    words_on_units,
)
from depsue.certificates.margin import Served, Stake, clopper_pearson, earned
from depsue.certificates.paper import paper_certificate
from depsue.certificates.pooling import LoggedRound, Pool, pooled
from depsue.certificates.registration import CountsReads, KnownLog, Reads, placed
from depsue.certificates.rules import Control, Credit, MixtureLadder, Rules
from depsue.certificates.spill_over import (
    SpillOver,
    SpillOverCertificate,
    SpillOverReport,
    certify_spill_over,
    check_spill_over,
)
from depsue.certificates.strict import Account, certify
from depsue.certificates.terms import Ceiling, ceiling, safety_terms, surplus
from depsue.certificates.tuning import tuned
from depsue.certificates.verification import Verification, verify
from depsue.data.partitions import LogStream, StreamedFold

__all__ = [
    "Account",
    "AssumedRung",
    "AssumedFacts",
    "Ceiling",
    "Certificate",
    "Control",
    "CountsReads",
    "Credit",
    "DeltaParts",
    "FRACTIONS",
    "Folds",
    "ItemDraw",
    "ItemSplit",
    "KnownLog",
    "LogStream",
    "LoggedRound",
    "MixtureLadder",
    "Pool",
    "Reads",
    "Registration",
    "Rules",
    "Served",
    "SpillOver",
    "SpillOverCertificate",
    "SpillOverReport",
    "Stake",
    "Stratum",
    "StreamedFold",
    "StreamedFolds",
    "UnitRows",
    "Verdict",
    "Verification",
    "ceiling",
    "certify",
    "certify_spill_over",
    "check_spill_over",
    "clopper_pearson",
    "declared_units",
    "earned",
    "paper_certificate",
    "placed",
    "pooled",
    "promised_rows",
    "rule_of",
    "safety_terms",
    "surplus",
    "teaching_rows",
    "three_folds",
    "tuned",
    "verify",
    "words_on_units",
]
