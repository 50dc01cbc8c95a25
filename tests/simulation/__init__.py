"""Deterministic simulation: the product's own processes over an in-memory NATS, under one seed's schedule.

Everything above the client library is the real thing: indexers, routers and sidecars with their machines
and shells. Below it, one event loop with a virtual clock runs all of them (`loop`), `client` and `server`
stand for NATS with JetStream, `engine` for inference engines. A `plan` is a list of what happens when, in
domain words; `world` carries it out, `judge` watches and decides, `shrink` finds the few lines of a failing
plan that matter.
"""
