"""Hostile inputs for whatever reads bytes from outside, one target each.

A target is a function of bytes that raises when the product does what it must not: `TARGET.run` of the
modules that `campaign.NAMES` names. `make test` runs each for a few seconds, `make fuzz SECONDS=600` for
longer. The functions fit coverage-guided fuzzers too, as in `atheris.Setup(sys.argv, TARGET.run)`.
"""
