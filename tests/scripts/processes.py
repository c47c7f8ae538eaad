"""Several ranks as processes: all that loopback.py asks of threads, and what only processes can get wrong. Launchers: our own, torchrun,
Open MPI's mpirun."""

import json
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import loopback  # noqa: E402
import program  # noqa: E402
import ranks as processes  # noqa: E402


class Processes(loopback.Ranks, unittest.TestCase):
    flag, kind = "--nproc", "processes"

    # ---- precision
    def test_weights_gathered_in_bf16_give_the_loss_of_one_rank(self):
        self.train("one", 1, "train.precision=bf16")
        self.train("two", 2, "train.precision=bf16")
        got, wanted = (loopback.metrics(self.path(run)) for run in ("two", "one"))
        for a, b in zip(got, wanted):
            self.assertLessEqual(abs(a["loss"] - b["loss"]), 2e-2 * abs(b["loss"]), f"step {b['step']}")
        # Half the bytes for weights, the same for gradients.
        self.train("wide", 2, "train.precision=fp32")
        wide = loopback.metrics(self.path("wide"))
        self.assertLess(got[1]["bytes_sent"], 0.95 * wide[1]["bytes_sent"])

    # ---- between neighbours
    def test_large_messages_from_memory_to_memory_are_those_of_sockets(self):
        size = ("model.backbone.width=96", "model.backbone.ffn=256")
        self.train("one", 1, *size)
        for ranks, layout in ((2, []), (4, ["parallel.backbone={sp: 2, shard: 2}"])):
            for way in ("memory", "sockets"):
                self.train(f"{way}{ranks}", ranks, *size, *layout, f"parallel.neighbors={way}")
                self.assert_close(f"{way}{ranks}", "one")
            self.assertEqual(program.losses(self.path(f"memory{ranks}")), program.losses(self.path(f"sockets{ranks}")))

    # ---- ranks that do not mean the same
    def lines_of(self, ranks, code):
        out = []
        for rank in ranks:
            self.assertEqual(rank.wait(), code, rank.text())
            out.append(rank.last_line())
        return out

    def together(self, **options):
        ranks = processes.start(self.folder, 2, ["train", self.recipe, "--run", self.path("run")], **options)
        self.addCleanup(processes.end, ranks)
        return ranks

    def test_another_recipe_on_one_rank(self):
        args = ["train", self.recipe, "--run", self.path("run"), "train.lr=3e-3"]
        for line in self.lines_of(self.together(own_args={1: args}), 2):
            self.assertIn("rank 1: its recipe differs from rank 0's in line", line)
            self.assertIn("'lr: 0.003' instead of 'lr: 0.01'", line)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_a_plugin_built_differently_on_one_rank(self):
        built = os.path.join(os.path.dirname(program.PROGRAM), "../lib/omniloom/plugins/libmlp.omniloom.so")
        places = {}
        for rank in range(2):
            os.makedirs(self.path(f"node{rank}"))
            shutil.copy(built, self.path(f"node{rank}"))
            places[rank] = {"PLUGINS_HERE": self.path(f"node{rank}")}
        with open(self.path("node1/libmlp.omniloom.so"), "ab") as out:
            out.write(b"another build")
        with open(self.recipe, "a", encoding="utf-8") as out:
            out.write('plugins: ["${PLUGINS_HERE}"]\n')
        for line in self.lines_of(self.together(extra=places), 2):
            self.assertIn("rank 1: its program differs from rank 0's in line", line)
            self.assertIn("'mlp 0.1.0 ", line)

    def test_a_port_that_is_taken(self):
        with processes.socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            port = taken.getsockname()[1]
            rank = processes.start(self.folder, 2, ["train", self.recipe, "--run", self.path("run")], port=port)
            self.addCleanup(processes.end, rank)
            self.assertEqual(rank[0].wait(), 2, rank[0].text())
            self.assertIn(f"127.0.0.1:{port}: the port is taken", rank[0].last_line())

    # ---- other launchers
    def trained(self, command, env=None):
        done = subprocess.run(command, env=dict(os.environ, OMP_NUM_THREADS="1", **(env or {})), capture_output=True, text=True,
                              timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.train("one", 1)
        self.assert_close("run", "one")
        return done.stdout + done.stderr

    def test_torchrun(self):
        torch = os.environ.get("OMNILOOM_TORCH", "")
        if not os.path.isfile(os.path.join(torch, "distributed/run.py")):
            self.skipTest("this LibTorch is no Python package, so it has no torchrun")
        out = self.trained([sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node", "2", "--",
                            program.PROGRAM, "train", self.recipe, "--run", self.path("run")], {"PYTHONPATH": os.path.dirname(torch)})
        self.assertIn("2 ranks (torchrun)", out)

    def test_mpirun(self):
        self.assertTrue(shutil.which("mpirun"), "set-up installs openmpi-bin for this test")
        out = self.trained(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", program.PROGRAM, "train", self.recipe, "--run",
                            self.path("run")])
        self.assertIn("2 ranks (openmpi)", out)

    def test_launchers_exclude_each_other(self):
        code, _, err = program.run("train", self.recipe, "--nproc", "2", "--loopback", "2")
        self.assertEqual(code, 2, err)
        code, _, err = program.run("train", self.recipe, "--nproc", "2", env={"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                                   "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"})
        self.assertEqual(code, 2, err)
        self.assertIn("torchrun has started this process as a rank", err)

    # ---- bytes
    def test_bytes_are_those_of_threads(self):
        for layout in ([], ["parallel.backbone={sp: 2, shard: 2}"]):
            shutil.rmtree(self.path("run"), ignore_errors=True)
            shutil.rmtree(self.path("threads"), ignore_errors=True)
            self.train("run", 2, *layout)
            self.ok("train", self.recipe, "--run", self.path("threads"), "--loopback", "2", *layout)
            self.assertEqual(*([line["bytes_sent"] for line in loopback.metrics(self.path(run))] for run in ("run", "threads")))


if __name__ == "__main__":
    unittest.main()
