"""Are these logs fit for use? What they hold, what is wrong with them, and how to mend it.

`checking.py` runs the check, `counting.py` and `candidates.py` count, `rules.py` holds the rules,
`guess.py` guesses which column is what, and `report.py` is what a check returns.
"""

from depsue.check.checking import check_logs
from depsue.check.guess import guess_mapping, read_logs, read_or_guess
from depsue.check.report import CheckFinding, CheckReport, LogFacts, Outlook

__all__ = [
    "CheckFinding",
    "CheckReport",
    "LogFacts",
    "Outlook",
    "check_logs",
    "guess_mapping",
    "read_logs",
    "read_or_guess",
]
