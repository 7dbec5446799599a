"""Pages that need nothing else: a campaign's story, a plan."""
