"""The other side of the bench on two ranks: `transformers` under PyTorch's FSDP2 over Gloo, one process of it. Rank 0 prints one JSON line.

The language model of peer.py, every decoder block sharded and the root as well, half of the four sequences on each rank. Wire bytes are
those of the loopback interface, both ranks together. With --checkpoint the state is saved and loaded by torch.distributed.checkpoint
instead, and nothing is trained but the step that makes the optimizer's state."""

import argparse
import json
import os
import shutil
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peer  # noqa: E402
import quiet  # noqa: E402
import workload as work  # noqa: E402


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--keep", action="store_true", help="weights stay gathered between forward and backward")
    parser.add_argument("--checkpoint", default="", help="a folder")
    return parser.parse_args()


def loopback_bytes():
    with open("/proc/net/dev", encoding="utf-8") as lines:
        return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("lo:"))


def checkpoint(folder, model, optimizer, dist):
    """Seconds of saving, of handing an asynchronous save over and until it is on disk, and of loading."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    background = dist.new_group(backend="gloo")  # on the default group its thread would be in the way of a step
    out = {"save": [], "stall": [], "to_disk": [], "load": []}

    def state():
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments}

    def timed(name, work_of):
        dist.barrier()
        begin = time.perf_counter()
        done = work_of()
        out[name].append(time.perf_counter() - begin)
        return done, begin

    for turn in range(3):
        place = os.path.join(folder, str(turn))
        timed("save", lambda: dcp.save(state(), checkpoint_id=place + "a"))
        future, begin = timed("stall", lambda: dcp.async_save(state(), checkpoint_id=place + "b", process_group=background))
        future.result()
        out["to_disk"].append(time.perf_counter() - begin)
        into = state()
        timed("load", lambda: dcp.load(into, checkpoint_id=place + "a"))
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(place + "a")
            shutil.rmtree(place + "b")
        dist.barrier()
    return {name: statistics.median(each) for name, each in out.items()}


def main():
    args = parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = peer.make_model("llm")
    for layer in model.model.layers:
        fully_shard(layer, reshard_after_forward=not args.keep)
    fully_shard(model, reshard_after_forward=not args.keep)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    ids = torch.randint(4, work.VOCAB, (work.SEQUENCES, work.SEQUENCE), generator=torch.Generator().manual_seed(1)).chunk(world)[rank]

    def step():
        begin = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        dist.barrier()
        return time.perf_counter() - begin

    for _ in range(args.warm):
        step()
    result = {"useful": [ids.numel() * world], "products": {}, "profiled": {}}
    if args.checkpoint:
        result |= checkpoint(args.checkpoint, model, optimizer, dist)
    else:
        before = loopback_bytes()
        seconds = [step() for _ in range(args.steps)]
        result["wire"] = (loopback_bytes() - before) / args.steps
        result["seconds"] = [statistics.median(seconds)]
    result["rss_peak"] = quiet.peak_bytes()
    if rank == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
