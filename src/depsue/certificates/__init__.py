"""Certificates: what may be claimed of a policy, on which rows, and how anyone can check it."""

from depsue.certificates.certificate import Certificate, Verdict
from depsue.certificates.control import Control
from depsue.certificates.drift import DriftReport, check_drift, require_no_drift
from depsue.certificates.folds import FRACTIONS, Folds, three_folds
from depsue.certificates.levels import Levels
from depsue.certificates.margin import Served, earned
from depsue.certificates.paper import paper_certificate
from depsue.certificates.promise import Floor, Promise, checked_promises
from depsue.certificates.propensities import (
    PropensityReport,
    check_propensities,
    require_propensities,
)
from depsue.certificates.reads import CountsReads, Reads
from depsue.certificates.rules import Credit, Rules
from depsue.certificates.stream import LogStream, StreamedFold, StreamedFolds
from depsue.certificates.streaming import certify_stream
from depsue.certificates.strict import certify, policy_hash
from depsue.certificates.terms import Ceiling, ceiling, safety_terms
from depsue.certificates.verification import Verification, verify

__all__ = [
    "Ceiling",
    "Certificate",
    "Control",
    "Credit",
    "DriftReport",
    "FRACTIONS",
    "Floor",
    "Folds",
    "Levels",
    "LogStream",
    "Promise",
    "PropensityReport",
    "CountsReads",
    "Reads",
    "Rules",
    "Served",
    "StreamedFold",
    "StreamedFolds",
    "Verdict",
    "Verification",
    "ceiling",
    "certify",
    "certify_stream",
    "check_drift",
    "check_propensities",
    "checked_promises",
    "earned",
    "paper_certificate",
    "policy_hash",
    "require_no_drift",
    "require_propensities",
    "safety_terms",
    "three_folds",
    "verify",
]
