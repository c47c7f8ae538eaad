"""Where the time goes: times in metrics.jsonl and timing.jsonl add up, also after a resume; --profile writes a trace that a browser can read."""

import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402

KINDS = ("gemm", "attention", "other", "optimizer", "data", "rest")


def lines_of(run, name):
    with open(os.path.join(run, name), encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Times(unittest.TestCase):
    def setUp(self):
        self.folder = program.temp_folder()
        self.addCleanup(self.folder.cleanup)
        self.run_folder = os.path.join(self.folder.name, "run")

    def recipe(self, **options):
        return program.write_recipe(self.folder.name, **options)

    def train(self, *args):
        code, _, err = program.run("train", *args)
        self.assertEqual(code, 0, err)
        return err

    def check_times(self, steps, communication=False):
        kinds = KINDS + (("communication",) if communication else ())
        metrics = lines_of(self.run_folder, "metrics.jsonl")
        timing = lines_of(self.run_folder, "timing.jsonl")
        self.assertEqual([line["step"] for line in metrics], list(range(1, steps + 1)))
        self.assertEqual([line["step"] for line in timing], list(range(1, steps + 1)))
        for step, times in zip(metrics, timing):
            self.assertEqual(sorted(name for name in step if name.startswith("time/")), sorted("time/" + kind for kind in kinds))
            total = sum(step["time/" + kind] for kind in kinds)
            self.assertAlmostEqual(total, step["seconds"], delta=1e-6 * step["seconds"])
            self.assertEqual(step["time/data"], step["data_seconds"])
            self.assertGreater(step["time/gemm"], 0)
            self.assertGreater(step["time/optimizer"], 0)
            for kind in ("gemm", "attention", "other"):
                inside = sum(unit[way].get(kind, 0) for unit in times["units"] for way in ("forward", "backward"))
                # Products between units, if any, belong to the step alone.
                self.assertLessEqual(inside, step["time/" + kind] * (1 + 1e-4) + 1e-9)
                self.assertGreaterEqual(inside, step["time/" + kind] * 0.95 - 1e-9)
            names = [unit["unit"] for unit in times["units"]]
            self.assertEqual(len(names), len(set(names)))
            self.assertIn("backbone.blocks.0", names)
            for unit in times["units"]:
                self.assertGreater(sum(unit["forward"].values()), 0, unit)
        return timing

    def test_times_add_up_and_a_resume_keeps_the_files_in_step(self):
        err = self.train(self.recipe(), "--run", self.run_folder)
        self.assertRegex(err, r"\ntime    gemm \d+ % · (attention \d+ % · )?other \d+ % · optimizer \d+ % · data \d+ %")
        timing = self.check_times(12)
        for unit in timing[-1]["units"]:
            self.assertEqual("flops" in unit, any(unit[way]["gemm"] > 0 for way in ("forward", "backward")), unit)
        losses = program.losses(self.run_folder)
        with open(os.path.join(self.run_folder, "timing.jsonl"), encoding="utf-8") as file:
            kept = file.read().splitlines()[:12]
        with open(os.path.join(self.run_folder, "timing.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"step":13,"units":[]}\n{"step":14,"un')
        self.train("--resume", self.run_folder, "train.steps=16")
        self.check_times(16)
        with open(os.path.join(self.run_folder, "timing.jsonl"), encoding="utf-8") as file:
            self.assertEqual(file.read().splitlines()[:12], kept)
        self.assertEqual(program.losses(self.run_folder)[:12], losses)
        with open(os.path.join(self.run_folder, "report.html"), encoding="utf-8") as page:
            self.assertIn("Where the time goes", page.read())

    def test_ranks_also_talk(self):
        self.train(self.recipe(), "--run", self.run_folder, "--loopback", "2")
        metrics = lines_of(self.run_folder, "metrics.jsonl")
        self.check_times(12, communication=True)
        self.assertGreater(metrics[-1]["time/communication"], 0)


class Profile(unittest.TestCase):
    def setUp(self):
        self.folder = program.temp_folder()
        self.addCleanup(self.folder.cleanup)
        self.run_folder = os.path.join(self.folder.name, "run")
        self.recipe = program.write_recipe(self.folder.name)

    def names_of(self, path):
        with open(path, encoding="utf-8") as file:
            trace = json.load(file)
        events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
        return {event["name"] for event in events}, events

    def check_trace(self, path, steps):
        names, events = self.names_of(path)
        self.assertEqual(sorted(name for name in names if re.fullmatch(r"step \d+", name)), sorted(f"step {step}" for step in steps))
        for name in ("data wait", "batch", "gradient norm", "optimizer", "backbone.blocks.0 forward", "backbone.blocks.0 backward",
                     "connectors.image.project backward"):
            self.assertIn(name, names)
        self.assertTrue(any(name.startswith(("aten::", "loom::")) for name in names))
        spans = {event["name"]: event for event in events if event["name"] in ("backbone.blocks.0 forward", f"step {steps[-1]}")}
        inner, outer = spans["backbone.blocks.0 forward"], spans[f"step {steps[-1]}"]
        self.assertGreaterEqual(inner["ts"], outer["ts"] - 1)
        self.assertLessEqual(inner["ts"] + inner["dur"], outer["ts"] + outer["dur"] + 1)

    def test_three_steps_by_default_and_nothing_else_changes(self):
        code, _, err = program.run("train", self.recipe, "--run", self.run_folder, "--profile")
        self.assertEqual(code, 0, err)
        trace = os.path.join(self.run_folder, "trace.json")
        self.assertIn(f"profile steps 3 to 5 · {trace} · open it in Perfetto (ui.perfetto.dev) or chrome://tracing\n", err)
        self.check_trace(trace, [3, 4, 5])
        other = os.path.join(self.folder.name, "other")
        code, _, err = program.run("train", self.recipe, "--run", other)
        self.assertEqual(code, 0, err)
        self.assertEqual(program.losses(self.run_folder), program.losses(other))
        self.assertFalse(os.path.exists(os.path.join(other, "trace.json")))

    def test_steps_and_file_of_ones_own(self):
        file = os.path.join(self.folder.name, "deep", "mine.json")
        code, _, err = program.run("train", self.recipe, "--run", self.run_folder, f"--profile={file}", "--profile-steps", "11:40")
        self.assertEqual(code, 0, err)
        self.assertIn("profile steps 11 to 12 · ", err)
        self.check_trace(file, [11, 12])
        code, _, err = program.run("train", "--resume", self.run_folder, "train.steps=14", f"--profile={file}", "--profile-steps", "14")
        self.assertEqual(code, 0, err)
        self.check_trace(file, [14])
        code, _, err = program.run("train", "--resume", self.run_folder, "train.steps=20", "--profile")
        self.assertEqual(code, 0, err)
        self.assertIn("profile steps 17 to 19 · ", err)

    def test_rank_0_of_several(self):
        code, _, err = program.run("train", self.recipe, "--run", self.run_folder, "--loopback", "2", "--profile", "--profile-steps", "2:3")
        self.assertEqual(code, 0, err)
        trace = os.path.join(self.run_folder, "trace.json")
        self.check_trace(trace, [2, 3])
        self.assertTrue(any(name.startswith("loom::comm ") for name in self.names_of(trace)[0]))

    def test_mistakes_are_one_line(self):
        for args, wanted in ((["--profile", "--profile-steps", "5:3"], "--profile-steps 5:3: step 3 comes before step 5"),
                             (["--profile", "--profile-steps", "a"], "--profile-steps a: expected FIRST:LAST, the numbers of two steps, as in 3:5"),
                             (["--profile", "--profile-steps", "0:2"], "--profile-steps 0:2: expected FIRST:LAST, the numbers of two steps, as in 3:5"),
                             (["--profile-steps", "3:5"], "--profile-steps goes with --profile"),
                             (["--profile", "--profile-steps", "30:40"], "--profile-steps 30:40: the run ends at step 12"),
                             (["--profile", "mine.json"], "'mine.json' is no recipe; a file for the profile is written as --profile=mine.json")):
            code, _, err = program.run("train", self.recipe, "--run", self.run_folder, *args)
            self.assertEqual((code, err.strip()), (2, wanted), args)
            self.assertFalse(os.path.exists(self.run_folder), args)
        code, _, err = program.run("train", self.recipe, "--run", self.run_folder)
        self.assertEqual(code, 0, err)
        code, _, err = program.run("train", "--resume", self.run_folder, "train.steps=20", "--profile", "--profile-steps", "3:5")
        self.assertEqual((code, err.strip().splitlines()[-1]), (2, "--profile-steps 3:5: the run goes on at step 13"))


if __name__ == "__main__":
    unittest.main()
