"""Readers of the canonical public formats: idx, CIFAR's binary version, SVHN's .mat, .npz. Nothing is unpickled.

Images are uint8 (N, C, H, W), labels int64. A file that does not match its format is refused.
"""

from __future__ import annotations

import gzip
import lzma
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from undrift.core.errors import BadRequest
from undrift.core.words import in_short

IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def content(path: Path) -> bytes:
    """The bytes of a file, decompressed if it begins as gzip or xz do."""
    try:
        raw = path.read_bytes()
        if raw[:6] == b"\xfd7zXZ\0":
            return lzma.decompress(raw)
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise BadRequest(f"cannot read {path}: {in_short(error)}; fetch the file again") from None


def idx(path: Path) -> np.ndarray:
    """An idx array, gzipped or plain: two zero bytes, the type, the number of dimensions, their sizes, the values."""
    raw = content(path)
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in IDX_TYPES or len(raw) < 4 + 4 * raw[3]:
        raise BadRequest(f"{path} is not an idx file (its header does not say so); fetch the file again")
    shape = struct.unpack(f">{raw[3]}I", raw[4 : 4 + 4 * raw[3]])
    kind = np.dtype(IDX_TYPES[raw[2]])
    expected = 4 + 4 * raw[3] + int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if len(raw) != expected:
        raise BadRequest(
            f"{path} is truncated or damaged: {len(raw)} bytes where its header says {expected}; fetch it again"
        )
    values = np.frombuffer(raw, kind, offset=4 + 4 * raw[3]).reshape(shape)
    return values.astype(kind.newbyteorder("="))


def idx_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 1, H, W) and labels that belong together."""
    x, y = idx(images), idx(labels)
    if x.ndim != 3 or y.ndim != 1:
        raise BadRequest(
            f"{images} has {x.ndim} dimensions and {labels} {y.ndim}, but images have 3 and labels 1; are they swapped?"
        )
    if len(x) != len(y):
        raise BadRequest(f"{images} has {len(x)} images but {labels} {len(y)} labels; they do not belong together")
    return x[:, None], y.astype(np.int64)


def cifar(paths: list[Path], label_bytes: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR's binary version: per image the label bytes (the last is the fine label), then 3 × 32 × 32 values."""
    size = label_bytes + 3072
    images, labels = [], []
    for path in paths:
        raw = np.frombuffer(content(path), np.uint8)
        if not len(raw) or len(raw) % size:
            raise BadRequest(
                f"{path} is truncated: {len(raw)} bytes are no whole number of records of {size}; fetch it again"
            )
        records = raw.reshape(-1, size)
        images.append(records[:, label_bytes:].reshape(-1, 3, 32, 32))
        labels.append(records[:, label_bytes - 1].astype(np.int64))
    return np.concatenate(images), np.concatenate(labels)


def svhn_mat(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """SVHN's cropped digits: X (32, 32, 3, N), y (N, 1), where the label 10 stands for the digit 0."""
    import scipy.io

    try:
        held = scipy.io.loadmat(str(path), variable_names=("X", "y"))
    except Exception as error:  # scipy raises many types for a damaged file
        raise BadRequest(f"cannot read {path} as a .mat file: {in_short(error)}; fetch the file again") from None
    if "X" not in held or "y" not in held or held["X"].ndim != 4:
        raise BadRequest(f"{path} is not SVHN's cropped format: it must hold X (32, 32, 3, N) and y (N, 1)")
    labels = held["y"].reshape(-1).astype(np.int64)
    if held["X"].shape[-1] != len(labels):
        raise BadRequest(f"{path} has {held['X'].shape[-1]} images but {len(labels)} labels; fetch the file again")
    return np.ascontiguousarray(held["X"].transpose(3, 2, 0, 1)), labels % 10


def npz(path: Path) -> dict[str, np.ndarray]:
    """Every array of an .npz. Object arrays are refused, because reading them could run code from the file."""
    name = ""
    try:
        held = {}
        with path.open("rb") as raw:  # opened here, because np.load does not close a damaged file
            file = np.load(raw, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise BadRequest(f"{path} is a single array, not an .npz; save it with np.savez(x_train=…, y_train=…)")
            for name in file.files:
                held[name] = file[name]
        return held
    except BadRequest:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        if "allow_pickle" in str(error) and name:
            raise BadRequest(
                f"{path} holds the object array {name!r}, which could run code when read and is never unpickled; "
                "save plain numbers or text"
            ) from None
        raise BadRequest(f"cannot read {path} as .npz: {in_short(error)}; write it again with np.savez") from None


def channels_first(x: np.ndarray) -> np.ndarray:
    """Grey (N, H, W) and colour-last (N, H, W, C) images as (N, C, H, W). Other arrays are returned unchanged."""
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[-1] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    return x
