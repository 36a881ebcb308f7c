"""What a child process does in a test; its module imports little, as that takes time."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection


def hold_a_lock(connection: Connection) -> None:
    """As torch's compiler does in the lock of its progress bar, and then wait to be killed."""
    lock = multiprocessing.RLock()
    connection.send("here")
    time.sleep(3600)
    del lock
