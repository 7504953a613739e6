"""Language models as operators: their client, what they are shown, and what is made of their answers.

Nothing is imported here, as each worker needs a part alone.
"""
