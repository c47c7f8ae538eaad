"""Data that people have, through the program: a folder of pictures with captions, chat files, held-out shares, and what is wrong with them."""

import base64
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import own_pictures  # noqa: E402
import program  # noqa: E402

HEADER = ("omniloom 0", "model  ", "data  ", "run  ", "eval  ")


def picture(value, side=8):
    return own_pictures.png(side, side, bytes((value * 40 + x * y) % 256 for y in range(side) for x in range(side)))


class ChatData(unittest.TestCase):
    def setUp(self):
        temp = program.temp_folder()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as out:
            out.write(data if isinstance(data, bytes) else data.encode())
        return self.path(name)

    def recipe(self, train, data="", steps=6):
        return self.write("recipe.yaml", f"""name: own
model:
  encoders: {{image: {{plugin: vit, image_size: 8, patch: 4, width: 16, depth: 1, heads: 2}}}}
  connectors: {{image: {{plugin: mlp, hidden: 16}}}}
  backbone: {{plugin: llama, width: 16, depth: 1, heads: 2, kv_heads: 1, ffn: 32}}
data: {{budget: 160, train: [{train}]{data}}}
train: {{steps: {steps}, batch: 8 samples, lr: 1e-2, warmup: 2, threads: 1}}
""")

    def trained(self, recipe, *overrides, run="run"):
        code, _, err = program.run("train", recipe, "--run", self.path(run), *overrides)
        self.assertEqual(code, 0, err)
        return program.losses(self.path(run))

    def skips(self, run="run"):
        with open(self.path(run + "/skips.jsonl"), encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def write_folder(self, count=40, cut=()):
        for i in range(count):
            whole = picture(i % 4)
            self.write(f"pics/{i:02}.png", whole[: len(whole) // 2] if i in cut else whole)
            self.write(f"pics/{i:02}.txt", f"picture {i % 4}\n")
        return self.path("pics")

    def write_chat(self, name="chat.jsonl", count=40, bad=""):
        lines = []
        for i in range(count):
            self.write(f"img/{i % 4}.png", picture(i % 4))
            self.write(f"img/{i % 4}-large.png", picture(i % 4, 24))
            answer = f"It is {i % 4}."
            forms = [
                {"messages": [{"role": "user", "content": "<image>Which?"}, {"role": "assistant", "content": answer}], "images": [f"img/{i % 4}.png"]},
                {"conversations": [{"from": "human", "value": "<image>\nWhich?"}, {"from": "gpt", "value": answer}], "image": f"img/{i % 4}.png"},
                {"messages": [{"role": "system", "content": "Be brief."},
                              {"role": "user", "content": [{"type": "image", "image": f"img/{i % 4}-large.png"}, {"type": "text", "text": "Which?"}]},
                              {"role": "assistant", "content": answer}, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."}]},
                {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {
                    "url": "data:image/png;base64," + base64.b64encode(picture(i % 4)).decode()}}]}, {"role": "assistant", "content": answer}]},
                {"image": f"img/{i % 4}.png", "caption": answer},
                {"text": "Only text."},
            ]
            lines.append(json.dumps(forms[i % len(forms)]))
        lines.insert(5, bad)
        return self.write(name, "\ufeff" + "\r\n".join(lines) + "\r\n")

    # ---- what works
    def test_folder_with_a_broken_file(self):
        recipe = self.recipe(f"{{path: {self.write_folder(cut=(7,))}}}", steps=12)
        losses = self.trained(recipe)
        self.assertEqual(len(losses), 12)
        skips = self.skips()
        self.assertEqual({skip["name"] for skip in skips}, {"train.0#7"})
        for skip in skips:
            self.assertIn("pics/07.png: ", skip["reason"])
            self.assertNotIn("\n", skip["reason"])
            self.assertFalse(skip["left_out"])
        again = self.trained(recipe, run="again")
        self.assertEqual(again, losses)
        # The same after a resume.
        self.trained(recipe, "train.steps=12", "checkpoint.every=4", "checkpoint.keep=0", run="parts")
        for name in ("step-12", "step-8"):
            os.remove(self.path(f"parts/checkpoints/{name}/manifest.json"))
        code, _, err = program.run("train", "--resume", self.path("parts"))
        self.assertEqual(code, 0, err)
        self.assertEqual(program.losses(self.path("parts")), losses)

    def test_too_many_broken_files_stop_with_a_list(self):
        recipe = self.recipe(f"{{path: {self.write_folder(120, cut=range(0, 120, 6))}}}", steps=40)
        code, _, err = program.run("train", recipe, "--run", self.path("run"))
        self.assertEqual(code, 2, err)
        self.assertIn("more than data.max_skip_rate = 0.05; train.0#", err)
        self.assertIn("skips.jsonl", err)
        self.assertGreater(len(self.skips()), 5)

    def test_chat_in_every_form_at_once(self):
        chat = self.write_chat(bad='{"messages": [{"role": "user", "content": "<image><image>"}, {"role": "assistant", "content": "x"}], "images": ["img/0.png"]}')
        recipe = self.recipe(f"{{path: {chat}}}", steps=12)
        losses = self.trained(recipe)
        self.assertLess(float(losses[-1][1]), float(losses[0][1]))
        for skip in self.skips():
            self.assertEqual(skip["name"], "train.0#5")
            self.assertEqual(skip["reason"], f"{chat}:6: images: 2 <image> marks in the text, but 1 picture")
        # The same samples as one array.
        with open(chat, encoding="utf-8-sig") as lines:
            samples = [json.loads(line) for line in lines if line.strip()]
        array = self.write("chat2.json", json.dumps(samples, indent=1))
        self.assertEqual(self.trained(self.recipe(f"{{path: {array}}}", steps=12), run="array"), losses)

    def test_weights_of_both_kinds_and_a_held_out_share(self):
        recipe = self.recipe(f"{{path: {self.write_chat(bad='')}, weight: 3}}, {{path: {self.write_folder()}, prompt: 'What is it?'}}",
                             data=", hold_out: 0.25")
        self.trained(recipe, "eval.every=6", "eval.metric=loss")
        code, out, err = program.run("check", recipe)
        self.assertEqual(code, 0, err)
        counts = {}
        for line in out.splitlines():
            if line.startswith(("train", "eval")):
                words = line.replace(":", "").split()
                counts[words[0], words[1]] = int(words[2])
        for source in ("train.0", "train.1"):
            self.assertEqual(counts["train", source] + counts["eval", source], 40, out)
            self.assertGreater(counts["eval", source], 2)
        code, out, err = program.run("eval", self.path("run"))
        self.assertEqual(code, 0, err)

    def test_names_become_captions(self):
        for label in ("circle", "square"):
            for i in range(10):
                self.write(f"pics/{label}/{i}.png", picture(i))
        self.trained(self.recipe(f'{{path: {self.path("pics")}, caption: "a {{folder}}"}}'))

    def test_a_step_without_supervised_tokens(self):
        self.write("x.jsonl", '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "loss": false}]}\n' * 8)
        recipe = self.recipe(f"{{path: {self.path('x.jsonl')}}}", data=", unsupervised: keep", steps=3)
        self.assertEqual(len(self.trained(recipe)), 3)
        self.fails("no supervised token", args=("train", recipe, "--run", self.path("b"), "data.unsupervised=error"))
        self.fails("can be used", "no supervised token", args=("train", recipe, "--run", self.path("c"), "data.unsupervised=skip"))

    # ---- what does not
    def fails(self, *needles, args=None, recipe=None, lines=1):
        code, _, err = program.run(*(args or ("train", recipe, "--run", self.path("bad"))))
        self.assertEqual(code, 2, err)
        shown = [line for line in err.splitlines() if line.strip() and not line.startswith(HEADER)]
        self.assertEqual(len(shown), lines, err)
        for needle in needles:
            self.assertIn(needle, err)

    def test_mistakes_of_recipes(self):
        pics, chat = self.write_folder(4), self.write_chat(count=4)
        self.fails("recipe.yaml:6:", "data.train.0.path: ", "no such file; did you mean '", "chat.jsonl'?", recipe=self.recipe(f"{{path: {chat[:-9]}chatt.jsonl}}"))
        self.fails("no such file or folder", "pics'?", recipe=self.recipe(f"{{path: {pics}s}}"), lines=2)
        self.fails("no source type 'foldr'; did you mean 'folder'?", recipe=self.recipe(f"{{type: foldr, path: {pics}}}"), lines=2)
        self.fails("data.train.0.captoin: unknown key; did you mean 'caption'?", recipe=self.recipe(f"{{path: {pics}, captoin: x}}"), lines=2)
        self.fails("expected path (a .jsonl or .json file", recipe=self.recipe("{weight: 3}"), lines=2)
        self.fails("data.hold_outt: unknown key; did you mean 'hold_out'?", recipe=self.recipe(f"{{path: {pics}}}", data=", hold_outt: 0.1"), lines=2)
        self.fails("data.hold_out: expected a number from 0 to 0.5", recipe=self.recipe(f"{{path: {pics}}}", data=", hold_out: 0.9"), lines=2)
        self.fails("data.hold_out: data.eval is given, too", lines=2,
                   recipe=self.recipe(f"{{path: {pics}}}", data=f", hold_out: 0.1, eval: [{{path: {pics}}}]"))
        self.fails("data.over_long: expected one of", "did you mean 'shrink_media'?",
                   recipe=self.recipe(f"{{path: {pics}}}", data=", over_long: shrink_medai"), lines=2)
        for i in range(4):
            os.remove(self.path(f"pics/{i:02}.txt"))
        self.fails("4 pictures, but no caption: put a text beside each (00.png and 00.txt), or set caption", recipe=self.recipe(f"{{path: {pics}}}"))


if __name__ == "__main__":
    unittest.main()
