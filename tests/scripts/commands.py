"""Commands as the README names them: train with overrides, resume, eval, generate, check; the resolved recipe trains identically."""

import glob
import json
import os
import re
import struct
import sys
import unittest
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402
import toy_packages  # noqa: E402

CONFIGS = os.path.join(os.environ["OMNILOOM_SOURCE"], "configs")


def write_png(path, side, channels):
    """A plain picture, written without any library."""
    rows = b"".join(b"\0" + bytes((x * 7 + y * 3) % 256 for x in range(side) for _ in range(channels)) for y in range(side))
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))  # noqa: E731
    header = struct.pack(">IIBBBBB", side, side, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Commands(unittest.TestCase):
    def setUp(self):
        self.temp = program.temp_folder()
        self.folder = self.temp.name
        self.recipe = program.write_recipe(self.folder, steps=12)

    def tearDown(self):
        self.temp.cleanup()

    def path(self, name):
        return os.path.join(self.folder, name)

    def ok(self, *args, **options):
        code, out, err = program.run(*args, **options)
        self.assertEqual(code, 0, err)
        return out, err

    def test_two_runs_and_the_resolved_recipe_are_equal_to_the_bit(self):
        self.ok("train", self.recipe, "--run", self.path("a"), "train.lr=0.02")
        self.ok("train", self.recipe, "--run", self.path("b"), "--train.lr=0.02")
        self.ok("train", self.path("a/recipe.resolved.yaml"), "--run", self.path("c"))
        self.ok("train", self.recipe, "--run", self.path("d"), "--train.lr", "0.02")
        self.ok("train", self.recipe, "--run", self.path("e"))
        wanted = program.losses(self.path("a"))
        self.assertEqual(len(wanted), 12)
        for other in "bcd":
            self.assertEqual(program.losses(self.path(other)), wanted, other)
        self.assertNotEqual(program.losses(self.path("e")), wanted)

    def test_resume_continues_to_the_bit(self):
        self.ok("train", self.recipe, "--run", self.path("whole"), "train.steps=20")
        self.ok("train", self.recipe, "--run", self.path("parts"), "train.steps=20", "checkpoint.every=1", "checkpoint.keep=0")
        for step in (19, 13, 7):  # damage the newest ones: each resume starts further back
            for folder in glob.glob(self.path("parts/checkpoints/step-*")):
                if int(folder.rsplit("-", 1)[1]) > step:
                    os.remove(os.path.join(folder, "manifest.json"))
            self.ok("train", "--resume", self.path("parts"))
            self.assertEqual(program.losses(self.path("parts")), program.losses(self.path("whole")), step)

    def test_accumulation_and_recompute_change_nothing_that_matters(self):
        runs = {"plain": [], "recompute": ["train.recompute=true"], "small": ["data.budget=32"]}
        for name, overrides in runs.items():
            self.ok("train", self.recipe, "--run", self.path(name), *overrides)
        plain, small = program.losses(self.path("plain")), program.losses(self.path("small"))
        self.assertEqual(program.losses(self.path("recompute")), plain)
        for (_, a), (_, b) in zip(plain, small):
            self.assertAlmostEqual(float(a), float(b), delta=2e-4 * abs(float(a)))

    def test_learns_evaluates_and_reports(self):
        run = self.path("run")
        self.ok("train", self.recipe, "--run", run, "train.steps=150", "eval.every=75", "eval.samples=48")
        self.assertLess(float(program.losses(run)[-1][1]), 0.3)
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
            evaluated = [json.loads(line) for line in lines if "exact_match" in line]
        self.assertEqual([line["step"] for line in evaluated], [75, 150])
        out, _ = self.ok("eval", run, "--swapped", "--report")
        with open(os.path.join(run, "summary.json"), encoding="utf-8") as text:
            summary = json.load(text)
        self.assertEqual(set(summary), {"exact_match", "exact_match_swapped", "samples", "train_seconds", "steps"})
        self.assertEqual(summary["samples"], 96)
        self.assertEqual(summary["steps"], 150)
        self.assertGreaterEqual(summary["exact_match"], 0.9)
        self.assertLessEqual(summary["exact_match_swapped"], 0.45)
        self.assertIn("exact", out)
        with open(os.path.join(run, "report.html"), encoding="utf-8") as text:
            page = text.read()
        self.assertIn("data:image/png;base64,", page)
        self.assertNotIn("http://", page.replace("http://www.w3.org", ""))

        images = self.path("train-images.gz")
        write_png(self.path("grey.png"), 8, 1)
        write_png(self.path("colour.png"), 8, 3)
        out, _ = self.ok("generate", run, images + "#0", images + "#5", self.path("grey.png"), self.path("colour.png"))
        lines = out.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertTrue(lines[0].startswith(images + "#0: a "), lines[0])
        code, _, err = program.run("generate", run, images + "#999")
        self.assertEqual(code, 2)
        self.assertIn("no picture 999", err)
        code, _, err = program.run("generate", run, self.recipe)
        self.assertEqual(code, 2)
        self.assertIn("picture", err)

    def test_frozen_encoder(self):
        self.ok("train", self.recipe, "--run", self.path("run"), "model.tune={encoders.image: frozen}")

    def test_run_folders_are_numbered(self):
        for _ in range(2):
            self.ok("train", self.recipe, "train.steps=2", "train.warmup=0", cwd=self.folder)
        self.assertEqual(sorted(os.listdir(self.path("runs"))), ["small-1", "small-2"])

    def test_check_and_help(self):
        out, _ = self.ok("check", self.recipe)
        self.assertIn("96 samples", out)
        out, _ = self.ok("check", self.recipe, "--resolved", "train.lr=0.5")
        self.assertIn("lr: 0.5", out)
        for command in ([], ["train"], ["eval"], ["generate"], ["check"], ["data"], ["env"], ["plugin"], ["plugin", "new"]):
            out, _ = self.ok(*command, "--help")
            self.assertIn("Usage", out)

    def recipes_of_the_tree(self):
        """Their paths; the data of one's own that some ask for is made, so they run in self.folder."""
        recipes = sorted(glob.glob(os.path.join(CONFIGS, "recipes", "*.yaml")))
        self.assertTrue(recipes)
        # Some are for data of one's own, under these names.
        os.mkdir(self.path("pictures"))
        for name in ("a", "b", "c"):
            write_png(self.path(f"pictures/{name}.png"), 32, 3)
            with open(self.path(f"pictures/{name}.txt"), "w", encoding="utf-8") as caption:
                caption.write("a photo of a " + name)
        with open(self.path("chat.jsonl"), "w", encoding="utf-8") as lines:
            turns = [{"role": "user", "content": "<image>What is it?"}, {"role": "assistant", "content": "A letter."}]
            lines.write((json.dumps({"messages": turns, "images": ["pictures/a.png"]}) + "\n") * 3)
        toy_packages.make_data(self.folder)
        return recipes

    def test_recipes_of_the_tree_are_valid_under_every_layout(self):
        layouts = sorted(glob.glob(os.path.join(CONFIGS, "layouts", "*.yaml")), key=lambda path: int(os.path.basename(path)[:-5]))
        self.assertEqual([os.path.basename(path) for path in layouts], ["1.yaml", "2.yaml", "4.yaml", "8.yaml", "64.yaml"])
        for recipe in self.recipes_of_the_tree():
            self.ok("check", recipe, cwd=self.folder)
            for layout in layouts:
                self.ok("check", recipe, "parallel=" + layout, cwd=self.folder)
                world = int(os.path.basename(layout)[:-5])
                out, _ = self.ok("plan", recipe, "parallel=" + layout, "--world", str(world), cwd=self.folder)
                self.assertIn(f" {world} rank", out)
                if world == 1:
                    continue
                encoders = re.findall(rf"(?m)^encoders\.\w+ .* {world} lanes · ", out)
                self.assertEqual(len(encoders), len(re.findall(r"(?m)^encoders\.", out)), out)
                lanes, shared = re.search(r"(?m)^backbone .* (\d+) lanes?, sp (\d+) (?:ring|mesh) · shard \d+", out).groups()
                self.assertEqual(int(lanes) * int(shared), world)
                self.assertLess(int(lanes), world)  # other lanes than those of the encoders

    def test_a_section_may_be_a_file(self):
        layout = self.path("layout.yaml")
        with open(layout, "w", encoding="utf-8") as out:
            out.write('encoders: {"*": {sp: 2, shard: 1}}\nbackbone: {sp: 2, shard: 2, attention: ring}\n')
        run = self.path("run")
        _, err = self.ok("train", self.recipe, "parallel=layout.yaml", "--run", run, "--loopback", "2", cwd=self.folder)
        self.assertRegex(err, r"(?m)^layout  backbone +1 lane, sp 2 ring · shard 2$")
        self.assertRegex(err, r"(?m)^layout  encoders.image +2 lanes · items over up to 2 ranks · a copy on each of 2 ranks$")
        os.remove(layout)  # the run holds what it said
        _, err = self.ok("train", "--resume", run, "--loopback", "2", "train.steps=14")
        self.assertRegex(err, r"(?m)^layout  backbone +1 lane, sp 2 ring · shard 2$")
        self.assertEqual(program.losses(run)[-1][0], 14)
        code, _, err = program.run("train", self.recipe, "parallel=layout.yaml", cwd=self.folder)
        self.assertEqual(code, 2)
        self.assertIn("command line: parallel: layout.yaml: no such file; expected a map", err)


if __name__ == "__main__":
    unittest.main()
