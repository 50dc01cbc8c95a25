"""What `inferencecache replay` does around `core.replay`: where bases and messages come from, and how
answers are shown.

A `source` is the live log (`live`) or a slice in a file (`sliced`); `run` takes a partition from a base of
its source to a point.
"""
