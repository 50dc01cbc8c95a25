"""What hints are worth on real traffic: `make bench-routing`.

A trace of requests (`trace`) is replayed in compressed time through simulated engines (`engine`) by four
policies at once. Round robin and least outstanding need no router (`baselines`). Plain and balanced follow
the hints of one real stack (`stack`): engines publish their events over ZMQ (`publishing`); sidecars, log,
indexers and routers are processes, and the load generator (`replay`, `gateways`) asks the routers in turn.
What was measured (`figures`) is shown as a table, text and a picture (`report`, `plot`), and written into
the documentation by `documented`.
"""
