"""Roles use filters of the collection: their tests import them as Ansible does."""

from __future__ import annotations

from ..plugins.importable import make_importable

make_importable()
