"""What the controller adds to `core.kube`.

`watching` keeps `observed` in line with the cluster, `writing` writes only what differs,
`recording` records Events, and `leases` is who leads.
"""
