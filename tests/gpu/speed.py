"""What the steps of a run say about its speed, without the first ones: speed.py NAME RUN [WARM]. One line."""

import json
import os
import statistics
import sys


def main(name, run, warm=6):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
        steps = [json.loads(line) for line in lines][int(warm):]
    if not steps:
        sys.exit(f"{run}: too few steps to tell a speed")
    median = lambda key: statistics.median(step.get(key, 0) for step in steps)  # noqa: E731
    words = [f"{median('tokens_per_second'):,.0f} tokens/s", f"{1000 * median('seconds'):,.1f} ms a step"]
    if median("flops_per_second") > 0:
        words.append(f"{median('flops_per_second') / 1e12:,.1f} TFLOP/s")
    if median("peak_share") > 0:
        words.append(f"MFU {100 * median('peak_share'):.1f} % of the measured peak")
    words.append(f"data wait {100 * median('data_seconds') / max(median('seconds'), 1e-9):.1f} %")
    if median("tensor_peak") > 0:
        words.append(f"{median('tensor_peak') / 2**30:,.1f} GiB of tensors")
    words.append(f"loss {steps[0]['loss']:.3f} to {steps[-1]['loss']:.3f}")
    print(f"{name}: " + ", ".join(words) + f"; medians of {len(steps)} steps")


if __name__ == "__main__":
    main(*sys.argv[1:])
