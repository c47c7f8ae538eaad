"""From launches to rows of the table: medians, ratios, aims. No processes and no clocks, so that it is tested on canned numbers.

A launch is a dictionary: `useful` tokens and `seconds` of each batch that it measured, `products` {batch: seconds of matrix products}
and `profiled` {batch: seconds of the steps in which they were told}, `rss_peak`, `startup_seconds`. A side is the list of its launches.
Ratios are always ours over the peer's."""

import statistics

TOKENS, NON_GEMM, MEMORY, START, RATE = "tokens_per_second", "non_gemm_seconds_per_step", "rss_peak", "start_to_step_1", "peak_rate"
WIRE = "wire_bytes_per_step"
STALL, DISK, LOAD = "save_stall", "save_to_disk", "load"
UNITS = {TOKENS: "tokens/s", NON_GEMM: "s", MEMORY: "bytes", START: "s", RATE: "FLOP/s", WIRE: "bytes", STALL: "s", DISK: "s", LOAD: "s"}
FSDP, FSDP_KEEP, SILENT, DCP = "FSDP2", "FSDP2, no reshard", "ours without communication", "torch.distributed.checkpoint"
EAGER, COMPILED = "transformers", "transformers, torch.compile"
PEER_PIECES = {"composed": "ATen composition", "sdpa": "sdpa by segments"}  # last part of a benchmark's name: what it is
PADDED, BY_LENGTH, PER_SEQUENCE = "transformers, padded", "transformers, by length", "transformers, per sequence"

# (name, metric, peer): the ratio's limit. None as peer stands for all of them.
AIMS = {
    ("lm", TOKENS, EAGER): (">=", 1.2),
    ("lm", TOKENS, COMPILED): (">=", 1.2),
    ("vlm", TOKENS, EAGER): (">=", 1.15),
    ("vlm", TOKENS, COMPILED): (">=", 1.15),
    ("mixture", TOKENS, PADDED): (">=", 2.2),
    ("mixture", TOKENS, BY_LENGTH): (">=", 1.3),
    ("mixture", TOKENS, PER_SEQUENCE): (">=", 1.15),
    ("lm", NON_GEMM, None): ("<=", 0.5),
    ("vlm", NON_GEMM, None): ("<=", 0.5),
    ("mixture", NON_GEMM, None): ("<=", 0.5),
    ("lm", MEMORY, None): ("<=", 0.7),
    ("vlm", MEMORY, None): ("<=", 0.7),
    ("mixture", MEMORY, None): ("<=", 0.7),
    ("lm", START, None): ("<=", 0.2),
    ("vlm", START, None): ("<=", 0.2),
    ("2 ranks", TOKENS, FSDP): (">=", 1.3),
    ("2 ranks, weights kept", TOKENS, FSDP_KEEP): (">=", 1.1),
    ("2 ranks", TOKENS, SILENT): (">=", 0.92),
    ("2 ranks, weights kept", TOKENS, SILENT): (">=", 0.92),
    ("2 ranks", WIRE, FSDP): ("<=", 0.76),
    ("2 ranks", MEMORY, FSDP): ("<=", 0.8),
    ("checkpoint", STALL, DCP): ("<=", 0.05),
    ("checkpoint", DISK, DCP): ("<=", 1.0),
    ("checkpoint", LOAD, DCP): ("<=", 1.0),
    ("attention/ragged", "piece_seconds", None): ("<=", 1 / 1.5),
}


def aim_of(row):
    """(relation, limit) of a row, or None. The aim of "attention/ragged" is that of all its shapes."""
    for (name, metric, peer), aim in AIMS.items():
        if (row["name"] + "/").startswith(name + "/") and metric == row["metric"] and peer in (None, row["peer_name"]):
            return aim
    return None


def is_met(row):
    """None where there is no aim."""
    aim = aim_of(row)
    if aim is None:
        return None
    return row["ratio"] >= aim[1] if aim[0] == ">=" else row["ratio"] <= aim[1]


def batch_medians(side, told):
    """The median of each batch over the launches that measured it; told(launch) = {batch: value}."""
    values = [[] for _ in side[0]["useful"]]
    for launch in side:
        for batch, value in told(launch).items():
            values[int(batch)].append(value)
    return [statistics.median(some) if some else None for some in values]


def batch_seconds(side):
    return batch_medians(side, lambda launch: dict(enumerate(launch["seconds"])))


def tokens_per_second(side):
    return sum(side[0]["useful"]) / sum(batch_seconds(side))


def non_gemm_seconds(side):
    """Of a step, on average over the batches whose products are known; None where none is. Products and the step that they are a share
    of are of the same seconds: clocks drift by more than the rest of a step from one step to another."""
    def other_share(launch):
        return {batch: 1 - products / launch["profiled"][batch] for batch, products in launch["products"].items()}
    rest = batch_medians(side, other_share)
    known = [seconds * share for seconds, share in zip(batch_seconds(side), rest) if share is not None]
    return sum(known) / len(known) if known else None


def median_of(side, key):
    return statistics.median(launch[key] for launch in side)


VALUES = {
    TOKENS: tokens_per_second,
    NON_GEMM: non_gemm_seconds,
    MEMORY: lambda side: median_of(side, "rss_peak") or None,
    START: lambda side: median_of(side, "startup_seconds"),
    RATE: lambda side: median_of(side, "rate"),
    WIRE: lambda side: median_of(side, "wire") or None,
    STALL: lambda side: median_of(side, STALL),
    DISK: lambda side: median_of(side, DISK),
    LOAD: lambda side: median_of(side, LOAD),
}


def make_row(name, metric, unit, ours, peer, peer_name, runs):
    return {"name": name, "metric": metric, "unit": unit, "dtype": "fp32", "ours": ours, "peer": peer, "peer_name": peer_name,
            "ratio": ours / peer, "runs": runs}


def compare(name, metrics, ours, peer, peer_name):
    """Rows of two sides; a metric that one side does not know is left out."""
    out = []
    for metric in metrics:
        values = VALUES[metric](ours), VALUES[metric](peer)
        if None not in values:
            out.append(make_row(name, metric, UNITS[metric], *values, peer_name, min(len(ours), len(peer))))
    return out


def pieces(report):
    """Rows of a Google Benchmark report with repetitions. A benchmark is named piece/shape/fused, its references by PEER_PIECES."""
    times = {}
    for each in report["benchmarks"]:
        if each.get("run_type", "iteration") == "iteration" and not each.get("error_occurred"):
            name = [part for part in each.get("run_name", each["name"]).split("/") if ":" not in part and part != "real_time"]
            scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[each.get("time_unit", "ns")]
            times.setdefault(("/".join(name[:-1]), name[-1]), []).append(each["real_time"] * scale)
    out = []
    for (name, kind), ours in times.items():
        for peer_kind, peer_name in PEER_PIECES.items():
            peer = times.get((name, peer_kind))
            if kind == "fused" and peer:
                out.append(make_row(name, "piece_seconds", "s", statistics.median(ours), statistics.median(peer), peer_name,
                                    min(len(ours), len(peer))))
    return out


def merged(old, new):
    """New rows in place of old ones of the same name, metric and peer; other old rows stay."""
    key = lambda row: (row["name"], row["metric"], row["peer_name"])  # noqa: E731
    fresh = {key(row) for row in new}
    return [row for row in old if key(row) not in fresh] + new


def quantity(value, unit):
    if unit == "bytes":
        return f"{value / 2 ** 20:.0f} MiB"
    if unit == "FLOP/s":
        return f"{value / 1e9:.0f} GFLOP/s"
    if unit == "s":
        return f"{value:.3f} s" if value >= 0.1 else f"{value * 1e3:.3f} ms"
    return f"{value:.0f} {unit}"


def table(rows, wanted_runs=5):
    """Lines of text. Rows of fewer launches than the bench asks for are marked."""
    lines = [("what", "metric", "ours", "peer", "against", "ratio", "aim", "")]
    for row in rows:
        aim, met = aim_of(row), is_met(row)
        few = row["metric"] != "piece_seconds" and row["runs"] < wanted_runs
        lines.append((row["name"], row["metric"].replace("_", " "), quantity(row["ours"], row["unit"]), quantity(row["peer"], row["unit"]),
                      row["peer_name"], f"{row['ratio']:.3f}", f"{aim[0]} {aim[1]:.2f}" if aim else "",
                      ("" if met is None else "met" if met else "NOT met") + (f" (only {row['runs']} runs)" if few else "")))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.rjust(width) if 2 <= i <= 3 or i == 5 else cell.ljust(width)
                      for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines]
