"""What `make bench` does with its numbers, on canned ones: medians, ratios, aims, the table, bench.json. And its recipes are run through
the program's own checks on the data that it writes, whose lengths must be the peer's."""

import json
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402

BENCH = os.path.join(os.environ["OMNILOOM_SOURCE"], "tests", "bench")
sys.path.insert(0, BENCH)
import launch  # noqa: E402
import long_run  # noqa: E402
import make_data  # noqa: E402
import rows  # noqa: E402
import workload  # noqa: E402


def one(seconds, products=None, rss=1000, start=1.0, useful=100):
    """A launch of one batch."""
    told = {} if products is None else {"products": {"0": products}, "profiled": {"0": seconds}}
    return {"useful": [useful], "seconds": [seconds], "products": {}, "rss_peak": rss, "startup_seconds": start, **told}


class Values(unittest.TestCase):
    def test_a_side_is_the_median_of_its_launches(self):
        side = [one(2.0), one(9.0), one(4.0)]
        self.assertEqual(rows.tokens_per_second(side), 25)
        self.assertEqual(rows.median_of([one(1, rss=7), one(1, rss=5), one(1, rss=99)], "rss_peak"), 7)

    def test_batches_of_a_mixture_have_medians_of_their_own(self):
        side = [{"useful": [10, 30], "seconds": [1, 3], "products": {"0": 3.0}, "profiled": {"0": 4.0}},
                {"useful": [10, 30], "seconds": [3, 5], "products": {"1": 1.0}, "profiled": {"1": 2.0}},
                {"useful": [10, 30], "seconds": [2, 40], "products": {}, "profiled": {}}]
        self.assertEqual(rows.tokens_per_second(side), 40 / (2 + 5))
        self.assertEqual(rows.non_gemm_seconds(side), (2 / 4 + 5 / 2) / 2)

    def test_without_times_of_products_there_is_no_row_for_the_rest(self):
        self.assertIsNone(rows.non_gemm_seconds([one(1.0)]))
        made = rows.compare("lm", (rows.NON_GEMM, rows.TOKENS), [one(1.0)], [one(2.0, 1.0)], rows.EAGER)
        self.assertEqual([row["metric"] for row in made], [rows.TOKENS])

    def test_ratios_are_ours_over_the_peers(self):
        made = rows.compare("lm", (rows.NON_GEMM, rows.TOKENS, rows.MEMORY, rows.START), [one(2.0, 1.5, 600, 1.0)] * 3,
                            [one(3.0, 1.0, 1000, 6.0)] * 2, rows.EAGER)
        by_metric = {row["metric"]: row for row in made}
        self.assertAlmostEqual(by_metric[rows.NON_GEMM]["ratio"], 0.25)
        self.assertAlmostEqual(by_metric[rows.TOKENS]["ratio"], 1.5)
        self.assertAlmostEqual(by_metric[rows.MEMORY]["ratio"], 0.6)
        self.assertAlmostEqual(by_metric[rows.START]["ratio"], 1 / 6)
        self.assertEqual({row["runs"] for row in made}, {2})


class Aims(unittest.TestCase):
    def row(self, name, metric, ratio, peer=rows.EAGER):
        return rows.make_row(name, metric, "", ratio, 1.0, peer, 5)

    def test_rates_must_be_high_and_costs_low(self):
        for metric, good, bad in ((rows.TOKENS, 1.21, 1.19), (rows.NON_GEMM, 0.49, 0.51), (rows.MEMORY, 0.69, 0.71), (rows.START, 0.19, 0.21)):
            self.assertIs(rows.is_met(self.row("lm", metric, good)), True, metric)
            self.assertIs(rows.is_met(self.row("lm", metric, bad)), False, metric)

    def test_each_peer_of_the_mixture_has_its_aim(self):
        limits = {peer: rows.aim_of(self.row("mixture", rows.TOKENS, 1, peer))[1] for peer in (rows.PADDED, rows.BY_LENGTH, rows.PER_SEQUENCE)}
        self.assertEqual(list(limits.values()), [2.2, 1.3, 1.15])

    def test_what_has_no_aim_is_neither(self):
        self.assertIsNone(rows.is_met(self.row("gemm", rows.RATE, 0.1, "torch.matmul")))

    def test_shapes_of_a_piece_share_its_aim(self):
        self.assertIs(rows.is_met(self.row("attention/ragged/full/forward", "piece_seconds", 0.6, "ATen composition")), True)
        self.assertIs(rows.is_met(self.row("attention/ragged", "piece_seconds", 0.7, "ATen composition")), False)
        self.assertIsNone(rows.is_met(self.row("attention/one/full", "piece_seconds", 0.9, "ATen composition")))


class Pieces(unittest.TestCase):
    def test_fused_and_composed_are_paired(self):
        def runs(name, times):
            return [{"name": name, "run_name": name + "/real_time", "run_type": "iteration", "real_time": t, "time_unit": "ms"} for t in times]
        median = {"name": "norm/rms/fused/real_time_median", "run_name": "norm/rms/fused/real_time", "run_type": "aggregate", "real_time": 77}
        report = {"benchmarks": runs("norm/rms/fused", [1, 9, 2]) + runs("norm/rms/composed", [4, 5, 3]) + runs("alone/fused", [1]) + [median]
                  + runs("norm/rms/sdpa", [8, 8])}
        made = rows.pieces(report)
        self.assertEqual([(row["peer_name"], row["ratio"]) for row in made], [("ATen composition", 0.5), ("sdpa by segments", 0.25)])
        self.assertEqual((made[0]["name"], made[0]["ours"], made[0]["peer"], made[0]["ratio"], made[0]["runs"]), ("norm/rms", 0.002, 0.004, 0.5, 3))


class Files(unittest.TestCase):
    def test_rows_have_the_agreed_keys(self):
        row = rows.make_row("lm", rows.TOKENS, "tokens/s", 3.0, 2.0, rows.EAGER, 5)
        self.assertEqual(list(row), ["name", "metric", "unit", "dtype", "ours", "peer", "peer_name", "ratio", "runs"])
        self.assertEqual(json.loads(json.dumps([row])), [row])

    def test_a_part_replaces_its_own_rows_only(self):
        old = [rows.make_row("lm", rows.TOKENS, "", 1, 1, rows.EAGER, 5), rows.make_row("vlm", rows.TOKENS, "", 1, 1, rows.EAGER, 5)]
        new = [rows.make_row("lm", rows.TOKENS, "", 2, 1, rows.EAGER, 3)]
        self.assertEqual([(row["name"], row["ratio"]) for row in rows.merged(old, new)], [("vlm", 1), ("lm", 2)])

    def test_the_table_says_what_is_missed_and_what_is_only_a_look(self):
        text = rows.table([rows.make_row("lm", rows.TOKENS, "tokens/s", 1100, 1000, rows.EAGER, 3),
                           rows.make_row("lm", rows.MEMORY, "bytes", 6e8, 1e9, rows.EAGER, 5)])
        self.assertIn("NOT met (only 3 runs)", text[1])
        self.assertTrue(text[2].endswith("met"), text[2])
        self.assertIn("572 MiB", text[2])


class Steps(unittest.TestCase):
    def lines(self, tokens):
        return [{"step": i + 1, "tokens": t, "seconds": float(i), "rss_peak": 10 * i, "time/gemm": 0.5, "startup_seconds": 0.7}
                for i, t in enumerate(tokens)]

    def test_warm_steps_do_not_count(self):
        got = launch.read_steps("lm", self.lines([2048] * 5))
        self.assertEqual((got["seconds"], got["products"], got["profiled"]), ([3.0], {0: 1.5}, {0: 9.0}))
        self.assertEqual((got["rss_peak"], got["startup_seconds"]), (40, 0.7))

    def test_other_tokens_than_the_peers_are_refused(self):
        with self.assertRaisesRegex(launch.Failed, "step 4 had 2047 tokens"):
            launch.read_steps("lm", self.lines([2048, 2048, 2048, 2047, 2048]))


class LongRun(unittest.TestCase):
    def lines(self, slow=1.0, wait=0.001):
        steps = [{"step": i + 1, "tokens": 2000 + i % 3, "seconds": 1.0, "data_seconds": wait} for i in range(40)]
        steps[30]["seconds"] = slow
        return steps

    def test_an_even_run_passes(self):
        self.assertEqual(long_run.faults(long_run.figures(self.lines())), [])

    def test_waiting_and_slow_steps_are_told(self):
        self.assertIn("data", long_run.faults(long_run.figures(self.lines(wait=0.02)))[0])
        self.assertIn("step 31", long_run.faults(long_run.figures(self.lines(slow=1.6)))[0])


class Recipes(unittest.TestCase):
    def test_the_program_gets_from_the_recipes_what_the_peer_trains_on(self):
        with tempfile.TemporaryDirectory(prefix="omniloom-test-") as folder:
            make_data.write(folder)
            for case in ("lm", "vlm", "mixture"):
                recipe = os.path.join(BENCH, "recipes", case + ".yaml")
                code, out, error = program.run("data", "check", recipe, env={"BENCH_DATA": folder})
                self.assertEqual(code, 0, out + error)
                warm = [workload.mixture_batches()[i] for i in workload.MIXTURE_WARM]
                wanted = {"lm": 32 * 2048, "vlm": 32 * 2080, "mixture": sum(workload.useful_tokens("mixture"))
                          + sum(workload.length(sample) for batch in warm for sample in batch)}[case]
                self.assertEqual(re.search(r"([\d,]+) in all", out)[1], f"{wanted:,}", out)
                self.assertIn("0 skipped · 0 left out", out)
                code, out, error = program.run("plan", recipe, env={"BENCH_DATA": folder})
                self.assertEqual(code, 0, out + error)

    def test_the_mixture_is_the_one_that_was_drawn(self):
        self.assertEqual(sum(workload.useful_tokens("mixture")), 15303)
        self.assertEqual(sum(picture for picture, _ in workload.MIXTURE), 32)
        self.assertEqual(workload.useful_tokens("mixture")[:3], [1787, 2340, 1678])


if __name__ == "__main__":
    unittest.main()
