"""The demo: the methods side by side in a world whose truth is known, and a campaign to serve."""
