"""The version, which setup.cfg reads here."""

__version__ = "0.1.0"
