"""What messages between agents cost."""
