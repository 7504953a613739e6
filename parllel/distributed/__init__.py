"""What is too far away for shared memory. Nothing in the core needs any of these packages."""

__all__: list[str] = []
