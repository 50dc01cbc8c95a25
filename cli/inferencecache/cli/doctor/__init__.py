"""`inferencecache doctor`: what is wrong with an installation, and what to do about it. It changes nothing.

`collecting` asks the cluster, the log, a router and engines, and gives `facts`; `checks` are pure functions
from facts to `findings`, whose codes are all in one table; `output` writes the report. So a check needs
nothing but facts to be tried, and what could not be asked is a fact like others.
"""
