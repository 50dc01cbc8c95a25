"""Policy without a cluster: custom resources from files, kept in the policy bucket and resolved there.

`files` reads them, `store` keeps them beside the policy set they resolve to, and `report` says what
is in force.
"""
