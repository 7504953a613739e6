"""What a step of an environment costs at each distance."""
