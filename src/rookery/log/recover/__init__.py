"""Rebuilds a lost cluster log from the objects of a store (`rookery recover`).

`plan` makes a `RecoveryPlan`, which writes nothing; `carry_out` and `append_unplaced` do.
"""
