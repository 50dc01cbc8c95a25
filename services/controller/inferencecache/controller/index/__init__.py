"""What is told of the index in Kubernetes, each time from one aggregate [CTL-168]."""
