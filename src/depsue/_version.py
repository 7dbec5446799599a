"""The version, where nothing else is loaded."""

__version__ = "0.2.0"
