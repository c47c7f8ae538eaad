"""Ranks as processes, started the way launchers do: by variables. Shared by scripts that look at every rank by itself."""

import os
import socket
import subprocess

import program


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Rank:
    def __init__(self, number, world, port, log, args, limit=None, extra=None):
        self.number = number
        self.log = log
        places = {"RANK": number, "WORLD_SIZE": world, "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": world, "ADDRESS": "127.0.0.1",
                  "PORT": port}
        env = dict(os.environ, OMP_NUM_THREADS="1", **{"OMNILOOM_" + name: str(value) for name, value in places.items()}, **(extra or {}))
        with open(log, "wb") as out:
            self.process = subprocess.Popen([program.PROGRAM, *args], stdout=out, stderr=out, env=env, preexec_fn=limit)

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as lines:
            return lines.read()

    def last_line(self):
        lines = [line for line in self.text().replace("\r", "\n").splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def wait(self, seconds=120):
        return self.process.wait(seconds)


def start(folder, world, args, port=None, limits=None, extra=None, own_args=None):
    """`limits`, `extra` and `own_args`: by rank; what is run before the program, variables, and arguments."""
    port = port or free_port()
    return [Rank(r, world, port, os.path.join(folder, f"rank-{r}.log"), (own_args or {}).get(r, args), (limits or {}).get(r),
                 (extra or {}).get(r)) for r in range(world)]


def end(ranks):
    for rank in ranks:
        if rank.process.poll() is None:
            rank.process.kill()
        rank.process.wait()


def train(folder, world, args):
    """Runs to the end; returns the text of rank 0."""
    ranks = start(folder, world, args)
    try:
        for rank in ranks:
            code = rank.wait(300)
            assert code == 0, (rank.number, code, rank.text())
    finally:
        end(ranks)
    return ranks[0].text()
