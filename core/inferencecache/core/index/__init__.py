"""The cache-state index of one partition: what replicas hold, how it changes, and what a lookup makes of it.

Everything here is pure: no clock, no I/O, no asyncio. A record of the log goes through `fold`, which judges
it, changes the `view` through `writer` and notes the change in `changes`; `clock` gives it its time and
`eviction`, with the order that `victims` keeps, bounds what is held. A view is a flat `table` of numbers,
on whose arrays `kernels` loop, and the names behind them in `holders`; `keys` and `digest` say what a hash
and a state come down to. `snapshot` writes all of it as a stream and reads it back.

Lookups ask the questions of `reading`, of one view or several (`joined`): `request` says what is looked for,
`routing` decides, with `ranking`, `policy`, `work` and `affinity`.

Import from the modules: who only needs a policy's values should not load compiled kernels.
"""
