"""Settings of the streams and buckets of an installation, for every process that may create them."""

from __future__ import annotations

import argparse

import msgspec

from inferencecache.core.service.settings import SettingsParser, at_least


class AssetSettings(msgspec.Struct, frozen=True):
    """`partitions` of a new installation, `replicas` of every stream and bucket."""

    partitions: int = 2
    replicas: int = 1


def add_asset_settings(parser: SettingsParser) -> None:
    """Add the settings of `AssetSettings`."""
    with parser.section("assets", "Streams and buckets that the first process to start creates."):
        parser.setting(
            "--partitions",
            default=2,
            parse=at_least(1),
            help="Partitions of a new installation; an existing one keeps its own.",
        )
        parser.setting(
            "--nats-replicas",
            default=1,
            parse=at_least(1),
            help="Copies of every stream and bucket: 1, or 3 with a NATS cluster of three nodes.",
        )


def asset_settings(args: argparse.Namespace) -> AssetSettings:
    """The settings of `add_asset_settings`."""
    return AssetSettings(args.partitions, args.nats_replicas)
