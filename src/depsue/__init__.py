"""Safe exploration of new items, from logged data, in a few deployments."""

__version__ = "0.1.0"
