"""Adapters that put the methods of `lens_ref.methods` into a training engine.

    groups      rows of an engine's batch → `Rollouts` [B, G], and a `Signal` back onto the rows
    statistics  what an adapter reports of a batch
    trl         `LensGRPOTrainer`, a drop-in for `trl.GRPOTrainer`
    verl        the advantage estimator `lens` and the trainer mode `lens_sync`

Importing this package imports none of the engines: each adapter imports its own when asked.
"""
