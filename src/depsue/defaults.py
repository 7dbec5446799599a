"""What holds where nothing is said: in Python, in every command and in the dashboard's forms.

`ExploreSettings` and `ServingSettings` take their defaults from here. They stand apart so that
`depsue --help` can name them without loading the libraries that learn.
"""

FLOOR = 0.95
"""Share of pi0's value that must be kept."""
DELTA = 0.05
"""How often a deployment may err."""
OBJECTIVE = "balanced"
"""What is best among safe policies: novelty and value, the first of either counting most."""
MAX_NOVELTY = 0.5
"""No policy shows novel actions more often than this."""
ROUNDS = 3
"""K, the deployments of a campaign."""
RESERVE = 0.1
"""Share of the certifying rows of a served round, but the last, that is reserved for later
verdicts. pi0's first logs reserve nothing, so nothing is with K < 3."""
SPREAD = 0.3
"""Before there are logs: standard deviation of log reward among what pi0 shows someone."""

IMPRESSIONS, REWARDS = 100, 5
"""The discoverable corpus: items shown at least so often, and rewarded at least so often."""

WAIT = 3600.0
"""Of a service: seconds after a decision in which its rewards count."""
DEFAULT_REWARD = 0.0
"""Of a decision that got none in that time."""
COMBINE = "first"
"""Which reward counts of a decision with several."""
HOLDOUT = 0.05
"""Share of traffic that stays on pi0."""
EVERY = 86400.0
"""Seconds that a ramp stays at each share of traffic, a day."""
FALSE_ALARMS = 0.05
"""How often the monitor may raise a false alarm, over the campaign's life."""
CYCLE = 86400.0
"""Seconds of a whole cycle, a day: an absolute floor, and one over units, is judged by cycles."""
WATCHED = 100_000
"""Decisions that the monitor expects of a round where neither a length nor logs say more."""
PERMIT = 30.0
"""Seconds for which the policy explores after a completed look of the monitor."""
BACKLOG = 50_000
"""Closed decisions that may wait for the monitor while the policy explores."""
ON_GONE = "pi0"
"""While the store is gone: pi0 decides, into the journal."""
RATE = 20_000.0
"""Decisions and rewards that one token may send in a second."""
UNKNOWN = 1000
"""Rewards that one token may send in an hour for decisions that are not known yet."""
MOST_WAITING = 2000
"""Decisions and rewards that may wait before requests are refused."""
MOST_CANDIDATES = 10_000
"""Candidates that one request may bring."""
