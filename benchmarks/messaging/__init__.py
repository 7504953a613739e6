"""The cost of messages between agents."""
