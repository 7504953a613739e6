"""What happens in one step: rows written, values checked, episodes followed."""

__all__: list[str] = []
