"""The generated messages and stubs of Envoy's external processing protocol, as far as it is spoken here.

Envoy's own packages for Python either own the import name `envoy` or bring a second library for
messages. The file here has the published package and field numbers, so it speaks with every Envoy.
"""
