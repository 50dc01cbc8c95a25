"""From changes to work: who has to look again, one at a time, and again later when it failed.

A controller's decisions are pure functions over what was read; `queue` decides when they are taken,
`statuses` writes those that are a function of their object, and `controllers` is the seam for all.
"""
