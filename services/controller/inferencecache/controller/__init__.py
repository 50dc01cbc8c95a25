"""The controller: the side of an installation that speaks to the Kubernetes API.

`admission` answers the API server's admission reviews: it completes and judges custom resources and
wires engine pods (`injection`). Everything else is done by the one process that leads (`operating`):
`kube` watches and writes the cluster, `reconciling` decides when an object is looked at, and `backend`,
`pods`, `index` and `intent` are what is made of it. `serve` is the process, `rights` what it may do.
"""
