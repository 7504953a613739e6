"""The workers of a run as threads or as processes of the trainer's machine."""

__all__: list[str] = []
