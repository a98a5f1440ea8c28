"""Where measured ceilings are kept: one file a GPU name in the user's data folder, so that a report read on another
machine finds them by the name that it states."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import platformdirs

from diagnose.ceilings import record
from diagnose.ceilings.record import Record
from diagnose.errors import DiagnoseError
from diagnose.gpus import catalogue
from diagnose.gpus.catalogue import Product


def folder() -> Path:
    """Where `diagnose ceilings` stores; safe to delete."""
    return platformdirs.user_data_path("diagnose", appauthor=False) / "ceilings"


def path_of(gpu: str) -> Path:
    """The file of the GPU that the driver calls `gpu`."""
    return folder() / (re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")[:100] + ".json")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)  # at once: a reader sees the old file or the new one
    except OSError as error:
        raise DiagnoseError(
            f"cannot write {path}: {error.strerror or error}", "XDG_DATA_HOME=DIR diagnose ceilings"
        ) from None


def save(found: Record) -> Path:
    """Stores the record in place of an earlier one of the same GPU name."""
    path = path_of(found.gpu)
    _write(path, record.dump(found))
    load.cache_clear()
    return path


def export(found: Record, path: Path) -> None:
    """Writes the form that the project ships: the record without what names the very card."""
    _write(path, record.dump(replace(found, uuid=None)))


@cache
def load(gpu: str) -> Record | None:
    """The stored record of the GPU of that name, or None. Raises DiagnoseError where the file is damaged."""
    path = path_of(gpu)
    if not path.is_file():
        return None
    found = record.read(path)
    return found if found.gpu == gpu else None


def of_product(product: Product) -> Record | None:
    """The stored record of any GPU that is this product: the driver has more than one name for some."""
    for path in sorted(folder().glob("*.json")) if folder().is_dir() else ():
        found = record.read(path)
        sm = found.arch.removeprefix("sm_")
        if sm.isdigit() and catalogue.product(found.gpu, int(sm)) == product:
            return found
    return None
