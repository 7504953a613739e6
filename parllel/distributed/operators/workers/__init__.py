"""The worker's side: programs that play, and what decides in them."""

__all__: list[str] = []
