"""What people want, brought to routers: policies, tenants, templates and topologies, and who has read them.

`bucket` writes `IC_POLICY`, `propagation` judges whether live routers have read what was written, and a
file for each kind says what is written for its objects and what their status tells.
"""
