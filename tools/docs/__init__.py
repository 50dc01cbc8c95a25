"""The documentation site: its generated pages and pictures, and how it is built."""
