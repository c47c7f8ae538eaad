"""The other side of the bench: one training process with `transformers` on CPU, printing one JSON line.

The same shapes as the recipes beside this file, with the settings that people are told to use: sdpa attention, fused AdamW, fp32, no
clipping, tensors ready before the step begins. Cases: llm, vlm, and the mixture three ways: mix_pad (padded to the longest of a
batch), mix_group (padded, batches perfectly sorted by length), mix_flat_loop (one packed row, attention once per sequence by a
function registered with transformers). Steps whose time counts run without a profiler; the time of matrix products comes from
further steps of the same process under torch's profiler.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import quiet  # noqa: E402
import workload as work  # noqa: E402

CASES = ("llm", "vlm", "mix_pad", "mix_group", "mix_flat_loop")
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addbmm", "aten::mkldnn_convolution", "aten::convolution_backward",
            "aten::_convolution", "aten::slow_conv2d_forward", "aten::thnn_conv2d", "mkldnn::_linear_pointwise",
            "mkldnn::_linear_pointwise.binary", "mkl::_mkl_linear", "mkldnn::_convolution_pointwise")
ATTENTION = ("aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_scaled_dot_product_flash_attention_for_cpu_backward")


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, default="llm")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warm", type=int, default=2, help="steps before the measured ones")
    parser.add_argument("--steps", type=int, default=3, help="measured steps of each batch")
    parser.add_argument("--profile", default="0", help="numbers of the batches that are profiled afterwards, separated by commas")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--start-only", action="store_true", help="end where the first forward would begin")
    parser.add_argument("--peak", action="store_true", help="measure the highest rate of a matrix product, and end")
    return parser.parse_args()


def text_config():
    from transformers import Qwen2Config
    return Qwen2Config(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2, intermediate_size=1408,
                       vocab_size=work.VOCAB, max_position_embeddings=4096, tie_word_embeddings=False, use_cache=False,
                       bos_token_id=1, eos_token_id=2, pad_token_id=0)


def picture_config():
    from transformers import LlavaConfig, SiglipVisionConfig
    vision = SiglipVisionConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, patch_size=16,
                                image_size=work.PICTURE_SIDE, vision_use_head=False)
    return LlavaConfig(vision_config=vision, text_config=text_config(), image_token_id=work.PICTURE_ID,
                       image_token_index=work.PICTURE_ID, image_seq_length=work.PICTURE_TOKENS,
                       vision_feature_select_strategy="full", vision_feature_layer=-1)


def make_model(case):
    from transformers import LlavaForConditionalGeneration, Qwen2ForCausalLM
    config, kind = (text_config(), Qwen2ForCausalLM) if case == "llm" else (picture_config(), LlavaForConditionalGeneration)
    config._attn_implementation = "sdpa"
    return kind(config).train()


class Batch:
    """Arguments of one forward, and the lengths of its sequences where they are packed."""

    def __init__(self, arguments, useful, lengths=None):
        self.arguments, self.useful, self.lengths = arguments, useful, lengths


class Batches:
    """Random tokens and pixels in the shapes of workload.py."""

    def __init__(self, torch):
        self.torch = torch
        self.random = torch.Generator().manual_seed(1)

    def sequence(self, picture, text):
        torch = self.torch
        ids = torch.randint(4, work.VOCAB, (text,), generator=self.random)
        labels = ids.clone()
        if picture:
            ids = torch.cat([torch.full((work.PICTURE_TOKENS,), work.PICTURE_ID), ids])
            labels = torch.cat([torch.full((work.PICTURE_TOKENS,), -100), labels])
        return ids, labels

    def pixels(self, count):
        side = work.PICTURE_SIDE
        return self.torch.randn(count, 3, side, side, generator=self.random)

    def padded(self, samples):
        torch = self.torch
        rows = [self.sequence(*sample) for sample in samples]
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        labels, mask = torch.full_like(ids, -100), torch.zeros_like(ids)
        for row, (tokens, targets) in enumerate(rows):
            ids[row, :len(tokens)], labels[row, :len(tokens)], mask[row, :len(tokens)] = tokens, targets, 1
        return self.finished(samples, {"input_ids": ids, "labels": labels, "attention_mask": mask})

    def packed(self, samples):
        """One row: positions begin again with each sequence, whose first label counts for nothing."""
        torch = self.torch
        rows = [self.sequence(*sample) for sample in samples]
        for _, labels in rows:
            labels[0] = -100
        lengths = [len(ids) for ids, _ in rows]
        return self.finished(samples, {"input_ids": torch.cat([ids for ids, _ in rows])[None],
                                       "labels": torch.cat([labels for _, labels in rows])[None],
                                       "position_ids": torch.cat([torch.arange(n) for n in lengths])[None]}, lengths)

    def finished(self, samples, arguments, lengths=None):
        pictures = sum(picture for picture, _ in samples)
        if pictures:
            arguments["pixel_values"] = self.pixels(pictures)
        return Batch(arguments, sum(map(work.length, samples)), lengths)

    def of(self, case):
        if case == "llm":
            ids = self.torch.randint(4, work.VOCAB, (work.SEQUENCES, work.SEQUENCE), generator=self.random)
            return [Batch({"input_ids": ids, "labels": ids}, ids.numel())]
        if case == "vlm":
            return [self.padded([(1, work.CAPTION_TOKENS)] * work.PICTURES)]
        samples = list(work.MIXTURE)
        if case == "mix_group":
            samples.sort(key=work.length)
        batches = work.mixture_batches(samples)
        if case == "mix_group":
            random.Random(0).shuffle(batches)
        return [self.packed(batch) if case == "mix_flat_loop" else self.padded(batch) for batch in batches]


def attend_per_sequence(torch, model, lengths):
    """Makes the language model's attention run once per sequence of a packed row; `lengths` is read at every call."""
    from transformers import AttentionInterface, AttentionMaskInterface
    attend = torch.nn.functional.scaled_dot_product_attention

    def per_sequence(module, query, key, value, attention_mask=None, scaling=None, dropout=0.0, **other):
        parts = zip(*(tensor.split(lengths, 2) for tensor in (query, key, value)))
        out = [attend(q, k, v, is_causal=True, scale=scaling, enable_gqa=True) for q, k, v in parts]
        return torch.cat(out, 2).transpose(1, 2).contiguous(), None

    AttentionInterface.register("per_sequence", per_sequence)
    AttentionMaskInterface.register("per_sequence", lambda *args, **named: None)
    model.model.language_model.config._attn_implementation = "per_sequence"


def kind_seconds(profile):
    """(matrix products, attention) of a profiled step, in seconds."""
    products = attention = 0.0
    for event in profile.key_averages():
        if event.key in PRODUCTS:
            products += event.self_cpu_time_total
        elif event.key in ATTENTION:
            attention += event.self_cpu_time_total
    return products / 1e6, attention / 1e6


def peak_rate(torch):
    """Floating-point operations per second of the best of several large products."""
    best = 0.0
    for size in (1024, 2048):
        a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
        torch.matmul(a, b, out=out)
        for _ in range(8):
            begin = time.perf_counter()
            torch.matmul(a, b, out=out)
            best = max(best, 2 * size ** 3 / (time.perf_counter() - begin))
    return best


def main():
    args = parse_args()
    import torch
    torch.set_num_threads(args.threads)
    if args.peak:
        print(json.dumps({"peak_flops": peak_rate(torch)}), flush=True)
        return 0
    import transformers
    torch.manual_seed(0)
    model = make_model(args.case)
    lengths = []
    if args.case == "mix_flat_loop":
        attend_per_sequence(torch, model, lengths)
    forward = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    batches = Batches(torch).of(args.case)
    startup = quiet.process_age()
    result = {"case": args.case, "compile": args.compile, "threads": args.threads, "torch": torch.__version__,
              "transformers": transformers.__version__, "params": sum(p.numel() for p in model.parameters()),
              "startup_seconds": startup, "useful": [batch.useful for batch in batches]}
    if args.start_only:
        print(json.dumps(result), flush=True)
        return 0

    def step(batch):
        begin = time.perf_counter()
        if batch.lengths:
            lengths[:] = batch.lengths
        loss = forward(**batch.arguments).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        result["loss"] = loss.item()
        return time.perf_counter() - begin

    # A mixture begins with the same batches as its recipe does; the order of grouped ones is not the recipe's.
    warm = [batches[i] for i in work.MIXTURE_WARM] if len(batches) > 1 else batches
    begin = time.perf_counter()
    for i in range(args.warm):
        step(warm[i % len(warm)])
    result["warm_seconds"] = time.perf_counter() - begin
    seconds = [[] for _ in batches]
    meter = quiet.Meter()
    for _ in range(args.steps):
        for number, batch in enumerate(batches):
            seconds[number].append(step(batch))
    result["seconds"] = [statistics.median(each) for each in seconds]
    result["all_seconds"] = seconds
    result["foreign_cores"] = meter.foreign()
    result["rss_peak"] = quiet.peak_bytes()
    result["products"], result["attention"], result["profiled"] = {}, {}, {}
    for number in [int(i) for i in args.profile.split(",") if i]:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            result["profiled"][number] = step(batches[number])
        result["products"][number], result["attention"][number] = kind_seconds(profile)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
