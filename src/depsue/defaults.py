"""What holds where nothing is said: in Python, in every command and in the dashboard's forms.

`ExploreSettings` takes its defaults from here. They stand apart so that `depsue --help` can name
them without loading the libraries that learn.
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
SPREAD = 0.3
"""Before there are logs: standard deviation of log reward among what pi0 shows someone."""
