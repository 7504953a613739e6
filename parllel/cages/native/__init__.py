"""Native vector environments, which step a whole batch by themselves."""

__all__: list[str] = []
