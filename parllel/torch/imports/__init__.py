"""Agents from the files of other libraries, read without pickle."""

__all__: list[str] = []
