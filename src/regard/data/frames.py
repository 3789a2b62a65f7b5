"""Float frames with lengths as a source, such as speech: read from and written to npz."""

from pathlib import Path

import numpy as np

from regard.data.files import Bad, Report, check_bad, read_npz, readable
from regard.data.pairs import Pairs
from regard.system.files import atomic_file


def read_frames(path: str | Path, *, bad: Bad = "refuse") -> Pairs:
    """Read frames and their targets from an npz file.

    The file holds `frames`, float of shape (sum of lengths, features) one sequence after the other
    or (n, longest, features) padded; `lengths`, whole numbers of shape (n,); `targets`, texts of
    shape (n,). Sequences are numbered from 1 in the report, like lines.
    """
    check_bad(bad)
    frames, lengths, targets = _arrays(readable(path))
    if frames.ndim == 3:
        starts = np.arange(len(frames)) * frames.shape[1]
        room, frames = frames.shape[1], frames.reshape(-1, frames.shape[2])
    else:
        starts, room = np.cumsum(lengths) - lengths, len(frames)
    report = Report(path)
    rows = []
    for start, length, target in zip(starts, lengths, targets, strict=True):
        report.lines += 1
        sequence = frames[start : start + max(length, 0)]  # (length, features)
        if not 0 < length <= room:
            report.add(report.lines, f"a length of {length}")
        elif not str(target).strip():
            report.add(report.lines, "the target is empty")
        elif not np.isfinite(sequence).all():
            report.add(report.lines, "a frame that is not finite")
        else:
            rows.append((sequence, str(target)))
    report.check(bad)
    return Pairs.collect(rows, report)


def write_frames(pairs: Pairs, path: str | Path) -> None:
    """Write pairs of frames and targets to an npz file that `read_frames` reads."""
    with atomic_file(path) as part, part.open("wb") as file:  # savez would append .npz to a name
        np.savez_compressed(
            file,
            frames=np.concatenate(list(pairs.sources)),
            lengths=np.array([len(source) for source in pairs.sources]),
            targets=np.array(list(pairs.targets)),
        )


def _arrays(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    arrays = read_npz(path, ("frames", "lengths", "targets"))
    frames, lengths, targets = (arrays[name] for name in ("frames", "lengths", "targets"))
    if frames.ndim not in (2, 3) or not np.issubdtype(frames.dtype, np.floating):
        raise ValueError(
            f"{path}: frames must be float of shape (total, features) or (n, longest, features), "
            f"got {frames.dtype} of shape {frames.shape}"
        )
    if not np.issubdtype(lengths.dtype, np.integer):
        raise ValueError(f"{path}: lengths must be whole numbers, got {lengths.dtype}")
    if lengths.shape != (len(targets),) or (frames.ndim == 3 and len(frames) != len(lengths)):
        raise ValueError(
            f"{path}: there must be one length and one target for each sequence, got lengths of "
            f"shape {lengths.shape}, targets of shape {targets.shape} and frames of shape "
            f"{frames.shape}"
        )
    if frames.ndim == 2 and lengths.sum() != len(frames):
        raise ValueError(
            f"{path}: the lengths must add up to the {len(frames)} frames, they add up to "
            f"{lengths.sum()}"
        )
    return frames, lengths, targets
