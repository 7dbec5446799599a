"""Certificates: what may be claimed of a policy, on which rows, and how anyone can check it."""

from depsue.certificates.certificate import Certificate, DeltaParts, Verdict
from depsue.certificates.folds import FRACTIONS, Folds, StreamedFolds, three_folds
from depsue.certificates.margin import Served, earned
from depsue.certificates.paper import paper_certificate
from depsue.certificates.rules import Control, Credit, MixtureLadder, Rules
from depsue.certificates.strict import CountsReads, Reads, certify
from depsue.certificates.terms import Ceiling, ceiling, safety_terms
from depsue.certificates.tuning import tuned
from depsue.certificates.verification import Verification, verify
from depsue.data.partitions import LogStream, StreamedFold

__all__ = [
    "Ceiling",
    "Certificate",
    "Control",
    "CountsReads",
    "Credit",
    "DeltaParts",
    "FRACTIONS",
    "Folds",
    "LogStream",
    "MixtureLadder",
    "Reads",
    "Rules",
    "Served",
    "StreamedFold",
    "StreamedFolds",
    "Verdict",
    "Verification",
    "ceiling",
    "certify",
    "earned",
    "paper_certificate",
    "safety_terms",
    "three_folds",
    "tuned",
    "verify",
]
