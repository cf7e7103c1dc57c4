"""A worker process: `python -m undrift.engine.worker FD PARENT`. It is started by this entry point and never forked, so
a plain script or a notebook needs no `__main__` guard. It ends when its parent ends, however that happens."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
from multiprocessing.connection import Connection

STOP = b""


def main() -> None:
    pipe = Connection(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    with contextlib.suppress(OSError, AttributeError):  # elsewhere the end of the pipe ends the worker
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the parent
    with contextlib.suppress(OSError, AttributeError):  # a worker that wakes up does not take its parent's core
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if os.getppid() != int(sys.argv[2]):
        sys.exit(0)

    import torch

    torch.set_num_threads(1)
    from undrift.engine.arena import Arena, MappedBlocks, mapped_tensors, pack, unpack
    from undrift.engine.payload import open_runtime
    from undrift.round.lockstep.serve import serve_chunk

    blocks, arena = MappedBlocks(), Arena()
    runtime = None
    exchange = -1
    while True:
        try:
            data = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        if data == STOP:
            return
        kind, number, content = unpack(data, blocks)
        if kind == "runtime":
            runtime = open_runtime(content | {"frozen": mapped_tensors(content["frozen"])})
            blocks.forget()
            gc.freeze()  # what is there now stays: the collector need not look at it in every round
            pipe.send_bytes(pack(("ready", number, None), arena))
            continue
        if number != exchange:
            arena.turn()
            exchange = number
        assert runtime is not None
        replies = serve_chunk(runtime, content)
        packed = pack(("done", number, replies), arena)
        arena.forget()
        del replies, content  # their tensors are in the arena: the originals would stay until the next message
        try:
            pipe.send_bytes(packed)
        except (BrokenPipeError, OSError):
            return


if __name__ == "__main__":
    main()
