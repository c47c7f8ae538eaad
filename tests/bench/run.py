"""`make bench`: Omniloom against `transformers` in alternating launches. Prints a table, writes bench.json; README.md says what and how."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import launch  # noqa: E402
import make_data  # noqa: E402
import rows  # noqa: E402

PARTS = ("lm", "vlm", "mixture", "compile", "start", "ranks", "checkpoint", "pieces")
RUNS = 5
CASE_METRICS = (rows.NON_GEMM, rows.TOKENS, rows.MEMORY)
# Seconds of one launch on two cores of a common server, for the estimate that is printed first.
COST = {"lm ours": 19, "lm eager": 30, "lm compiled": 55, "vlm ours": 20, "vlm eager": 33, "vlm compiled": 60, "mixture ours": 30,
        "mixture padded": 62, "mixture by length": 45, "mixture per sequence": 45, "start lm ours": 6, "start lm peer": 7,
        "start vlm ours": 6, "start vlm peer": 8, "rate ours": 4, "rate peer": 4}
PIECES_COST = 90


class Contest:
    """Sides that are launched in turn; the first one is ours."""

    def __init__(self, name, sides, metrics):
        self.name, self.sides, self.metrics = name, sides, metrics  # sides: {label: (peer's name, launch(round))}
        self.results = {label: [] for label in sides}

    def against(self, peer):
        """The same contest with only those peers whose name contains the text; None when there is none."""
        ours, *peers = self.sides
        chosen = [label for label in peers if peer in self.sides[label][0]]
        return Contest(self.name, {label: self.sides[label] for label in [ours, *chosen]}, self.metrics) if chosen else None

    def cost(self, runs):
        return runs * sum(COST.get(label, 30) for label in self.sides)

    def rows(self):
        ours, *peers = self.sides
        out = []
        for label in peers:
            if self.results[ours] and self.results[label]:
                out += rows.compare(self.name, self.metrics, self.results[ours], self.results[label], self.sides[label][0])
        return out


def contests(machine, parts):
    out = []
    for case, peer_case in (("lm", "llm"), ("vlm", "vlm")):
        sides = {f"{case} ours": ("", lambda turn, case=case: machine.ours(case))}
        if case in parts:
            sides[f"{case} eager"] = (rows.EAGER, lambda turn, peer=peer_case: machine.peer(peer, "--profile", "0"))
        if "compile" in parts:
            sides[f"{case} compiled"] = (rows.COMPILED, lambda turn, peer=peer_case: machine.peer(peer, "--profile", "0", "--steps", "2", "--compile"))
        if len(sides) > 1:
            out.append(Contest(case, sides, CASE_METRICS))
    if "mixture" in parts:
        # Profiled steps cost as much as measured ones, so each launch has two of the eight batches.
        def peer(case):
            return lambda turn: machine.peer(case, "--steps", "1", "--profile", f"{2 * turn % 8},{(2 * turn + 1) % 8}")
        out.append(Contest("mixture", {"mixture ours": ("", lambda turn: machine.ours("mixture")),
                                       "mixture padded": (rows.PADDED, peer("mix_pad")),
                                       "mixture by length": (rows.BY_LENGTH, peer("mix_group")),
                                       "mixture per sequence": (rows.PER_SEQUENCE, peer("mix_flat_loop"))}, CASE_METRICS))
    if "start" in parts:
        for case, peer_case in (("lm", "llm"), ("vlm", "vlm")):
            out.append(Contest(case, {f"start {case} ours": ("", lambda turn, case=case: machine.ours_start(case)),
                                      f"start {case} peer": (rows.EAGER, lambda turn, peer=peer_case: machine.peer(peer, "--start-only"))},
                               (rows.START,)))
    if "ranks" in parts:
        metrics = (rows.TOKENS, rows.WIRE, rows.MEMORY)
        out.append(Contest("2 ranks", {"2 ranks ours": ("", lambda turn: machine.our_ranks()),
                                       "2 ranks fsdp": (rows.FSDP, lambda turn: machine.peer_ranks()),
                                       "2 ranks silent": (rows.SILENT, lambda turn: machine.our_silent_ranks())}, metrics))
        out.append(Contest("2 ranks, weights kept",
                           {"2 ranks ours kept": ("", lambda turn: machine.our_ranks("parallel.gather=step")),
                            "2 ranks fsdp kept": (rows.FSDP_KEEP, lambda turn: machine.peer_ranks("--keep")),
                            "2 ranks silent again": (rows.SILENT, lambda turn: machine.our_silent_ranks())}, metrics))
    if "checkpoint" in parts:
        out.append(Contest("checkpoint", {"checkpoint ours": ("", lambda turn: machine.our_checkpoint()),
                                          "checkpoint dcp": (rows.DCP, lambda turn: machine.peer_checkpoint())},
                           (rows.STALL, rows.DISK, rows.LOAD)))
    if "pieces" in parts:
        out.append(Contest("gemm", {"rate ours": ("", lambda turn: machine.our_rate()),
                                    "rate peer": ("torch.matmul", lambda turn: machine.peer_rate())}, (rows.RATE,)))
    return out


def say(text):
    print(text, flush=True)


def told(result):
    """One launch in a few words."""
    if "rate" in result:
        return f"{result['rate'] / 1e9:.0f} GFLOP/s"
    if rows.STALL in result:
        return f"stall {result[rows.STALL] * 1e3:.0f} ms, on disk after {result[rows.DISK]:.2f} s, load {result[rows.LOAD]:.2f} s"
    if "seconds" not in result:
        return f"{result['startup_seconds']:.2f} s to step 1"
    words = [f"{sum(result['seconds']) / len(result['seconds']):.3f} s a step"]
    if result["products"]:
        words.append(f"{statistics.mean(result['products'].values()):.3f} s of it products")
    return ", ".join(words)


def run_contest(contest, runs, machine, failures):
    labels = list(contest.sides)
    for turn in range(runs):
        for label in labels if turn % 2 == 0 else reversed(labels):
            begin = time.monotonic()
            try:
                result = contest.sides[label][1](turn)
            except launch.Failed as error:
                failures.append(label)
                say(f"  {label} {turn + 1}/{runs}: FAILED: {error}")
                continue
            contest.results[label].append(result)
            say(f"  {label} {turn + 1}/{runs}: {told(result)} · others used {machine.foreign[-1]:.2f} cores · {time.monotonic() - begin:.0f} s")


def run_pieces(programs, threads, quick, failures):
    out = []
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    for program in programs:
        say(f"  {os.path.basename(program)}")
        command = [program, "--benchmark_format=json", f"--benchmark_min_time={0.05 if quick else 0.2}",
                   f"--benchmark_repetitions={3 if quick else 5}", "--benchmark_enable_random_interleaving=true"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            failures.append(program)
            say(done.stderr[-1500:])
            continue
        out += rows.pieces(json.loads(done.stdout))
    return out


def parameters(results):
    """What both sides call the number of their parameters: from the head of our run, and counted by the peer."""
    ours = re.search(r"([\d.]+)([KMB]) trainable", results[0][0]["log"]) if results[0] else None
    if ours is None or len(results) < 2 or not results[1]:
        return ""
    count, theirs = float(ours[1]) * {"K": 1e3, "M": 1e6, "B": 1e9}[ours[2]], results[1][0]["params"]
    return f"{ours[1]}{ours[2]} and {theirs:,} parameters, {'equal within 1 %' if abs(count / theirs - 1) <= 0.01 else 'NOT THE SAME MODEL'}"


def read_json(path):
    try:
        with open(path, encoding="utf-8") as text:
            return json.load(text)
    except (OSError, ValueError):
        return []


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build", help="folder with bin/omniloom and the benches")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and transformers")
    parser.add_argument("--only", default="", help="parts, separated by commas: " + ", ".join(PARTS))
    parser.add_argument("--peer", default="", help="only peers whose name contains this, such as 'per sequence'")
    parser.add_argument("--runs", type=int, default=RUNS, help="launches of each side")
    parser.add_argument("--threads", type=int, default=2, help="compute threads of both sides")
    parser.add_argument("--patience", type=float, default=20, help="most seconds to wait for a quiet machine before each launch")
    parser.add_argument("--out", default="bench.json")
    args = parser.parse_args()
    args.parts = [part for part in re.split(r"[,\s]+", args.only) if part] or list(PARTS)
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part '{unknown[0]}'; expected some of {', '.join(PARTS)}")
    if args.runs < 1:
        parser.error("--runs: at least 1")
    return args


def main():
    args = parse_args()
    binaries = os.path.join(os.path.abspath(args.build), "bin")
    pieces = "pieces" in args.parts and any(args.peer in name for name in rows.PEER_PIECES.values())
    programs = sorted(os.path.join(binaries, name) for name in os.listdir(binaries) if name.endswith("_bench")) if pieces else []
    failures, begin = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="omniloom-bench-") as data:
        make_data.write(data)
        machine = launch.Machine(os.path.join(binaries, "omniloom"), args.python, data, args.threads, args.patience)
        contest_list = list(filter(None, (contest.against(args.peer) for contest in contests(machine, args.parts))))
        if not contest_list and not programs:
            sys.exit(f"bench: no peer '{args.peer}' in {', '.join(args.parts)}")
        cost = sum(contest.cost(args.runs) for contest in contest_list) + PIECES_COST * bool(programs)
        say(f"bench: {', '.join(args.parts)} · {args.runs} launches of each side · {args.threads} threads · about {cost / 60:.0f} minutes")
        out, remarks = [], []
        for contest in contest_list:
            say(f"{contest.name}: {', '.join(contest.sides)}")
            run_contest(contest, args.runs, machine, failures)
            out += contest.rows()
            if contest.metrics is CASE_METRICS:
                remarks.append(f"{contest.name}: {parameters(list(contest.results.values()))}")
                if not any(row["metric"] == rows.NON_GEMM and row["name"] == contest.name for row in out):
                    remarks.append(f"{contest.name}: no time of matrix products was told, so there is no row for the rest of a step")
        if programs:
            say("pieces")
            out += [row for row in run_pieces(programs, args.threads, args.runs < RUNS, failures) if args.peer in row["peer_name"]]
    whole = rows.merged(read_json(args.out) if args.peer or len(args.parts) < len(PARTS) else [], out)
    with open(args.out, "w", encoding="utf-8") as text:
        text.write("[\n" + ",\n".join(json.dumps(row) for row in whole) + "\n]\n")
    say("")
    for line in rows.table(out, RUNS) + [""] + remarks:
        say(line)
    if machine.foreign:
        busy = f"others used {statistics.median(machine.foreign):.2f} cores (median of launches), {max(machine.foreign):.2f} at most"
        say(busy + ("; these figures are of a busy machine" if statistics.median(machine.foreign) > 0.15 else ""))
    if args.runs < RUNS:
        say(f"a quick look: {args.runs} launches of each side, {RUNS} are asked for")
    say(f"{args.out} · {(time.monotonic() - begin) / 60:.0f} minutes" + (f" · {len(failures)} launches FAILED" if failures else ""))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
