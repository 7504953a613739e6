"""Games: what they are, those that are shipped, and environments of other libraries as games."""

__all__: list[str] = []
