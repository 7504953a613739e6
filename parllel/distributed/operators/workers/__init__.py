"""The worker side: programs that play, and the agents that decide in them."""

__all__: list[str] = []
