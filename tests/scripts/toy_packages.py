"""Small stand-ins for the packages that configs/data/omni_toy.py reads, so that no test downloads anything."""

import os
import random
import struct
import subprocess
import sys
import zlib

import program

SCRIPT = os.path.join(os.environ["OMNILOOM_SOURCE"], "configs", "data", "omni_toy.py")


def picture(width, height, step, seed):
    """Rows of a picture in which every place looks different."""
    rng = random.Random(seed)
    return [bytes(rng.randrange(256) for _ in range(width * step)) for _ in range(height)]


def write_filtered_png(path, width, height, step, rows):
    """Every row with another one of the five filters."""
    body, before = b"", bytes(width * step)
    for y, row in enumerate(rows):
        line = bytearray([y % 5])
        for x, value in enumerate(row):
            left, corner = (row[x - step], before[x - step]) if x >= step else (0, 0)
            p = left + before[x] - corner
            paeth = min((left, before[x], corner), key=lambda v: abs(p - v))  # pylint: disable=cell-var-from-loop
            line.append((value - (0, left, before[x], (left + before[x]) // 2, paeth)[y % 5]) & 255)
        body += line
        before = row
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))  # noqa: E731
    packed = zlib.compress(body)
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2 if step == 3 else 0, 0, 0, 0))
                  + chunk(b"tEXt", b"Comment\0none") + chunk(b"IDAT", packed[:100]) + chunk(b"IDAT", packed[100:]) + chunk(b"IEND", b""))


def write_packages(folder):
    """Returns the photographs: name -> (width, height, step, rows)."""
    photos = {"chelsea": (90, 70, 3, picture(90, 70, 3, 1)), "moon": (64, 120, 1, picture(64, 120, 1, 2))}
    inside = os.path.join(folder, "usr/lib/python3/dist-packages/skimage/data")
    os.makedirs(inside)
    for name, photo in photos.items():
        write_filtered_png(os.path.join(inside, name + ".png"), *photo)
    words = os.path.join(folder, "usr/share/wordnet")
    os.makedirs(words)
    for part in ("noun", "verb", "adj", "adv"):
        with open(os.path.join(words, "data." + part), "w", encoding="utf-8") as out:
            out.write("  1 This is a licence | of the words\n")
            for number in range(30):
                out.write(f"{number:08d} 03 n 01 {part}_{number} 0 000 | what the {part} {number} means; \"{'so ' * number}\"  \n")
    clothes = os.path.join(folder, "usr/share/datasets/fashion-mnist")
    os.makedirs(clothes)
    for name, path in zip(("images-idx3", "labels-idx1"), program.write_idx(clothes, count=60)):
        os.rename(path, os.path.join(clothes, f"train-{name}-ubyte.gz"))
    return photos


def run_script(*args, cwd=None):
    done = subprocess.run([sys.executable, SCRIPT, *args], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def make_data(folder):
    """data/omni_toy in `folder`, where the recipe looks for it."""
    packages = os.path.join(folder, "packages")
    photos = write_packages(packages)
    code, text = run_script("--packages", packages, "--photos", "60", "--words", "80", cwd=folder)
    assert code == 0, text
    return photos
