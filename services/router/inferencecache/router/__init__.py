"""The router: answers lookups from a replica of the index, and appends what gRPC producers report.

A call enters through `server` and `calls`, which turn bytes into messages and errors into statuses.
`lookup` and `pair_lookup` answer from the views as they are, with `tokenizing` beside them for text;
`ingest` sends reports through `translate` and `packing` to the log, `event_streams` shows through
`observed` what is in it; `servicer` puts the eight calls together. `following` keeps the views current, one
set of `replica`s for each of the `generations` of the layout that are followed; it tells the log what hints
used (`crediting`) and answers self-tests (`probing`). `views` is all that the calls know of it. `serve`
is the process around them.
"""
