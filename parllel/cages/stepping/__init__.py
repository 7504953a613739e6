"""What happens in one step of the environments of one process, main or worker::

stepper             the environments: EnvStepper, a list of them; native/ has those that step all at once
environments        the row loop: each environment's step, and its results written to the batch, where
                    numpy casts them to the batch's dtype
rows                the cage's part of the batch: what is read of row t, and written to rows t and t + 1
leaf_rows           views of one field's rows
checks              values that environments return, compared with their spaces
trajectories        episodes in progress, at every step or a batch at a time
plain_face          steps without a batch
"""

__all__: list[str] = []
