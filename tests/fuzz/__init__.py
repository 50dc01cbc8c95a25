"""Hostile inputs for whatever reads bytes from outside, one target each.

A target is a function of bytes that raises when the product does what it must not: `TARGET.run` of each
module that `campaign.NAMES` names. `make fuzz SECONDS=600` runs all of them, `python -m tests.fuzz records
--seconds 60 --seed 7` one; `--input` and the hexadecimal form that a failure prints run that input again.
The functions fit coverage-guided fuzzers too, as in `atheris.Setup(sys.argv, TARGET.run)`.
"""
