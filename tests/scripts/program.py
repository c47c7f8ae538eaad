"""The program as a user runs it: small IDX data, a small recipe, and one call per command. Shared by the scripts of tests/."""

import gzip
import json
import os
import random
import struct
import subprocess
import tempfile

PROGRAM = os.environ["OMNILOOM_PROGRAM"]
NAMES = ["circle", "square", "cross", "bar"]


def write_idx(folder, count=96, side=8, seed=1, prefix="train"):
    """Pictures of four classes that can be told apart; returns the two paths."""
    rng = random.Random(seed)
    pictures, labels = bytearray(), bytearray()
    for _ in range(count):
        label = rng.randrange(len(NAMES))
        labels.append(label)
        for y in range(side):
            for x in range(side):
                on = [(x - 4) ** 2 + (y - 4) ** 2 < 10, 2 <= x < 6 and 2 <= y < 6, x == y or x + y == side - 1, x in (3, 4)][label]
                pictures.append(min(255, (200 if on else 20) + rng.randrange(40)))
    images = os.path.join(folder, prefix + "-images.gz")
    names = os.path.join(folder, prefix + "-labels.gz")
    with gzip.open(images, "wb", 1) as out:
        out.write(struct.pack(">IIII", 0x803, count, side, side) + bytes(pictures))
    with gzip.open(names, "wb", 1) as out:
        out.write(struct.pack(">II", 0x801, count) + bytes(labels))
    return images, names


def recipe_text(folder, steps=12, extra_train="", checkpoint="{every: 4, keep: 2}", encoder="", budget=128, heads="heads: 2, kv_heads: 1"):
    images, labels = write_idx(folder)
    source = f'{{type: idx, images: "{images}", labels: "{labels}", names: [{", ".join(NAMES)}], caption: "a {{name}}"}}'
    encoder = encoder or "{plugin: vit, image_size: 8, patch: 4, width: 16, depth: 1, heads: 2, dropout: 0.1}"
    return f"""name: small
model:
  encoders: {{image: {encoder}}}
  connectors: {{image: {{plugin: mlp, hidden: 16}}}}
  backbone: {{plugin: llama, width: 16, depth: 1, {heads}, ffn: 32}}
data:
  budget: {budget}
  train: [{source}]
  eval: [{source}]
train: {{steps: {steps}, batch: 12 samples, lr: 1e-2, warmup: 2, threads: 1{extra_train}}}
checkpoint: {checkpoint}
"""


def write_recipe(folder, **options):
    path = os.path.join(folder, "recipe.yaml")
    with open(path, "w", encoding="utf-8") as out:
        out.write(recipe_text(folder, **options))
    return path


def run(*args, cwd=None, env=None, timeout=300):
    """Returns (exit code, stdout, stderr)."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", **(env or {}))
    done = subprocess.run([PROGRAM, *args], cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    return done.returncode, done.stdout, done.stderr


def losses(run_folder):
    """(step, loss) as written, so that equality is equality of bits."""
    out = []
    with open(os.path.join(run_folder, "metrics.jsonl"), encoding="utf-8") as lines:
        for line in lines:
            value = json.loads(line, parse_float=str)
            out.append((value["step"], value["loss"]))
    return out


def temp_folder():
    return tempfile.TemporaryDirectory(prefix="omniloom-test-")
