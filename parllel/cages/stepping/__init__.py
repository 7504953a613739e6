"""One step of the environments of one process, main or worker::

stepper             the environments: EnvStepper steps a list of them; native/ has those that step together
environments        the row loop: each environment's step, and its results written to the batch, where
                    numpy casts them to the batch's dtype
rows                the cage's part of the batch: what is read from row t, and written to rows t and t + 1
leaf_rows           views of one field's rows
checks              checks of the values that environments return
trajectories        episodes in progress, at every step or a batch at a time
step_methods        steps without a batch
"""

__all__: list[str] = []
