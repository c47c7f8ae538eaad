"""Data for tests/gpu/run.sh, of the standard library alone: texts, pictures for the demo under the names of Fashion-MNIST, and larger
ones. make_data.py FOLDER"""

import gzip
import json
import os
import random
import struct
import sys


def picture(rng, label, side):
    """A bright circle, square, cross or bar on a dark, noisy ground."""
    middle, quarter, thick = side / 2, side / 4, max(1, side // 10)
    noise = rng.randbytes(side * side)
    out = bytearray(20 + (n >> 3) for n in noise)
    for y in range(side):
        for x in range(side):
            dx, dy = x - middle, y - middle
            on = (
                dx * dx + dy * dy < quarter * quarter * 1.3,
                abs(dx) < quarter and abs(dy) < quarter,
                abs(dx - dy) < thick or abs(dx + dy) < thick,
                abs(dx) < thick,
            )[label % 4]
            if on:
                out[y * side + x] = 200 + (noise[y * side + x] >> 3)
    return bytes(out)


def write_idx(folder, prefix, count, side, labels, seed, distinct):
    """`distinct` different pictures, over and over."""
    rng = random.Random(seed)
    which = [rng.randrange(labels) for _ in range(distinct)]
    pictures = [picture(rng, label, side) for label in which]
    with gzip.open(os.path.join(folder, prefix + "-images-idx3-ubyte.gz"), "wb", 1) as out:
        out.write(struct.pack(">IIII", 0x803, count, side, side))
        for i in range(count):
            out.write(pictures[i % distinct])
    with gzip.open(os.path.join(folder, prefix + "-labels-idx1-ubyte.gz"), "wb", 1) as out:
        out.write(struct.pack(">II", 0x801, count) + bytes(which[i % distinct] for i in range(count)))


def write_text(folder, lines, length, seed):
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz     "
    with open(os.path.join(folder, "text.jsonl"), "w", encoding="utf-8") as out:
        for _ in range(lines):
            out.write(json.dumps({"text": "".join(rng.choices(letters, k=length))}) + "\n")


def main(folder):
    os.makedirs(folder, exist_ok=True)
    write_text(folder, 256, 2040, 1)
    write_idx(folder, "large", 256, 336, 4, 2, 16)
    write_idx(folder, "train", 2000, 28, 10, 3, 200)
    write_idx(folder, "t10k", 200, 28, 10, 4, 100)


if __name__ == "__main__":
    main(sys.argv[1])
