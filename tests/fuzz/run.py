#!/usr/bin/env python3
"""Runs every fuzz target for some seconds, one per core, and prints executions and findings; exits with 1 on any finding.

run.py BUILD SECONDS [NAME...]. Seeds are made here (seeds.py), inputs that were found stay in BUILD/corpus for the next time,
and an input that breaks a parser is kept in BUILD/findings with the command that runs it again. The next run starts with it.
"""

import concurrent.futures
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import seeds  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
BEGINS = ("finding:", "message:", "ERROR", "runtime error", "terminate called", "cannot open")
KINDS = ("crash-*", "timeout-*", "oom-*", "leak-*", "slow-unit-*")


def found_in(folder):
    return [path for kind in KINDS for path in glob.glob(os.path.join(folder, kind))]


def options(build, name, seconds):
    corpus, findings = os.path.join(build, "corpus", name), os.path.join(build, "findings", name)
    os.makedirs(corpus, exist_ok=True)
    os.makedirs(findings, exist_ok=True)
    for old in found_in(findings):
        os.replace(old, os.path.join(corpus, os.path.basename(old)))
    seeds.write(name, os.path.join(build, "seeds", name))
    dictionary = os.path.join(HERE, name + ".dict")
    return [corpus, os.path.join(build, "seeds", name), f"-max_total_time={seconds}", "-max_len=8192", "-timeout=10",
            "-rss_limit_mb=2048", "-malloc_limit_mb=1024", f"-artifact_prefix={findings}/", "-print_final_stats=1",
            *([f"-dict={dictionary}"] if os.path.exists(dictionary) else [])]


def fuzz(build, name, seconds):
    """Returns (name, executions, inputs kept, text of the first finding or nothing)."""
    program = os.path.join(build, "bin", name + "_fuzz")
    environment = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=0",
                       UBSAN_OPTIONS="print_stacktrace=1")
    done = subprocess.run([program, *options(build, name, seconds)], env=environment, capture_output=True, text=True,
                          errors="replace", check=False)
    executions = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    found = found_in(os.path.join(build, "findings", name))
    text = ""
    if done.returncode != 0 or found:
        noise = ("#", "\t", "0x", "stat::", "Base64:", "MS:", "NOTE:", "\\", "lib")
        lines = [line[:160] for line in done.stderr.splitlines() if line.strip() and not line.startswith(noise)]
        first = next((i for i, line in enumerate(lines) if any(word in line for word in BEGINS)), max(0, len(lines) - 30))
        again = f"again: {program} {found[0]}" if found else f"exit code {done.returncode}"
        text = "\n".join(lines[first:first + 30] + [again])
    kept = len(os.listdir(os.path.join(build, "corpus", name)))
    return name, int(executions.group(1)) if executions else 0, kept, text


def main():
    build, seconds = os.path.abspath(sys.argv[1]), sys.argv[2]
    built = sorted(os.path.basename(path)[: -len("_fuzz")] for path in glob.glob(os.path.join(build, "bin", "*_fuzz")))
    names = sys.argv[3:] or built
    unknown = [name for name in names if name not in built]
    if unknown or not names:
        sys.exit(f"no fuzz target {', '.join(unknown)}; there is: {', '.join(built) or 'none'}")
    failed = 0
    print(f"{len(names)} fuzz targets, {seconds} s each", flush=True)
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
        for name, executions, kept, text in pool.map(lambda name: fuzz(build, name, seconds), names):
            # A target that hardly ran has shown nothing.
            idle = "" if text or executions > 100 else "fewer than 100 executions"
            print(f"{name:<20} {executions:>11,} executions  {kept:>6,} inputs kept  {'FINDING' if text else idle or 'no finding'}", flush=True)
            if text:
                print(text, flush=True)
            failed += bool(text or idle)
    sys.exit(1 if failed else 0)


main()
