"""Pages: the report of a campaign, the report of a plan, and the dashboard beside the service."""
