"""Are these logs fit for use? What they hold, what is wrong with them, and how to mend it."""

from depsue.check.checking import check_logs
from depsue.check.guess import guess_mapping
from depsue.check.report import CheckFinding, CheckReport

__all__ = ["CheckFinding", "CheckReport", "check_logs", "guess_mapping"]
