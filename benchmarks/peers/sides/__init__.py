"""One file for each library; imported by its server alone."""
