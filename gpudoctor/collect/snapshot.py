"""Snapshots on disk (being written)."""

from __future__ import annotations

from gpudoctor.collect.capture import Snapshot
from gpudoctor.read.source import Folder


def load(folder: Folder) -> Snapshot:
    raise NotImplementedError
