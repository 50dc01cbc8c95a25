"""The router as a gateway's endpoint picker, over Envoy's external processing protocol.

For each HTTP request the proxy opens a stream to `processing`. `exchange` is the protocol: what to answer
to which message, and when there is enough to choose by; `choosing` reads the prompt, consults the same
lookup as `LookupRoute` and picks an endpoint; what the engine then answers goes back into later picks.
`endpoint_file` and `kube_endpoints` say which endpoints there are, behind the seam in `sources`; `port`
is the listener around it all.

A gateway never fails a request over a hint. Whatever is wrong here ends in the pick of a less loaded
endpoint, or in no pick at all, which leaves the proxy's own balancing as it would be without us.
"""
