"""A long run with everything on: evaluation with generation, saving, the report. It must look flat from outside, and stopping it changes
nothing.

Descriptors, threads and memory are sampled from /proc while it trains. A second run of the same recipe is stopped four times, twice by
SIGTERM and twice by kill -9, and resumed each time: its losses and evaluations are those of the first, bit for bit."""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import own_pictures  # noqa: E402
import program  # noqa: E402

STEPS = 2000 if os.environ.get("OMNILOOM_TEST_FULL") else 200
WINDOWS = 20  # of equal numbers of steps; the first five are warm-up
WARM_UP = WINDOWS // 4
EVALUATION = ("eval_loss", "exact_match")
GROWTH = 0.02, 4 << 20  # of resident memory over the second half: 2 % or 4 MB, whichever is larger


def write_pictures(folder):
    """A folder of pictures with captions, one of them unreadable, and conversations about them."""
    rng = random.Random(3)
    os.makedirs(folder)
    with open(os.path.join(folder, "chat.jsonl"), "w", encoding="utf-8") as chat:
        for i in range(24):
            width, height, channels = rng.randrange(6, 14), rng.randrange(6, 14), rng.choice((1, 3))
            pixels = rng.randbytes(width * height * channels)
            own_pictures.write(os.path.join(folder, f"{i}.png"), own_pictures.png(width, height, pixels, channels))
            with open(os.path.join(folder, f"{i}.txt"), "w", encoding="utf-8") as caption:
                caption.write(f"noise {i}")
            turns = [{"role": "user", "content": "<image>Which?"}, {"role": "assistant", "content": str(i)}]
            chat.write(json.dumps({"messages": turns, "images": [f"{i}.png"]}) + "\n")
    own_pictures.write(os.path.join(folder, "0.png"), b"no picture")


def recipe(folder):
    pictures = os.path.join(folder, "pictures")
    write_pictures(pictures)
    text = program.recipe_text(folder, steps=STEPS, checkpoint=f"{{every: {STEPS // 20}, keep: 2}}")
    text = text.replace("  train: [", f'  train: [{{path: "{pictures}"}}, {{path: "{pictures}/chat.jsonl"}}, ', 1)
    text += f"eval: {{every: {STEPS // 40}, samples: 24, batch: 8, max_new_tokens: 12}}\n"
    path = os.path.join(folder, "recipe.yaml")
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def start(args):
    # Output goes to a file: a pipe that nobody reads would stop the run when it is full.
    log = open(os.path.join(os.path.dirname(args[args.index("--run") + 1] if "--run" in args else args[-1]), "log.txt"), "ab")
    with log:
        return subprocess.Popen([program.PROGRAM, *args], stdout=log, stderr=log, env=dict(os.environ, OMP_NUM_THREADS="1"))


def newest_step(run):
    """The step of the last complete line of the metrics. A resume cuts lines off, so every look begins anew."""
    try:
        with open(os.path.join(run, "metrics.jsonl"), "rb") as lines:
            lines.seek(max(0, lines.seek(0, os.SEEK_END) - 4096))
            text = lines.read()
    except FileNotFoundError:
        return 0
    complete = text[:text.rfind(b"\n") + 1].splitlines()
    try:
        return json.loads(complete[-1])["step"] if complete else 0
    except ValueError:  # just being cut off
        return 0


def sample(pid):
    """(resident bytes, descriptors, threads), or nothing when the process is gone."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as text:
            resident = int(text.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        with open(f"/proc/{pid}/status", encoding="ascii") as text:
            threads = next(int(line.split()[1]) for line in text if line.startswith("Threads:"))
        return resident, len(os.listdir(f"/proc/{pid}/fd")), threads
    except (FileNotFoundError, ProcessLookupError, StopIteration, IndexError):
        return None


def watch(process, run):
    """Samples by window of steps while the process runs."""
    windows = [[] for _ in range(WINDOWS)]
    while process.poll() is None:
        step, seen = newest_step(run), sample(process.pid)
        if seen and 0 < step < STEPS:
            windows[step * WINDOWS // STEPS].append(seen)
        time.sleep(0.005)
    assert process.returncode == 0, process.returncode
    return windows


def check_flat(windows):
    assert all(windows[WARM_UP:]), [len(window) for window in windows]
    # Files are open for moments (a save, an evaluation): what stays open is the least of a window. Threads come and go as little.
    for index, what in ((1, "descriptors"), (2, "threads")):
        least = [min(seen[index] for seen in window) for window in windows if window]
        steady = least[-(WINDOWS - WARM_UP):]
        assert len(set(steady)) == 1, f"{what} are not constant: {least}"
    resident = [statistics.median(seen[0] for seen in window) for window in windows if window]
    middle, end = resident[-(WINDOWS // 2)], max(resident[-2:])
    allowed = max(GROWTH[0] * middle, GROWTH[1])
    # AddressSanitizer keeps freed memory for a while, and finds leaks itself.
    assert end - middle <= allowed or "ASAN_OPTIONS" in os.environ, f"memory grew from {middle} to {end}: {resident}"
    descriptors, threads = (min(seen[index] for seen in windows[-1]) for index in (1, 2))
    print(f"{STEPS} steps, {sum(map(len, windows))} samples: {descriptors} descriptors, {threads} threads, {middle / 1e6:.1f} MB at half, "
          f"{(end - middle) / 1e6:+.2f} MB at the end (allowed {allowed / 1e6:.1f})")


def stop_at(args, run, step, how):
    process = start(args)
    while newest_step(run) < step:
        assert process.poll() is None, f"ended before step {step}"
        time.sleep(0.002)
    process.send_signal(how)
    code = process.wait()
    assert code == (143 if how == signal.SIGTERM else -signal.SIGKILL), code
    return newest_step(run)


def series(run):
    """Per step what must not depend on interruptions, as it was written."""
    kept = ("loss", "grad_norm", "samples", "tokens", "supervised", "skipped", *EVALUATION)
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
        values = [json.loads(line, parse_float=str) for line in lines]
    return {value["step"]: {name: value[name] for name in kept if name in value} for value in values}


def main():
    with program.temp_folder() as folder:
        path = recipe(folder)
        whole, parts = os.path.join(folder, "whole"), os.path.join(folder, "parts")
        check_flat(watch(start(["train", path, "--run", whole]), whole))

        args = ["train", path, "--run", parts]
        last = []  # the steps at which it stopped
        for number, how in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL), start=1):
            last.append(stop_at(args, parts, number * STEPS // 5 + 1, how))
            args = ["train", "--resume", parts]
        process = start(args)
        assert process.wait() == 0
        wanted, found = series(whole), series(parts)
        assert list(wanted) == list(range(1, STEPS + 1)), "steps are missing"
        for step in last:  # an evaluation that a signal cuts short is left out of the metrics
            if "eval_loss" not in found[step]:
                wanted[step] = {name: value for name, value in wanted[step].items() if name not in EVALUATION}
        assert list(found) == list(wanted), "steps are missing"
        differing = [step for step in wanted if wanted[step] != found[step]]
        assert not differing, f"differs from step {differing[0]} on: {wanted[differing[0]]} {found[differing[0]]}"
        skips = [open(os.path.join(run, "skips.jsonl"), encoding="utf-8").read() for run in (whole, parts)]
        assert "0.png" in skips[0] and skips[0] == skips[1], skips
        evaluated = sum("exact_match" in value for value in wanted.values())
        assert 36 <= evaluated <= 40, evaluated
        print(f"stopped and resumed four times: {STEPS} losses and {evaluated} evaluations equal to the bit")


main()
