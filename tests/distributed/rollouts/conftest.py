"""Lets tests in folders below import what is here: pytest puts the folder of a conftest.py on the path."""
