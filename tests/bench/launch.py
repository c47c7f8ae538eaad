"""One launch of either side, as a process of its own, with what the machine was like meanwhile.

Ours is the program itself on a recipe; its numbers come from the run's metrics.jsonl. The peer prints one JSON line."""

import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import quiet  # noqa: E402
import rows  # noqa: E402
import workload  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS, RANK_STEPS = 2, 6  # processes, and steps that each launch of them measures
WARM = 2  # steps before the measured ones, on both sides


class Failed(Exception):
    """A launch that gave no result; its text is the end of what the process said."""


class Machine:
    """Where things are, and how long to wait for quiet before each launch."""

    def __init__(self, program, python, data, threads=2, patience=20.0):
        self.program, self.python, self.data, self.threads, self.patience = program, python, data, threads, patience
        self.foreign = []  # cores that others used, of each launch

    def run(self, command, timeout=900):
        """Output of a process that ended well, measured against the rest of the machine."""
        threads = str(self.threads)
        environment = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, BENCH_DATA=self.data, TOKENIZERS_PARALLELISM="false")
        quiet.wait(self.patience)
        meter = quiet.Meter()
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=timeout, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(str(error)) from error
        self.foreign.append(meter.foreign())
        return done

    def train(self, case, steps, *more):
        """Lines of metrics.jsonl of a run, and what it printed."""
        with tempfile.TemporaryDirectory(prefix="omniloom-bench-") as folder:
            run = os.path.join(folder, "run")
            recipe = os.path.join(HERE, "recipes", case + ".yaml")
            done = self.run([self.program, "train", recipe, "--run", run, f"train.steps={steps}", f"train.threads={self.threads}", *more])
            if done.returncode != 0:
                raise Failed((done.stderr + done.stdout)[-1500:])
            with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
                return [json.loads(line) for line in lines], done.stdout + done.stderr

    def ours(self, case, measured=3):
        """A training run of WARM + measured steps; of the mixture every batch is measured once."""
        if case == "mixture":
            measured = len(workload.useful_tokens(case))
        return read_steps(case, *self.train(case, WARM + measured))

    def ours_start(self, case):
        steps, _ = self.train(case, 1)
        return {"startup_seconds": steps[0]["startup_seconds"]}

    def peer(self, case, *flags):
        done = self.run([self.python, os.path.join(HERE, "peer.py"), "--case", case, "--threads", str(self.threads), "--warm", str(WARM), *flags])
        # A process that failed while it ended has told its numbers all the same.
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            raise Failed(done.stderr[-1500:])
        return json.loads(lines[-1])

    def our_ranks(self, *overrides):
        """The language model on two processes of one thread each, two sequences each."""
        steps, log = self.train("lm", WARM + RANK_STEPS, "--nproc", str(RANKS), "train.threads=1",
                                f"data.budget={workload.SEQUENCE * workload.SEQUENCES // RANKS}", *overrides)
        measured = steps[WARM:]
        return {"useful": workload.useful_tokens("lm"), "seconds": [statistics.median(step["seconds"] for step in measured)],
                "products": {}, "profiled": {}, "rss_peak": steps[-1]["rss_peak"], "log": log,
                "wire": statistics.mean(step["bytes_sent"] for step in measured)}

    def our_checkpoint(self):
        """Saves every second step while it trains, then goes on from the last one."""
        with tempfile.TemporaryDirectory(prefix="omniloom-bench-") as folder:
            run = os.path.join(folder, "run")
            command = [self.program, "train", os.path.join(HERE, "recipes", "lm.yaml"), "--run", run, "--nproc", str(RANKS), "train.threads=1",
                       f"data.budget={workload.SEQUENCE * workload.SEQUENCES // RANKS}", "checkpoint.every=2", "checkpoint.keep=1"]
            resumed = [self.program, "train", "--resume", run, "--nproc", str(RANKS), "train.steps=10"]
            for each in ([*command, "train.steps=9"], resumed):
                done = self.run(each)
                if done.returncode != 0:
                    raise Failed((done.stderr + done.stdout)[-1500:])
            with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
                steps = [json.loads(line) for line in lines]

        def told(name):
            values = [step[name] for step in steps if name in step]
            if not values:
                raise Failed(f"checkpoint: no {name} in metrics.jsonl")
            return statistics.median(values)
        return {rows.STALL: told("save_stall_seconds"), rows.DISK: told("save_seconds"), rows.LOAD: told("load_seconds")}

    def peer_checkpoint(self):
        with tempfile.TemporaryDirectory(prefix="omniloom-bench-") as folder:
            result = self.peer_ranks("--checkpoint", folder)
        # All of a synchronous save stalls training; the asynchronous one is told in its own fields.
        return result | {rows.STALL: result["save"], rows.DISK: result["save"], rows.LOAD: result["load"]}

    def our_silent_ranks(self):
        """The same work by as many processes that do not know of each other."""
        with tempfile.TemporaryDirectory(prefix="omniloom-bench-") as folder:
            runs = [os.path.join(folder, str(rank)) for rank in range(RANKS)]
            each = workload.SEQUENCES // RANKS
            commands = [[self.program, "train", os.path.join(HERE, "recipes", "lm.yaml"), "--run", run, f"train.steps={WARM + RANK_STEPS}",
                         "train.threads=1", f"train.batch={each} samples", f"data.budget={workload.SEQUENCE * each}"] for run in runs]
            self.run(["/bin/sh", "-c", " & ".join(" ".join(f"'{word}'" for word in command) for command in commands) + " & wait"])
            seconds = []
            for run in runs:
                with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
                    seconds.append([json.loads(line)["seconds"] for line in lines][WARM:])
        return {"useful": workload.useful_tokens("lm"), "seconds": [statistics.median(map(max, zip(*seconds)))], "products": {},
                "profiled": {}, "rss_peak": 0, "wire": 0}

    def peer_ranks(self, *flags):
        done = self.run([self.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "--",
                         os.path.join(HERE, "peer_ranks.py"), "--warm", str(WARM), "--steps", str(RANK_STEPS), *flags])
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            raise Failed(done.stderr[-1500:])
        return json.loads(lines[-1])

    def our_rate(self):
        done = self.run([self.program, "env", "--json"])
        if done.returncode != 0:
            raise Failed(done.stderr[-1500:])
        return {"rate": json.loads(done.stdout)["peak_flops"]["fp32"]}

    def peer_rate(self):
        return {"rate": self.peer("llm", "--peak")["peak_flops"]}


def read_steps(case, steps, log=""):
    """A launch from the lines of metrics.jsonl. A step whose tokens are not the peer's would make the comparison worthless."""
    useful = workload.useful_tokens(case)
    measured = steps[WARM:]
    for number, step in enumerate(measured):
        wanted = useful[number % len(useful)]
        if step["tokens"] != wanted:
            raise Failed(f"{case}: step {step['step']} had {step['tokens']} tokens, the peer's has {wanted}")
    batches = [measured[i::len(useful)] for i in range(len(useful))]
    known = all("time/gemm" in step for step in measured)
    out = {"useful": useful, "rss_peak": steps[-1]["rss_peak"], "seconds": [], "products": {}, "profiled": {}, "log": log,
           "startup_seconds": steps[0].get("startup_seconds")}
    for number, batch in enumerate(batches):
        out["seconds"].append(statistics.median(step["seconds"] for step in batch))
        if known:
            out["products"][number] = sum(step["time/gemm"] for step in batch)
            out["profiled"][number] = sum(step["seconds"] for step in batch)
    return out
