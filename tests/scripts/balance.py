"""What every rank did: ranks.jsonl and timeline.json of a run on four ranks agree with its plan and with metrics.jsonl, also after a resume; one rank
has a timeline alone."""

import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402

WORLD = 4
COMPONENTS = ("encoders.image", "connectors.image", "backbone")
PARTS = COMPONENTS + ("data", "optimizer", "between", "other")


class Balance(unittest.TestCase):
    def setUp(self):
        temp = program.temp_folder()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name
        self.run = os.path.join(self.folder, "run")
        self.recipe = program.write_recipe(self.folder, budget=24, heads="heads: 4, kv_heads: 2")  # several microbatches

    def train(self, *args):
        code, _, err = program.run("train", *args)
        self.assertEqual(code, 0, err)
        return err

    def lines(self, name):
        with open(os.path.join(self.run, name), encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def timeline(self):
        with open(os.path.join(self.run, "timeline.json"), encoding="utf-8") as file:
            return json.load(file)

    def report(self):
        with open(os.path.join(self.run, "report.html"), encoding="utf-8") as file:
            return file.read()

    def check_line(self, line, metrics):
        self.assertEqual(sorted(line["components"]), sorted(COMPONENTS))
        for component, of in line["components"].items():
            self.assertTrue(all(len(values) == WORLD for values in of.values()), line)
            counted = of["samples" if component == "backbone" else "items"]
            self.assertEqual(sum(counted), metrics["samples"], component)  # every sample has one picture
            self.assertGreater(sum(of["predicted"]), 0)
            self.assertGreater(sum(of["compute"]), 0)
            for name in ("compute", "communication", "waiting"):
                self.assertTrue(all(value >= 0 for value in of[name]), of)
            for waiting, communication in zip(of["waiting"], of["communication"]):
                self.assertLessEqual(waiting, communication * 1.00001 + 1e-9)
            self.assertTrue(all(sent > 0 for sent in of["sent"]), of)
        sums = {component: sum(of["tokens"]) for component, of in line["components"].items()}
        self.assertEqual(sums["backbone"], metrics["tokens"])
        self.assertEqual(sums["encoders.image"], 4 * metrics["samples"])  # of 8x8 pixels in patches of 4
        self.assertEqual(sums["connectors.image"], 4 * metrics["samples"])
        # What no component sends is the norm, which counts, and statistics, which do not.
        inside = sum(sum(of["sent"]) for of in line["components"].values())
        self.assertLess(inside, metrics["bytes_sent"])
        self.assertGreater(inside + sum(line["sent"]), metrics["bytes_sent"])
        for wait in line["waits"]:
            self.assertNotEqual(wait["rank"], wait["for"])
            self.assertIn(wait["component"], PARTS)
        self.assertEqual(line["waits"], sorted(line["waits"], key=lambda wait: -wait["seconds"]))
        self.assertAlmostEqual(max(line["compute"]), metrics["critical_path"], delta=1e-5 * metrics["critical_path"])

    def check_metrics(self, metrics):
        for component in COMPONENTS:
            self.assertGreaterEqual(metrics["imbalance_measured/" + component], 1)
            self.assertLessEqual(metrics["imbalance_measured/" + component], WORLD)
        self.assertTrue(0 <= metrics["wait_share"] <= 1, metrics)
        self.assertLessEqual({name[5:] for name in metrics if name.startswith("wait/")}, set(PARTS))

    def check(self, steps):
        ranks, metrics = self.lines("ranks.jsonl"), self.lines("metrics.jsonl")
        self.assertEqual([line["step"] for line in ranks], list(range(1, steps + 1)))
        for line, numbers in zip(ranks, metrics):
            self.check_line(line, numbers)
            self.check_metrics(numbers)
        return ranks

    def test_files_of_four_ranks_agree_with_the_plan(self):
        err = self.train(self.recipe, "--run", self.run, "--loopback", str(WORLD), "parallel.backbone.shard=2")
        self.assertRegex(err, r"\nranks   waiting \d+ %( · most for rank \d('s \S+| between steps)?)?\n")
        first = self.check(12)[0]
        for component, of in first["components"].items():
            self.assertEqual(of["sent_predicted"], of["sent"], component)
        page = self.report()
        for words in ("<h2>Ranks</h2>", 'class="lanes"', "rank 3 · backbone backward", "Most over mean: encoders.image"):
            self.assertIn(words, page)
        timeline = self.timeline()
        self.assertEqual((timeline["step"], len(timeline["ranks"])), (12, WORLD))
        for bars in timeline["ranks"]:
            self.assertTrue(all(0 <= bar["begin"] <= bar["end"] for bar in bars), bars)
            self.assertTrue(any(bar.get("communication") for bar in bars))
            for component in COMPONENTS:
                for action in ("forward", "backward"):
                    self.assertTrue(any(bar["component"] == component and bar["action"] == action for bar in bars), component)

        with open(os.path.join(self.run, "ranks.jsonl"), encoding="utf-8") as file:
            kept = file.read().splitlines()
        with open(os.path.join(self.run, "ranks.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"step":13,"components":{}}\n{"step":14,"com')
        self.train("--resume", self.run, "--loopback", str(WORLD), "train.steps=15")
        self.check(15)
        with open(os.path.join(self.run, "ranks.jsonl"), encoding="utf-8") as file:
            self.assertEqual(file.read().splitlines()[:12], kept)
        self.assertEqual(self.timeline()["step"], 15)

    def test_items_that_may_not_move_lie_where_their_samples_do(self):
        self.train(self.recipe, "--run", self.run, "--loopback", str(WORLD), "parallel.balance={move: false, split: false}")
        for line in self.check(12):
            self.assertEqual(line["components"]["encoders.image"]["items"], line["components"]["backbone"]["samples"])

    def test_one_rank_has_a_timeline_alone(self):
        err = self.train(self.recipe, "--run", self.run)
        self.assertNotIn("\nranks ", err)
        self.assertEqual(len(self.timeline()["ranks"]), 1)
        page = self.report()
        self.assertIn("<h2>One step</h2>", page)
        self.assertNotIn("<h2>Ranks</h2>", page)
        self.assertFalse(os.path.exists(os.path.join(self.run, "ranks.jsonl")))
        for line in self.lines("metrics.jsonl"):
            self.assertFalse([name for name in line if re.match("imbalance|wait|critical", name)], line)


if __name__ == "__main__":
    unittest.main()
