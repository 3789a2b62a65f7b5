"""What POSIX systems have, each with what serves where it is missing, such as on Windows.

No other file uses a module, function or signal that one system has and another has not.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

_INTERRUPTS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")  # each system has some

INTERRUPTS: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in _INTERRUPTS if hasattr(signal, name)
)
"""The signals by which a process is asked to end."""


def is_hangup(number: int) -> bool:
    """Whether a signal says that the terminal is gone; under nohup it is ignored."""
    return number == getattr(signal, "SIGHUP", None)


def after_fork(function: Callable[[], None]) -> None:
    """Call a function in every child that is forked; a system without fork has none."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def fork_context() -> Any:
    """The context of `multiprocessing` whose processes are forked, or None."""
    if not hasattr(os, "fork") or "fork" not in multiprocessing.get_all_start_methods():
        return None
    return multiprocessing.get_context("fork")


def processors() -> int:
    """The number of processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def raise_file_limit(files: int) -> None:
    """Let this process open so many files at a time, as far as the system allows."""
    try:
        import resource
    except ImportError:  # no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def lock(directory: Path, *, wait: bool) -> Callable[[], None]:
    """Lock a directory against other processes, and return what unlocks it; a kill does too.

    Raises:
        BlockingIOError: without `wait`, if it is locked
    """
    if fcntl is not None:
        handle = os.open(directory, os.O_RDONLY)
        mode = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.flock(handle, mode)
        except BaseException:
            os.close(handle)
            raise
        return lambda: os.close(handle)
    if sys.platform != "win32":
        return lambda: None  # no locks on this system

    import msvcrt
    import time

    file = directory / ".lock"  # Windows locks bytes of files; nobody reads this one
    handle = os.open(file, os.O_RDWR | os.O_CREAT)
    while True:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if not wait:
                os.close(handle)
                raise BlockingIOError(f"{directory} is locked") from error
            time.sleep(0.1)
        else:
            return lambda: os.close(handle)


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a directory where a system can be asked."""
    if path.is_dir() and sys.platform == "win32":
        return
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def start_detached(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a process that no signal to this one reaches; its output is appended to a log.

    Until it ends, `is_running` says so, whatever becomes of this process.
    """
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
    if sys.platform == "win32":
        return subprocess.Popen(
            command, creationflags=subprocess.CREATE_NEW_PROCESS_GROUP, **options
        )
    if fcntl is not None:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the child keeps it
    return subprocess.Popen(command, start_new_session=True, **options)


def is_running(process: int, log: Path) -> bool:
    """Whether a process that `start_detached` has started is still there."""
    if fcntl is not None:
        with log.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False
    if sys.platform != "win32":
        return False

    import ctypes

    synchronize, timed_out = 0x0010_0000, 0x102
    kernel = ctypes.windll.kernel32
    handle = kernel.OpenProcess(synchronize, False, process)
    if not handle:
        return False
    try:
        return kernel.WaitForSingleObject(handle, 0) == timed_out
    finally:
        kernel.CloseHandle(handle)


def can_pause() -> bool:
    """Whether this system can stop a process and let it go on."""
    return hasattr(os, "killpg") and hasattr(signal, "SIGSTOP")


def pause(process: int) -> None:
    """Stop a process of `start_detached`, where `can_pause`."""
    os.killpg(process, signal.SIGSTOP)


def resume(process: int) -> None:
    """Let a process that was paused go on."""
    if can_pause():
        os.killpg(process, signal.SIGCONT)


def interrupt(process: int) -> None:
    """Ask a process of `start_detached` to end, as Ctrl-C does."""
    if hasattr(os, "killpg"):
        os.killpg(process, signal.SIGINT)
    else:
        os.kill(process, getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))
