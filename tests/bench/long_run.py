"""The recipe of the picture model for some minutes, on JPEG files that are decoded while it trains: does reading ahead disturb it?

long_run.py --build build [--minutes 10]. Passes when no more than 1 % of the time of steps was spent waiting for data, and no step took
more than 1.5 times the median of the steps with about as many tokens. Needs Pillow, to write the files."""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_data  # noqa: E402
import quiet  # noqa: E402
import workload  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PICTURES, SIDE = 500, 512
WARM = 3  # steps that do not count: memory and caches fill
BIN = 12  # steps of about as many tokens, at least
MOST_WAIT, MOST_SLOWER = 0.01, 1.5


def write_pictures(folder, seed=0):
    """JPEG files with smooth colours, edges and noise, some 70 KB each, and long.jsonl with captions of several lengths."""
    from PIL import Image
    rng = random.Random(seed)
    lines = []
    for i in range(PICTURES):
        small = Image.frombytes("RGB", (16, 16), rng.randbytes(16 * 16 * 3)).resize((SIDE, SIDE), Image.BICUBIC)
        noise = Image.frombytes("RGB", (SIDE, SIDE), rng.randbytes(SIDE * SIDE * 3))
        Image.blend(small, noise, 0.08).save(os.path.join(folder, f"{i}.jpg"), quality=90)
        lines.append({"image": f"{i}.jpg", "caption": make_data.text(rng, rng.randrange(40, 2 * workload.CAPTION_TOKENS - 40))})
    make_data.write_lines(os.path.join(folder, "long.jsonl"), lines)


def figures(steps):
    """What is judged, from the lines of metrics.jsonl."""
    steps = steps[WARM:]
    ordered = sorted(steps, key=lambda step: step["tokens"])
    count = max(1, len(ordered) // BIN)
    slowest = None
    for i in range(count):
        alike = ordered[i * len(ordered) // count:(i + 1) * len(ordered) // count]
        median = statistics.median(step["seconds"] for step in alike)
        for step in alike:
            ratio = step["seconds"] / median
            if slowest is None or ratio > slowest["ratio"]:
                slowest = {"step": step["step"], "ratio": ratio, "seconds": step["seconds"], "tokens": step["tokens"], "median": median}
    seconds = sum(step["seconds"] for step in steps)
    return {"steps": len(steps), "bins": count, "seconds": seconds, "median": statistics.median(step["seconds"] for step in steps),
            "wait": sum(step["data_seconds"] for step in steps) / seconds, "slowest": slowest,
            "slower": sum(step["seconds"] > 1.2 * statistics.median(s["seconds"] for s in steps) for step in steps)}


def faults(found):
    out = []
    if found["wait"] >= MOST_WAIT:
        out.append(f"{found['wait']:.2%} of the time of steps was spent waiting for data; less than {MOST_WAIT:.0%} is asked for")
    slowest = found["slowest"]
    if slowest["ratio"] > MOST_SLOWER:
        out.append(f"step {slowest['step']} took {slowest['seconds']:.2f} s for {slowest['tokens']} tokens, {slowest['ratio']:.2f} times the median "
                   f"of its like; at most {MOST_SLOWER} is asked for")
    return out


def train(args, folder):
    """Trains until the time is over; returns the lines of metrics.jsonl."""
    run = os.path.join(folder, "run")
    recipe = os.path.join(HERE, "recipes", "vlm.yaml")
    command = [os.path.join(args.build, "bin", "omniloom"), "train", recipe, "--run", run, "train.steps=1000000", "data.shuffle=true",
               "data.train.0.path=" + os.path.join(folder, "long.jsonl"), "data.budget=2560", f"train.threads={args.threads}", *args.set]
    with open(os.path.join(folder, "log.txt"), "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ, OMP_NUM_THREADS=str(args.threads), BENCH_DATA=folder))
        try:
            process.wait(args.minutes * 60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            process.wait(300)
        finally:
            process.kill()
            code = process.wait()
    if code not in (0, 143):
        with open(os.path.join(folder, "log.txt"), encoding="utf-8", errors="replace") as text:
            print(text.read()[-1500:], file=sys.stderr)
        raise SystemExit(5)
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], help="a key of the recipe, such as data.workers=1")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="omniloom-bench-") as folder:
        write_pictures(folder)
        print(f"long run: {PICTURES} JPEG files of {SIDE}x{SIDE} · {args.minutes:g} minutes", flush=True)
        meter = quiet.Meter()
        begin = time.monotonic()
        steps = train(args, folder)
        foreign = meter.foreign()
    if len(steps) < WARM + BIN:
        print(f"only {len(steps)} steps; more minutes are needed", file=sys.stderr)
        return 5
    found = figures(steps)
    slowest = found["slowest"]
    print(f"{found['steps']} steps in {time.monotonic() - begin:.0f} s · {found['median']:.3f} s a step (median) · {found['slower']} above 1.2 times "
          f"the median\nwaiting for data {found['wait']:.3%} · slowest for its tokens: step {slowest['step']}, {slowest['ratio']:.3f} times the median "
          f"of {found['bins']} bins\nothers used {foreign:.2f} cores")
    problems = faults(found)
    for problem in problems:
        print("NOT met: " + problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
