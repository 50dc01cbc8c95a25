"""The Kubernetes API as whoever talks to it uses it: the controller, and the command line that only reads.

`access` says where the API is and who we are there, `cluster` holds the connections, `api` reads and
writes objects of the kinds in `kinds`, and the rest is what their documents mean.
"""
