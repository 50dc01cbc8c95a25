"""Phrases of the API that several rules share."""

from __future__ import annotations


def supported(*values: str) -> str:
    """The detail of a NotSupported violation [ADM-09]."""
    return "supported values: " + ", ".join(f'"{value}"' for value in values)
