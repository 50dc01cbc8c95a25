"""The protocol between processes as state machines: events in, actions out, no clock and no I/O.

A shell carries actions out and tells what came of them; a simulation does the same in memory, under any
schedule. `producer` reports one replica. `owner` claims a partition and tells its changes, `snapshots`
leaves bases behind, `restoring` finds a base that fits the log, `follower` keeps a router's view.
`position` judges every reader, `membership` says who is there, `bases` which snapshot may be used or
replaced, `resyncs` how often a producer is asked. `layouts` makes one layout of another, `generations`
chooses the one that a router answers by, `departures` repeats into it which pods are gone.

Modules are imported one by one: a sidecar needs none that knows the index.
"""
