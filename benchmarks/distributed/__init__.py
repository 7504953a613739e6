"""What an environment step costs when the policy runs elsewhere."""
