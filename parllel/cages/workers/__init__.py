"""Worker processes of cages: the pool, its control record, the conversation."""

__all__: list[str] = []
