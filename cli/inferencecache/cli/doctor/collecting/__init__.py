"""Asking: the cluster, NATS, a router, and pages of engines. Nothing is written anywhere.

Each part gives facts whatever happens; what could not be asked says why in their place.
"""
