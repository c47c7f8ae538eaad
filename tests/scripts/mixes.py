"""Shares of sources that change: by the recipe's stages, and by `omniloom mix` while a training goes on. Resumed from before the change, killed
after it, on several ranks and written as a recipe, the steps are the same to the bit."""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402

SETTINGS = ["train.schedule=constant", "train.warmup=0", "eval.every=0"]


class Mixes(unittest.TestCase):
    def setUp(self):
        temp = program.temp_folder()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name
        with open(self.path("texts.jsonl"), "w", encoding="utf-8") as out:
            out.writelines(json.dumps({"text": "word " * (1 + number % 7)}) + "\n" for number in range(50))
        body = program.recipe_text(self.folder, steps=20)
        source = body[body.index("train: [{") + 8 : body.index("}]") + 1]
        body = body.replace("[" + source + "]\n  eval", f"[{source[:-1]}, name: shapes}}, {{path: \"{self.path('texts.jsonl')}\", name: texts}}, "
                            f"{source[:-1]}, limit: 30}}]\n  eval", 1)
        with open(self.path("recipe.yaml"), "w", encoding="utf-8") as out:
            out.write(body)
        self.recipe = self.path("recipe.yaml")

    def path(self, name):
        return os.path.join(self.folder, name)

    def ok(self, *args):
        code, out, err = program.run(*args)
        self.assertEqual(code, 0, err)
        return out, err

    def metrics(self, run):
        with open(self.path(run + "/metrics.jsonl"), encoding="utf-8") as lines:
            return [json.loads(line) for line in lines if line.endswith("\n")]

    def shares(self, run):
        """(shapes, texts, train.2) of every step, in samples."""
        return [tuple(round(line["samples"] * line["mix/" + name]) for name in ("shapes", "texts", "train.2")) for line in self.metrics(run)]

    def start(self, run, *args):
        process = subprocess.Popen([program.PROGRAM, "train", *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.wait_for(process, lambda: self.steps_of(run) >= 5, "its fifth step")
        return process

    def steps_of(self, run):
        return len(self.metrics(run)) if os.path.isfile(self.path(run + "/metrics.jsonl")) else 0

    def wait_for(self, process, condition, what):
        limit = time.monotonic() + 120
        while time.monotonic() < limit:
            self.assertIsNone(process.poll(), f"the run ended before {what}")
            if condition():
                return
            time.sleep(0.01)
        self.fail(f"two minutes without {what}")

    def forget_after(self, run, step):
        """Checkpoints behind a step are no longer there."""
        for folder in glob.glob(self.path(run + "/checkpoints/step-*")):
            if ".tmp" not in folder and int(folder.rsplit("-", 1)[1]) > step:
                os.remove(os.path.join(folder, "manifest.json"))

    # ---- by the recipe
    def test_stages_of_a_recipe(self):
        stages = "data.mix=[{until: 60, weights: {texts: 1}}, {until: 120, weights: {shapes: 2, texts: 1, train.2: 1}}, " \
                 "{until: 180, weights: {shapes: 1, texts: 0}, ramp: true}, {weights: {texts: 5, train: {2: 1}}}]"
        self.ok("check", self.recipe, stages)
        self.ok("train", self.recipe, stages, *SETTINGS, "--run", self.path("whole"), "checkpoint.every=1", "checkpoint.keep=0")
        shares = self.shares("whole")
        self.assertEqual(shares[:10], [(0, 12, 0)] * 5 + [(6, 3, 3)] * 5)
        ramp, after = shares[10:15], shares[15:]
        self.assertEqual(after, [(0, 10, 2)] * 5)
        self.assertEqual([step[0] for step in ramp], sorted((step[0] for step in ramp), reverse=True))
        self.assertGreater(ramp[0][0], 9)
        self.assertLess(ramp[-1][0], 3)
        wanted = program.losses(self.path("whole"))
        for step in (17, 12, 9, 3):
            self.forget_after("whole", step)
            self.ok("train", "--resume", self.path("whole"))
            self.assertEqual(program.losses(self.path("whole")), wanted, step)
        self.assertEqual(self.shares("whole"), shares)
        events = glob.glob(self.path("whole/events*"))
        self.assertTrue(events)
        with open(events[0], "rb") as file:
            self.assertIn(b"mix/texts", file.read())
        code, _, err = program.run("train", "--resume", self.path("whole"), "train.steps=30", "data.mix=[{weights: {texts: 1}}]")
        self.assertEqual(code, 2)
        self.assertIn("data.mix is not what the checkpoint was made with", err)
        out, _ = self.ok("mix", self.path("whole"))
        self.assertRegex(out, r"(?m)^from sample 60 +shapes 50 % · texts 25 % · train\.2 25 %$")

    # ---- while it trains
    def change_and_stop(self, run, *args):
        process = self.start(run, self.recipe, *SETTINGS, "--run", self.path(run), "train.steps=100000", "checkpoint.every=2", "checkpoint.keep=0", *args)
        out, _ = self.ok("mix", self.path(run), "texts=3", "train.2=1")
        self.assertEqual(out, "shapes 0 % · texts 75 % · train.2 25 % · taken up before the next step, or when the run is resumed\n")
        self.wait_for(process, lambda: (0, 9, 3) in self.shares(run), "the new mix")
        self.ok("mix", self.path(run), "shapes=1")
        self.wait_for(process, lambda: self.shares(run)[-3:] == [(12, 0, 0)] * 3, "the third mix")
        return process

    def check_changed(self, run):
        """Returns the first steps of the second and the third mix."""
        shares = self.shares(run)
        second, third = shares.index((0, 9, 3)), shares.index((12, 0, 0))
        self.assertGreaterEqual(second, 5)
        self.assertEqual(shares[second:third], [(0, 9, 3)] * (third - second))
        self.assertEqual(shares[third:], [(12, 0, 0)] * (len(shares) - third))
        self.assertFalse(glob.glob(self.path(run + "/mix.request*")))
        return second + 1, third + 1

    def test_a_running_training_changes_its_mix(self):
        process = self.change_and_stop("run")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, err)
        second, third = self.check_changed("run")
        said = re.findall(r"(?m)^mix     from step (\d+), sample ([\d,]+) on: (.*)$", err)
        self.assertEqual(said, [(str(second), f"{12 * (second - 1):,}", "shapes 0 % · texts 75 % · train.2 25 %"),
                                (str(third), f"{12 * (third - 1):,}", "shapes 100 % · texts 0 % · train.2 0 %")])
        wanted, steps = program.losses(self.path("run")), len(self.metrics("run"))

        # Resumed from before the changes: they are made again, at the same samples.
        for step in (third, second - 2):
            self.forget_after("run", step)
            self.ok("train", "--resume", self.path("run"), f"train.steps={steps}")
            self.assertEqual(program.losses(self.path("run")), wanted, step)
        # As a recipe, on one rank and on several.
        out, _ = self.ok("mix", self.path("run"))
        self.assertRegex(out, rf"(?m)^from sample {12 * (third - 1):,} +shapes 100 % ")
        again = re.search(r"(?m)^again +'(data\.mix=.*)'$", out).group(1)
        self.ok("train", self.recipe, *SETTINGS, again, f"train.steps={steps}", "--run", self.path("again"))
        self.assertEqual(program.losses(self.path("again")), wanted)

    def test_killed_after_a_change_on_two_ranks(self):
        for flag in ("--loopback", "--nproc"):
            run = "killed" + flag
            process = self.change_and_stop(run, flag, "2")
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            second, _ = self.check_changed(run)
            before, steps = program.losses(self.path(run)), len(self.metrics(run))
            self.forget_after(run, second - 1)
            self.ok("train", "--resume", self.path(run), flag, "2", f"train.steps={steps}")
            self.assertEqual(program.losses(self.path(run)), before)

    def test_a_request_waits_for_the_resume_and_a_bad_one_stops_nothing(self):
        self.ok("train", self.recipe, *SETTINGS, "--run", self.path("run"), "train.steps=4")
        self.ok("mix", self.path("run"), "train.2=1")
        out, _ = self.ok("mix", self.path("run"))
        self.assertIn("not taken up yet", out)
        _, err = self.ok("train", "--resume", self.path("run"), "train.steps=6")
        self.assertIn("mix     from step 5, sample 48 on: ", err)
        self.assertEqual(self.shares("run")[4:], [(0, 0, 12)] * 2)
        for bad in ("{", '{"id": "x", "weights": {"shape": 1}}', '{"id": "y", "weights": {"shapes": 0}}'):
            with open(self.path("run/mix.request.json"), "w", encoding="utf-8") as out:
                out.write(bad)
            steps = len(self.metrics("run")) + 1
            _, err = self.ok("train", "--resume", self.path("run"), f"train.steps={steps}")
            self.assertRegex(err, r"mix\.request\.json: not carried out: ")
            self.assertEqual(self.shares("run")[-1], (0, 0, 12))
            self.assertFalse(glob.glob(self.path("run/mix.request*")))

    # ---- mistakes
    def test_mistakes_of_the_command(self):
        self.ok("train", self.recipe, "--run", self.path("run"), "train.steps=1", "train.warmup=0")
        for args, needle in ((("shape=1",), "shape: no data source 'shape'; did you mean 'shapes'? (there is: shapes, texts, train.2)"),
                             (("shapes=-1",), "shapes: expected a weight from 0 to 1000000, found '-1'"),
                             (("shapes=many",), "found 'many'"), (("shapes=0",), "expected a weight above 0"),
                             (("shapes=nan",), "expected a weight"), (("shapes=1", "shapes=2"), "shapes: given twice"),
                             (("shapes",), "'shapes': expected the name of a source and its weight, as photos=3")):
            code, _, err = program.run("mix", self.path("run"), *args)
            self.assertEqual(code, 2, err)
            self.assertEqual(err.count("\n"), 1, err)
            self.assertIn(needle, err)
        code, _, err = program.run("mix", self.folder, "shapes=1")
        self.assertEqual(code, 2, err)
        self.assertFalse(glob.glob(self.path("run/mix.*")))
        out, _ = self.ok("mix", "--help")
        self.assertIn("NAME=WEIGHT", out)

    def test_mistakes_of_a_recipe(self):
        for mix, needles in (
            ("[{weights: {shape: 1}}]", ["data.mix.0.weights.shape: no data source 'shape'; did you mean 'shapes'?"]),
            ("[{until: 5, weights: {shapes: 1}}]", ["data.mix.0.until: the last stage has no end"]),
            ("[{weights: {shapes: 1}}, {weights: {texts: 1}}]", ["data.mix.0: missing until"]),
            ("[{until: 5, weights: {shapes: 1}}, {until: 5, weights: {shapes: 1}}, {weights: {texts: 1}}]",
             ["data.mix.1.until: expected more than 5, where this stage begins, found '5'"]),
            ("[{until: 5}, {until: 9}, {weights: {texts: 1}}]", ["data.mix.1: missing weights"]),
            ("[{until: 5, ramp: true}, {weights: {texts: 1}}]", ["data.mix.0: missing weights"]),
            ("[{weights: {texts: 1}, ramp: true}]", ["data.mix.0.ramp: the last stage leads to no other"]),
            ("[{weights: {texts: 0}}]", ["data.mix.0.weights: expected a weight above 0"]),
            ("[{weights: {texts: a}}]", ["data.mix.0.weights.texts: expected a weight from 0 to 1000000, found 'a'"]),
            ("[{weights: texts}]", ["data.mix.0.weights: expected weights by name of source, as in {shapes: 1}, found 'texts'"]),
            ("[{weight: {texts: 1}}]", ["data.mix.0.weight: unknown key; did you mean 'weights'?", "data.mix.0: missing weights"]),
        ):
            code, _, err = program.run("check", self.recipe, "data.mix=" + mix)
            self.assertEqual(code, 2, mix)
            for needle in needles:
                self.assertIn(needle, err)
            self.assertEqual(len(err.splitlines()), len(needles) + 1, err)
        for overrides, needle in ((["data.train.0.name=texts"], "data.train.1.name: another source is called 'texts' (data.train.0)"),
                                  (["data.train.0.name=a b"], "data.train.0.name: expected letters, digits, '_', '-' and '.', found 'a b'"),
                                  (["data.train.0.name=train.2"], "data.train.2.name: another source is called 'train.2'"),
                                  (["data.train.0.weight=2", "data.mix=[{weights: {texts: 1}}]"],
                                   "data.train.0.weight: data.mix has weights for every stage; expected one of them")):
            code, _, err = program.run("check", self.recipe, *overrides)
            self.assertEqual(code, 2, err)
            self.assertIn(needle, err)
            self.assertEqual(len(err.splitlines()), 2, err)


if __name__ == "__main__":
    unittest.main()
