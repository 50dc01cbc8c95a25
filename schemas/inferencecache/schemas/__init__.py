"""The data every process exchanges: log records, deltas, references, members, layout, policy.

Each module holds one family of structs and nothing else: no clock, no I/O, no behaviour beyond
validation. Structs that travel in bulk (records, deltas) are array-like MessagePack, so a field is
its position: a new field goes last and has a default. Structs that a person reads with a NATS
client (layout, references, members, policy) are JSON objects.
"""
