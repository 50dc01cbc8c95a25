"""The indexer: it folds each partition's log and tells routers what changed.

`serve` is the process. A `PartitionIndexer` restores a state that fits the log, keeps it folded
(`folding`), tells its changes while it owns the partition (`telling`), and leaves snapshots behind
(`snapshotting`). Every decision is made by a machine of `core.protocol`.
"""
