"""A changing mix on layouts of their own against one shared layout without balance: `make bench-mix`.

The recipe is omni_toy (pictures of heavy-tailed sizes, texts); the share of pictures goes from 1:9 to 9:1. Every run is a training of
a few steps on 4 ranks in one process (--loopback); what counts is the critical path, the sum over steps of the largest processor time of
a rank, since ranks share cores here. With --wall two pinned processes are timed, too. Each part of ours is switched off alone. At the
end the planner runs in virtual time on worlds that are not here, by the seconds per unit of cost that were measured: those numbers are
simulated and say so."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RECIPE = os.path.join(ROOT, "configs", "recipes", "omni_toy.yaml")
SAME = ["parallel.balance.move=false", "parallel.balance.split=false", "parallel.balance.pack=false"]
ENCODERS = ("image", "photo")


def for_encoders(*settings):
    return [f"parallel.encoders.{name}.{setting}" for name in ENCODERS for setting in settings]


def sides(world):
    """{name: overrides}: one shared layout, ours, and ours without a part."""
    own = for_encoders(f"sp={world}", "attention=ring", "macro=0", "ahead=true")
    return {
        "shared": SAME,
        "ours": own,
        "without layouts": for_encoders("macro=0", "ahead=true"),
        "without balance": own + ["parallel.balance.move=false"],
        "without LSSP": own + ["parallel.balance.split=false"],
        "without packing": own + ["parallel.balance.pack=false"],
        "without macro batches": own + for_encoders("macro=1"),
        "without run-ahead": own + for_encoders("ahead=false"),
    }


class Machine:
    def __init__(self, program, folder, steps, batch):
        self.program, self.folder, self.steps, self.batch = program, folder, steps, batch
        self.count = 0

    def run(self, pictures, overrides, ranks, before=()):
        """Lines of metrics.jsonl and of ranks.jsonl."""
        self.count += 1
        run = os.path.join(self.folder, str(self.count))
        # A tenth of the pictures are small ones.
        mix = f"data.mix=[{{weights: {{photos: {pictures * 9}, words: {100 - pictures * 10}, clothes: {pictures}}}}}]"
        command = [*before, self.program, "train", RECIPE, "--run", run, *ranks, f"train.steps={self.steps}", f"train.batch={self.batch} samples",
                   "eval.every=0", "checkpoint.every=0", "train.threads=1", "train.warmup=1", mix, *overrides]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
        return tuple(lines(os.path.join(run, name)) for name in ("metrics.jsonl", "ranks.jsonl"))


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def steady(metrics, key):
    return [line[key] for line in metrics[1:]]  # the first step is slow


def critical(metrics):
    return statistics.mean(steady(metrics, "critical_path"))


def imbalance(metrics, component):
    values = [line[f"imbalance_measured/{component}"] for line in metrics[1:] if f"imbalance_measured/{component}" in line]
    return statistics.median(values) if values else float("nan")


def seconds_per_cost(ranks, component):
    """Of a forward and its backward."""
    cost = seconds = 0.0
    for line in ranks[1:]:
        part = line["components"].get(component)
        if part is not None:
            cost += sum(part["predicted"])
            seconds += sum(part["compute"])
    return seconds / cost if cost else 0.0


def sweep(machine, mixes, turns):
    names = list(sides(4))
    print(f"critical path of a step on 4 ranks, shared layout over each (above 1: faster than shared); medians of {turns} turns")
    print("pictures:text  " + "  ".join(f"{name:>21}" for name in names) + "   photo imbalance, shared -> ours")
    rates = []
    out = []
    for pictures in mixes:
        paths = {name: [] for name in names}
        uneven = {"shared": [], "ours": []}
        for turn in range(turns):
            for name in names if turn % 2 == 0 else reversed(names):
                metrics, ranks = machine.run(pictures, sides(4)[name], ["--loopback", "4"])
                paths[name].append(critical(metrics))
                if name in uneven:
                    uneven[name].append(imbalance(metrics, "encoders.photo"))
                if name == "ours":
                    rates.append((seconds_per_cost(ranks, "encoders.photo"), seconds_per_cost(ranks, "backbone")))
        middle = {name: statistics.median(values) for name, values in paths.items()}
        gains = {name: middle["shared"] / value for name, value in middle.items()}
        print(f"{pictures}:{10 - pictures}            " + "  ".join(f"{gains[name]:>20.2f}x" for name in names)
              + f"   {statistics.median(uneven['shared']):.2f} -> {statistics.median(uneven['ours']):.2f}", flush=True)
        out.append({"pictures": pictures, "critical_path": middle, "gain": gains, "imbalance": {k: statistics.median(v) for k, v in uneven.items()}})
    return out, tuple(statistics.median(values) for values in zip(*rates))


def wall(machine, mixes, turns):
    print(f"wall time of a step, 2 pinned processes, shared over ours; medians of {turns} turns in turn")
    out = []
    for pictures in mixes:
        times = {"shared": [], "ours": []}
        for turn in range(turns):
            for name in times if turn % 2 == 0 else reversed(list(times)):
                metrics, _ = machine.run(pictures, sides(2)[name], ["--nproc", "2"])
                times[name].append(statistics.median(steady(metrics, "seconds")))
        ratio = statistics.median(times["shared"]) / statistics.median(times["ours"])
        print(f"{pictures}:{10 - pictures}            {ratio:.2f}x", flush=True)
        out.append({"pictures": pictures, "ratio": ratio})
    return out


def simulate(build, rates):
    print("SIMULATED: the planner in virtual time by the measured seconds per cost, shared over ours; messages are free")
    done = subprocess.run([os.path.join(build, "bin", "mix_sim"), *(f"{rate:.6g}" for rate in rates)], capture_output=True, text=True, check=True)
    out = [json.loads(line) for line in done.stdout.splitlines()]
    for line in out:
        parts = "  ".join(f"{key.replace('_', ' ')} {value:.2f}x" for key, value in line.items() if key.startswith("without"))
        print(f"{line['world']:>4} ranks  {line['pictures']}:{10 - line['pictures']}  {line['gain']:.2f}x  {parts}  planning {line['planning_ms']:.1f} ms")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--steps", type=int, default=5, help="of each run, the first one not counted")
    parser.add_argument("--batch", type=int, default=48, help="samples of a step")
    parser.add_argument("--turns", type=int, default=3, help="runs of each side")
    parser.add_argument("--mixes", default="1,3,5,7,9", help="pictures of ten samples")
    parser.add_argument("--wall", action="store_true", help="two pinned processes, too")
    parser.add_argument("--out", default="", help="a JSON file of all numbers")
    args = parser.parse_args()
    mixes = [int(mix) for mix in args.mixes.split(",")]
    with tempfile.TemporaryDirectory(prefix="omniloom-mix-") as folder:
        machine = Machine(os.path.join(args.build, "bin", "omniloom"), folder, args.steps, args.batch)
        swept, rates = sweep(machine, mixes, args.turns)
        out = {"critical_path": swept, "seconds_per_cost": dict(zip(("encoder", "backbone"), rates))}
        if args.wall:
            out["wall"] = wall(machine, mixes, args.turns)
        out["simulated"] = simulate(args.build, rates)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(out, file, indent=1)


if __name__ == "__main__":
    main()
