"""Load for the local system, and what is learned from it.

Users hold conversations whose prompts grow (`conversations`). Each turn goes, at the same moment, to
the engine that a router's hint names (`hints`, `choice`) and to the next engine of a control group
that is served round robin; the driver (`driver`) counts both (`figures`). A probe measures how long an
engine's event takes to show in a router's answers (`probe`), and the routers are asked how old their
views are (`views`).
"""
