"""The router: answers lookups from a replica of the index, and appends what gRPC producers report.

A call enters through `server` and `calls`, which turn bytes into messages and errors into statuses.
`lookup` answers `LookupRoute` from the views as they are, `ingest` sends reports through `translate`
and `packing` to the log, `servicer` puts the eight calls together. `following` keeps the views current;
`views` is all that the calls know of it. `serve` is the process around them.
"""
