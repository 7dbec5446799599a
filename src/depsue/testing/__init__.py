"""Public conformance suites: the laws that a new member of each family must obey."""
