"""Decoded and resized pictures equal PIL's. Writes picture files of every kind and PIL's own pixels of them into a folder, has
the C++ test PicturesLikePil compare, and checks that it compared all of them. Needs pillow and numpy."""

import io
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

try:
    import numpy as np
    import PIL
    from PIL import Image, ImageOps
except ImportError as error:
    sys.exit(f"pictures.py: {error.name} is missing; run it with a Python that has pillow and numpy (OMNILOOM_TEST_PYTHON)")

UNIT_TESTS = os.environ["OMNILOOM_UNIT_TESTS"]
SIZES = [(28, 28), (27, 31), (57, 13)]
GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "F")


def scene(height, width, channels, seed=0):
    """Slopes, a disc with a hard edge, and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    disc = (y - height / 2) ** 2 + (x - width / 3) ** 2 < (min(height, width) / 3) ** 2
    out = np.empty((height, width, channels))
    for c in range(channels):
        slope = (y * (c + 2) * 90 / max(height, 1) + x * (4 - c) * 40 / max(width, 1)) % 256
        out[..., c] = np.where(disc, 255 * (c % 2), slope) + rng.normal(0, 12, (height, width))
    return out.clip(0, 255).astype(np.uint8)


def png(colour, bits, samples):
    """A PNG that PIL does not write; samples are big-endian rows."""
    height, width = samples.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in samples)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def save(picture, form, **options):
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def pixels_of(data, white=False):
    """What PIL makes of the file: grey stays grey, 16 bits become 8 by value / 257, everything else is RGB."""
    picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if picture.mode in ("I", "I;16", "I;16B"):
        return Image.fromarray(np.rint(np.asarray(picture).astype(np.float64) / 257).astype(np.uint8))
    if white:
        whole = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole).convert("LA" if picture.mode == "LA" else "RGB")
    return picture.convert("L" if picture.mode in GREY else "RGB")


def resized(picture, size):
    """PIL's resize with the passes in the order of Pillow 13, whatever the version; until 12 the width came first."""
    width, height = picture.size
    high = size[1] < height and height - size[1] > 2 * (width - size[0])
    first = (width, size[1]) if high else (size[0], height)
    out = picture.resize(first, Image.Resampling.BICUBIC).resize(size, Image.Resampling.BICUBIC)
    if int(PIL.__version__.split(".", maxsplit=1)[0]) >= 13:
        assert out.tobytes() == picture.resize(size, Image.Resampling.BICUBIC).tobytes(), "Pillow changed the order of its passes"
    return out


class Folder:
    def __init__(self, path):
        self.path, self.lines, self.files = path, [], 0

    def file(self, data, suffix):
        self.files += 1
        name = f"{self.files:04d}-{suffix}"
        with open(os.path.join(self.path, name), "wb") as out:
            out.write(data)
        return name

    def add(self, name, data, reference=None, limit=1, white=False):
        """One file, to be decoded and to be resized."""
        source = self.file(data, name)
        reference = pixels_of(data, white) if reference is None else Image.fromarray(reference)
        turned = [reference] + [resized(reference, size) for size in SIZES]
        for kind, picture in zip(["decoded"] + ["resized"] * len(SIZES), turned):
            raw = self.file(picture.tobytes(), name + ".raw")
            channels = 1 if picture.mode == "L" else 3
            fields = [kind, source, raw, picture.height, picture.width, channels, limit, int(white)]
            self.lines.append("\t".join(map(str, fields)))

    def refuse(self, name, data, text, kind="refused"):
        self.lines.append("\t".join([kind, self.file(data, name), text]))

    def count(self, kind):
        return sum(line.startswith(kind + "\t") for line in self.lines)

    def close(self):
        with open(os.path.join(self.path, "index.txt"), "w", encoding="utf-8") as out:
            out.write("\n".join(self.lines))


def add_orientations(folder, rgb):
    forms = [("jpg", "JPEG", {"quality": 90}), ("png", "PNG", {}), ("webp", "WEBP", {"lossless": True}), ("tif", "TIFF", {})]
    for suffix, form, options in forms:
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[274] = orientation
            folder.add(f"turned{orientation}.{suffix}", save(Image.fromarray(rgb), form, exif=exif, **options))


def add_jpegs(folder, rgb, grey):
    colour = Image.fromarray(rgb)
    for name, options in {"444": {"subsampling": 0}, "422": {"subsampling": 1}, "420": {"subsampling": 2}, "low": {"quality": 20},
                          "progressive": {"progressive": True}, "restarts": {"restart_marker_blocks": 3},
                          "progressive-420": {"progressive": True, "subsampling": 2}, "rgb": {"keep_rgb": True},
                          "profile": {"icc_profile": b"x" * 3000}}.items():
        folder.add(name + ".jpg", save(colour, "JPEG", **{"quality": 88, **options}))
    folder.add("grey.jpg", save(grey, "JPEG"))
    folder.add("grey-progressive.jpg", save(grey, "JPEG", progressive=True))
    for seed in range(3):
        cmyk = Image.frombytes("CMYK", (33, 40), scene(40, 33, 4, seed).tobytes())
        folder.add(f"cmyk{seed}.jpg", save(cmyk, "JPEG", quality=95), limit=2)


def add_pngs(folder, rgb, grey, rgba):
    colour, layered = Image.fromarray(rgb), Image.fromarray(rgba)
    folder.add("grey.png", save(grey, "PNG"))
    folder.add("bits.png", save(grey.convert("1"), "PNG"))
    folder.add("rgb.png", save(colour, "PNG", icc_profile=b"not a profile"))
    folder.add("rgba.png", save(layered, "PNG"))
    folder.add("rgba-white.png", save(layered, "PNG"), white=True)
    grey_alpha = Image.merge("LA", (grey, layered.getchannel("A")))
    folder.add("la.png", save(grey_alpha, "PNG"))
    folder.add("la-white.png", save(grey_alpha, "PNG"), white=True)
    for colours in (2, 4, 16, 200):
        palette = colour.quantize(colours)
        folder.add(f"palette{colours}.png", save(palette, "PNG"))
        folder.add(f"palette{colours}-clear.png", save(palette, "PNG", transparency=1))
    folder.add("palette-white.png", save(colour.quantize(16), "PNG", transparency=bytes(range(0, 256, 16))), white=True)
    folder.add("key.png", save(colour, "PNG", transparency=tuple(int(v) for v in rgb[0, 0])))
    wide = scene(31, 23, 4).astype(np.uint16) * 256 + np.random.default_rng(7).integers(0, 256, (31, 23, 4), dtype=np.uint16)
    narrow = np.rint(wide / 257).astype(np.uint8)
    big = wide.astype(">u2")
    folder.add("grey16.png", png(0, 16, big[..., 0]), narrow[..., 0])
    folder.add("grey16-alpha.png", png(4, 16, big[..., :2]), narrow[..., 0])
    folder.add("rgb16.png", png(2, 16, big[..., :3]), narrow[..., :3])
    folder.add("rgba16.png", png(6, 16, big), narrow[..., :3])
    for bits in (2, 4):
        levels = np.random.default_rng(bits).integers(0, 256, (9, 3), dtype=np.uint8)
        data = bytearray(png(0, bits, levels))
        data[16:20] = struct.pack(">I", 3 * 8 // bits)  # the width is in samples
        data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
        folder.add(f"grey{bits}.png", bytes(data))


def add_others(folder, rgb, grey, rgba):
    colour, layered, palette = Image.fromarray(rgb), Image.fromarray(rgba), Image.fromarray(rgb).quantize(16)
    for name, options in {"lossy": {"quality": 80}, "best": {"quality": 100, "method": 6}, "lossless": {"lossless": True}}.items():
        folder.add(name + ".webp", save(colour, "WEBP", **options))
        folder.add(name + "-alpha.webp", save(layered, "WEBP", exact=True, **options))
        folder.add(name + "-white.webp", save(layered, "WEBP", exact=True, **options), white=True)
    for name, picture in {"rgb": colour, "grey": grey, "bits": grey.convert("1"), "palette": palette, "rgba": layered}.items():
        folder.add(name + ".bmp", save(picture, "BMP"))
        folder.add(name + ".tif", save(picture, "TIFF"))
    for packing in ("tiff_lzw", "tiff_deflate", "packbits", "jpeg"):
        folder.add(packing + ".tif", save(colour, "TIFF", compression=packing), limit=1)
    folder.add("rgba-lzw.tif", save(layered, "TIFF", compression="tiff_lzw"))
    folder.add("rgba-white.tif", save(layered, "TIFF"), white=True)
    folder.add("cmyk.tif", save(Image.frombytes("CMYK", (33, 40), scene(40, 33, 4).tobytes()), "TIFF"), limit=2)
    wide = Image.fromarray(scene(31, 23, 1)[..., 0].astype(np.uint16) * 251)
    folder.add("grey16.tif", save(wide, "TIFF"))
    for name, picture in {"rgb.ppm": colour, "grey.pgm": grey, "bits.pbm": grey.convert("1"), "grey16.pgm": wide}.items():
        folder.add(name, save(picture, "PPM"))
    plain = f"P3\n{colour.width} {colour.height}\n255\n" + " ".join(str(v) for v in rgb.ravel())
    folder.add("plain.ppm", plain.encode(), rgb)


def add_shapes(folder):
    for height, width in ((1, 1), (1, 300), (300, 1), (2, 2), (123, 457)):
        picture = Image.fromarray(scene(height, width, 3))
        folder.add(f"{width}x{height}.png", save(picture, "PNG"))
        folder.add(f"{width}x{height}.jpg", save(picture, "JPEG", quality=90))
        folder.add(f"{width}x{height}.webp", save(picture, "WEBP", lossless=True))
        folder.add(f"{width}x{height}-grey.png", save(picture.convert("L"), "PNG"))
    noise = np.random.default_rng(3).integers(0, 2, (64, 64, 3), dtype=np.uint8) * 255  # overshoots everywhere
    folder.add("noise.png", save(Image.fromarray(noise), "PNG"))


def add_refused(folder, rgb):
    colour = Image.fromarray(rgb)
    whole = {"baseline.jpg": save(colour, "JPEG"), "progressive.jpg": save(colour, "JPEG", progressive=True), "whole.png": save(colour, "PNG"),
             "lossy.webp": save(colour, "WEBP"), "lossless.webp": save(colour, "WEBP", lossless=True), "rows.bmp": save(colour, "BMP"),
             "strips.tif": save(colour, "TIFF"), "rows.ppm": save(colour, "PPM")}
    for name, data in whole.items():
        for percent in (25, 50, 90, 99):
            folder.refuse(f"cut{percent}-{name}", data[:len(data) * percent // 100], ": cut off: ")
        folder.refuse(f"empty-{name}", b"", ": the file is empty; expected a picture")
    folder.refuse("words.jpg", b"no picture at all", ": not a picture that can be decoded")
    folder.refuse("moving.webp", save(colour, "WEBP", save_all=True, append_images=[ImageOps.invert(colour)]), "it is animated")


def add_huge(folder, rgb):
    """Small files whose headers claim gigapixels."""
    small = Image.fromarray(rgb[:8, :8])
    claim = "60,000 x 60,000 pixels; at most 100,000,000"

    def add(name, data, at, size):
        changed = bytearray(data)
        changed[at:at + len(size)] = size
        folder.refuse(name, bytes(changed), claim, "huge")

    add("huge.png", save(small, "PNG"), 16, struct.pack(">II", 60000, 60000))
    for name, options in (("huge.jpg", {}), ("huge-progressive.jpg", {"progressive": True})):
        data = save(small, "JPEG", **options)
        frame = max(data.find(b"\xff\xc0\0\x11\x08"), data.find(b"\xff\xc2\0\x11\x08"))
        add(name, data, frame + 5, struct.pack(">HH", 60000, 60000))
    add("huge.bmp", save(small, "BMP"), 18, struct.pack("<ii", 60000, 60000))
    exif = Image.Exif()
    exif[274] = 1
    for lossless in (False, True):  # the canvas of an extended file claims it; the picture inside does not
        data = bytearray(save(small, "WEBP", exif=exif, lossless=lossless))
        data[24:30] = (59999).to_bytes(3, "little") * 2
        folder.refuse("huge.webp", bytes(data), "claims 60000 x 60000 pixels", "huge")
    most = bytearray(save(small, "WEBP", lossless=True))
    most[21:25] = (0x0fffffff).to_bytes(4, "little")
    folder.refuse("largest.webp", bytes(most), "16,384 x 16,384 pixels", "huge")
    data = save(small, "TIFF")
    changed = bytearray(data)
    for tag in (256, 257):
        at = data.find(struct.pack("<HHI", tag, 4, 1))
        changed[at + 8:at + 12] = struct.pack("<I", 60000)
    folder.refuse("huge.tif", bytes(changed), claim, "huge")
    folder.refuse("huge.ppm", b"P6\n60000 60000\n255\n" + bytes(100), claim, "huge")
    folder.refuse("huge.pgm", b"P2\n60000 60000\n255\n" + b"0 " * 100, claim, "huge")


class Pictures(unittest.TestCase):
    def test_pictures_equal_pil(self):
        with tempfile.TemporaryDirectory(prefix="omniloom-pictures-") as path:
            folder = Folder(path)
            rgba = scene(47, 61, 4)
            rgb, grey = np.ascontiguousarray(rgba[..., :3]), Image.fromarray(rgba[..., 1])
            add_orientations(folder, rgb)
            add_jpegs(folder, rgb, grey)
            add_pngs(folder, rgb, grey, rgba)
            add_others(folder, rgb, grey, rgba)
            add_shapes(folder)
            add_refused(folder, rgb)
            add_huge(folder, rgb)
            folder.close()
            for test, kind in (("HugeClaimsCostNoMemory", "huge"), ("Decoded", "decoded"), ("Resized", "resized"), ("CutOffIsRefused", "refused")):
                with self.subTest(test):
                    self.run_test(folder, test, kind)

    def run_test(self, folder, test, kind):
        environment = dict(os.environ, OMNILOOM_PICTURES=folder.path, OMP_NUM_THREADS="1")
        # Alone in its process, so that its peak of memory is its own.
        done = subprocess.run([UNIT_TESTS, f"--gtest_filter=PicturesLikePil.{test}"], env=environment, capture_output=True, text=True,
                              timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-1000:])
        self.assertIn(f"{kind}: {folder.count(kind)} cases", done.stdout)
        self.assertEqual(done.stderr, "", "a picture made a library talk")
        print(next(line for line in done.stdout.splitlines() if line.startswith(kind + ": ")), flush=True)


if __name__ == "__main__":
    unittest.main()
