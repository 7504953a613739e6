"""Native vector environments: batches that an environment steps itself."""

__all__: list[str] = []
