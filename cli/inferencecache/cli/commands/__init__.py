"""One file for each command: its options, its help, and the call into what does the work."""
