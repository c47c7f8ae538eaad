#!/usr/bin/env python3
"""Makes plugins outside the tree, the way their authors will: install the package, `omniloom plugin new`, CMake alone, train.

usage: out_of_tree.py BUILD_DIR
Everything happens in a temporary folder. The encoder, connector and backbone templates are built as they come and trained together;
their sources must not name anything of packing, sharding or communication. Then the same on four ranks: the same losses.
"""
import gzip
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

WORDS = ["padding", "cu_seqlens", "shard", "all_gather", "all_reduce", "all_to_all", "world_size", "rank", "process_group", "offsets"]


def run(command, cwd, env, code=0):
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != code:
        sys.exit(f"$ {' '.join(map(str, command))}   -> {done.returncode}, expected {code}\n{done.stdout}")
    return done.stdout


def expect(condition, message):
    if not condition:
        sys.exit(message)


def write_idx(folder, count, seed):
    """Pictures of two kinds, bright above or bright below, with noise: learnable in a few steps."""
    rng = random.Random(seed)
    labels = bytes(rng.randrange(2) for _ in range(count))
    pixels = bytearray()
    for label in labels:
        for row in range(28):
            bright = (row < 14) == (label == 0)
            pixels += bytes((200 if bright else 20) + rng.randrange(40) for _ in range(28))
    with gzip.open(folder / "images.gz", "wb") as f:
        f.write(struct.pack(">IIII", 0x803, count, 28, 28) + bytes(pixels))
    with gzip.open(folder / "labels.gz", "wb") as f:
        f.write(struct.pack(">II", 0x801, count) + labels)


RECIPE = """
name: out-of-tree
plugins: [radar/build/libradar.omniloom.so, join/build/libjoin.omniloom.so, speaker/build/libspeaker.omniloom.so]
model:
  encoders:
    radar: {plugin: radar, width: 32, depth: 1, heads: 2, dropout: 0.1}
  connectors:
    radar: {plugin: join, hidden: 48}
  backbone: {plugin: speaker, width: 48, depth: 1, heads: 4, kv_heads: 2, ffn: 96}
data:
  tokenizer: bytes
  budget: 256
  train: [{type: idx, images: data/images.gz, labels: data/labels.gz, names: [up, down], caption: "it is {name}", modality: radar}]
  eval: [{type: idx, images: data/images.gz, labels: data/labels.gz, names: [up, down], caption: "it is {name}", modality: radar}]
train: {steps: 30, batch: 16 samples, lr: 5e-3, warmup: 3, schedule: cosine, clip: 1.0}
eval: {every: 0, samples: 32, metric: exact_match}
"""


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="omniloom-out-of-tree-") as name:
        work = pathlib.Path(name)
        prefix = work / "prefix"
        base = {k: v for k, v in os.environ.items() if not k.startswith("OMNILOOM_") and k not in ("TORCH_PREFIX", "LD_LIBRARY_PATH")}
        run(["cmake", "--install", str(build), "--prefix", str(prefix)], work, base)
        env = dict(base, CMAKE_PREFIX_PATH=str(prefix), PATH=f"{prefix}/bin:{base['PATH']}", OMP_NUM_THREADS="1")
        away = work / "away"
        (away / "data").mkdir(parents=True)

        for kind, plugin in [("encoder", "radar"), ("connector", "join"), ("backbone", "speaker")]:
            run(["omniloom", "plugin", "new", kind, plugin, f"{plugin}/"], away, env)
            refused = run(["omniloom", "plugin", "new", kind, plugin, f"{plugin}/"], away, env, code=2)
            expect("exists and is not an empty folder" in refused, refused)
            run(["cmake", "-S", plugin, "-B", f"{plugin}/build"], away, env)
            run(["cmake", "--build", f"{plugin}/build"], away, env)
            file = f"{plugin}/build/lib{plugin}.omniloom.so"
            checked = run(["omniloom", "plugin", "check", file], away, env)
            expect(f"{plugin} 0.1.0 provides {kind}:{plugin} · fits this core" in checked, checked)
            info = run(["omniloom", "plugin", "info", file], away, env)
            expect(re.search(rf"^{plugin} 0\.1\.0 · {kind}.* · fits this core$", info, re.M), info)
            for source in sorted((away / plugin).glob("*.cpp")) + sorted((away / plugin).glob("*.h")):
                code = re.sub(r"//.*", "", source.read_text())
                for word in WORDS:
                    expect(not re.search(rf"\b{word}", code), f"{source.name} of the {kind} template speaks of {word}")
            expect("new_plugin" not in " ".join(p.read_text() for p in (away / plugin).glob("*.*")), "a placeholder was left")

        write_idx(away / "data", 64, 1)
        (away / "recipe.yaml").write_text(RECIPE)
        run(["omniloom", "check", "recipe.yaml"], away, env)
        log = run(["omniloom", "train", "recipe.yaml", "--run", "runs/first"], away, env)
        rows = [json.loads(line) for line in (away / "runs/first/metrics.jsonl").read_text().splitlines()]
        losses = [row["loss"] for row in rows if "loss" in row]
        expect(len(losses) >= 2 and losses[-1] < 0.5 * losses[0], f"the loss did not fall: {losses}\n{log}")

        # The same sources on four ranks: split items, sharded weights, ranks without rows; in double precision the same losses.
        def series(name, *arguments):
            run(["omniloom", "train", "recipe.yaml", "--run", f"runs/{name}", "train.precision=fp64", "train.batch=2 samples",
                 "train.steps=10", *arguments], away, env)
            lines = (away / f"runs/{name}/metrics.jsonl").read_text().splitlines()
            return [json.loads(line)["loss"] for line in lines]

        alone = series("alone")
        ranks = series("ranks", "--loopback", "4", "parallel.encoders.radar.sp=2", "parallel.backbone.sp=2", "parallel.backbone.shard=2")
        worst = max(abs(a - b) / abs(a) for a, b in zip(alone, ranks, strict=True))
        expect(worst < 1e-9, f"four ranks differ from one by {worst}: {alone} {ranks}")
        print(f"on four ranks: losses of {len(ranks)} steps equal to {worst:.1e}")
        print(f"built against {prefix.name}, trained {len(rows)} records: loss {losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
