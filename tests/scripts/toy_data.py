"""configs/data/omni_toy.py on packages made here: pieces of the photographs as they are, words with meanings; and its recipe trains on it."""

import filecmp
import glob
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402
import toy_packages  # noqa: E402

RECIPES = os.path.join(os.environ["OMNILOOM_SOURCE"], "configs", "recipes")
sys.path.insert(0, os.path.dirname(toy_packages.SCRIPT))
import omni_toy  # noqa: E402


class ToyData(unittest.TestCase):
    def setUp(self):
        temp = program.temp_folder()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_what_it_writes(self):
        photos = toy_packages.make_data(self.folder)
        for name, photo in photos.items():  # all filters of PNG
            read = omni_toy.read_png(self.path(f"packages/usr/lib/python3/dist-packages/skimage/data/{name}.png"))
            self.assertEqual(read, photo, name)
        shapes, forms = set(), set()
        pieces = sorted(glob.glob(self.path("data/omni_toy/photos/*.png")))
        self.assertEqual(len(pieces), 60)
        for number, path in enumerate(pieces):
            name = list(photos)[number % 2]
            width, height, step, rows = omni_toy.read_png(path)
            whole_width, whole_height, whole_step, whole = photos[name]
            self.assertEqual(step, whole_step)
            self.assertTrue(16 <= width <= whole_width and 16 <= height <= whole_height, (width, height))
            found = [y for y in range(whole_height - height + 1) if rows[0] in whole[y]]
            self.assertEqual(len(found), 1)
            x = whole[found[0]].index(rows[0])
            self.assertEqual(rows, [row[x : x + width * step] for row in whole[found[0] : found[0] + height]])
            shapes.add((width, height))
            with open(path[:-4] + ".txt", encoding="utf-8") as caption:
                form, _, what = caption.read().partition(" piece of ")
            self.assertEqual(what, omni_toy.PHOTOS[name])
            self.assertEqual(form, "a wide" if width > 1.5 * height else "a tall" if height > 1.5 * width else "a")
            forms.add(form)
        self.assertGreater(len(shapes), 30)
        self.assertEqual(len(forms), 3)
        with open(self.path("data/omni_toy/words.jsonl"), encoding="utf-8") as lines:
            texts = [json.loads(line)["text"] for line in lines]
        self.assertEqual(len(set(texts)), 80)
        self.assertTrue(all(": what the " in text and "licence" not in text and "_" not in text for text in texts))

        code, text = toy_packages.run_script("again", "--packages", "packages", "--photos", "60", "--words", "80", cwd=self.folder)
        self.assertEqual(code, 0, text)
        names = [os.path.relpath(path, self.path("again")) for path in glob.glob(self.path("again/**/*.*"), recursive=True)]
        self.assertGreater(len(names), 120)
        same, _, _ = filecmp.cmpfiles(self.path("again"), self.path("data/omni_toy"), names, shallow=False)
        self.assertEqual(len(same), len(names))

    def test_what_it_refuses(self):
        os.makedirs(self.path("packages/usr/share/wordnet"))
        os.makedirs(self.path("there"))
        for args, needle in ((("--packages", "packages"), "packages holds no usr/lib/python3"),
                             (("there",), "there is there already")):
            code, text = toy_packages.run_script(*args, cwd=self.folder)
            self.assertEqual(code, 1, text)
            self.assertIn(needle, text)
        self.assertFalse(os.path.exists(self.path("data")))

    def test_its_recipe_trains_on_any_ranks_alike(self):
        toy_packages.make_data(self.folder)
        recipe = os.path.join(RECIPES, "omni_toy.yaml")
        layout = os.path.join(RECIPES, "../layouts/4.yaml")
        fast = ["train.steps=4", "train.warmup=0", "eval.every=0", "train.precision=fp64", "train.threads=1"]
        runs = {"one": [], "four": ["--loopback", "4", "parallel=" + layout], "two": ["--nproc", "2"]}
        for name, args in runs.items():
            code, _, err = program.run("train", recipe, "--run", name, *fast, *args, cwd=self.folder)
            self.assertEqual(code, 0, err)
        wanted = [float(loss) for _, loss in program.losses(self.path("one"))]
        self.assertEqual(len(wanted), 4)
        for name in ("four", "two"):
            for got, loss in zip(program.losses(self.path(name)), wanted):
                self.assertAlmostEqual(float(got[1]), loss, delta=1e-10, msg=name)


if __name__ == "__main__":
    unittest.main()
