"""The layout of the log as the command line changes it.

`options` reads what was asked for, `store` carries it out, and `report` says how far everybody is.
"""
