#!/usr/bin/env python3
"""The demo's model in plain PyTorch, trained on batches that a test of the C++ program wrote down.

Usage: reference.py JOB.json; prints {"loss": [...], "grad_norm": [...], "lr": [...]} as one line of JSON.

Nothing here is shared with the C++ code, and nothing is packed: each sample runs on its own and log-probabilities are
added up, which is the definition that packing, accumulation and every kernel over there must agree with. Modules are
named like the program's parameters, so its checkpoint loads with strict=True. Needs torch and nothing else.
"""
import json
import math
import struct
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

DTYPES = {"F64": torch.float64, "F32": torch.float32, "I64": torch.int64, "U8": torch.uint8}


def read_safetensors(path):
    data = bytearray(Path(path).read_bytes())
    (length,) = struct.unpack_from("<Q", data)
    out = {}
    for name, info in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + at for at in info["data_offsets"])
        flat = torch.frombuffer(data, dtype=DTYPES[info["dtype"]], count=math.prod(info["shape"]), offset=begin)
        assert flat.numel() * flat.element_size() == end - begin, name
        out[name] = flat.reshape(info["shape"]).clone()
    return out


def read_checkpoint(folder):
    """Global tensors by name, put together from the boxes that a manifest lists."""
    folder = Path(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    files = {name: read_safetensors(folder / name) for name in manifest["files"]}
    out = {}
    for name, info in manifest["tensors"].items():
        whole = torch.empty(info["shape"], dtype=DTYPES[info["dtype"]])
        for box in info["boxes"]:
            place = tuple(slice(o, o + s) for o, s in zip(box["offset"], box["size"]))
            whole[place] = files[box["file"]][box["key"]]
        out[name] = whole
    return out


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, theta):
    """x [heads, tokens, dim]: pairs (j, j + dim / 2) turn by position * theta^(-2 j / dim)."""
    tokens, half = x.shape[1], x.shape[2] // 2
    steps = theta ** (torch.arange(half, dtype=torch.float64) * (-1.0 / half))
    angles = torch.outer(torch.arange(tokens, dtype=torch.float64), steps)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, head_dim, qkv_bias, out_bias, causal, theta=0.0, qk_norm=False,
                 eps=1e-6):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.causal, self.theta = heads, kv_heads, head_dim, causal, theta
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * head_dim, bias=qkv_bias)
        self.out = nn.Linear(heads * head_dim, width, bias=out_bias)
        if qk_norm:
            self.q_norm, self.k_norm = RmsNorm(head_dim, eps), RmsNorm(head_dim, eps)

    def forward(self, x):
        tokens = x.shape[0]
        q, k, v = self.qkv(x).split([n * self.head_dim for n in (self.heads, self.kv_heads, self.kv_heads)], dim=-1)
        q, k, v = (t.reshape(tokens, -1, self.head_dim) for t in (q, k, v))
        if hasattr(self, "q_norm"):
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (t.transpose(0, 1) for t in (q, k, v))
        if self.theta:
            q, k = rotate(q, self.theta), rotate(k, self.theta)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=0) for t in (k, v))
        scores = q @ k.transpose(1, 2) / math.sqrt(self.head_dim)
        if self.causal:
            scores = scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), -math.inf)
        return self.out((scores.softmax(-1) @ v).transpose(0, 1).reshape(tokens, -1))


class GeluMlp(nn.Module):
    def __init__(self, width_in, hidden, width_out):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width_in, hidden), nn.Linear(hidden, width_out)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class SwiGlu(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_up, self.down = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class VitBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, heads = c["width"], c["heads"]
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=c["norm_eps"]) for _ in range(2))
        self.attention = Attention(width, heads, heads, width // heads, True, True, causal=False)
        self.mlp = GeluMlp(width, c["hidden"], width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Module()
        self.embed.patch = nn.Linear(c["patch"] ** 2 * c["channels"], c["width"])
        self.embed.position = nn.Embedding((c["image_size"] // c["patch"]) ** 2, c["width"])
        self.blocks = nn.ModuleList(VitBlock(c) for _ in range(c["depth"]))
        self.norm = nn.LayerNorm(c["width"], eps=c["norm_eps"])

    def forward(self, patches):
        x = self.embed.patch(patches) + self.embed.position.weight
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Projector(nn.Module):
    def __init__(self, c, width_in, width_out):
        super().__init__()
        self.merge = c["merge"]
        self.project = GeluMlp(width_in * self.merge, c["hidden"], width_out)

    def forward(self, x):
        return self.project(x.reshape(x.shape[0] // self.merge, -1))


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention_norm = RmsNorm(c["width"], c["norm_eps"])
        self.mlp_norm = RmsNorm(c["width"], c["norm_eps"])
        self.attention = Attention(c["width"], c["heads"], c["kv_heads"], c["width"] // c["heads"], c["qkv_bias"],
                                   False, causal=True, theta=c["rope_theta"], qk_norm=c["qk_norm"], eps=c["norm_eps"])
        self.mlp = SwiGlu(c["width"], c["ffn"])

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["width"])
        self.blocks = nn.ModuleList(LlamaBlock(c) for _ in range(c["depth"]))
        self.head = nn.Module()
        self.head.norm = RmsNorm(c["width"], c["norm_eps"])
        if not c["tied"]:
            self.head.weight = nn.Parameter(torch.empty(c["vocab"], c["width"]))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return F.linear(self.head.norm(x), getattr(self.head, "weight", self.embed.weight)).log_softmax(-1)


class Captioner(nn.Module):
    def __init__(self, job):
        super().__init__()
        vit, llama = job["vit"], job["llama"]
        self.encoders = nn.ModuleDict({"image": Vit(vit)})
        self.connectors = nn.ModuleDict({"image": Projector(job["mlp"], vit["width"], llama["width"])})
        self.backbone = Llama(llama)

    def forward(self, sample, media):
        """Sum of the log-probabilities of the supervised tokens of one sample."""
        tokens = torch.tensor(sample["tokens"])
        pieces, at = [], 0
        for item in sample["items"]:
            embeddings = self.connectors["image"](self.encoders["image"](media[item["media"]]))
            pieces += [self.backbone.embed(tokens[at : item["begin"]]), embeddings]
            at = item["begin"] + embeddings.shape[0]
        log_probs = self.backbone(torch.cat(pieces + [self.backbone.embed(tokens[at:])]))
        targets = torch.tensor(sample["supervised"])
        return log_probs[targets - 1, tokens[targets]].sum()


def learning_rate(c, step):
    if step <= c["warmup"]:
        return c["lr"] * step / c["warmup"]
    progress = (step - 1 - c["warmup"]) / (c["steps"] - c["warmup"])
    return c["lr"] * (c["min_ratio"] + (1 - c["min_ratio"]) * 0.5 * (1 + math.cos(math.pi * progress)))


def train(job):
    dtype = {"float64": torch.float64, "float32": torch.float32}[job["dtype"]]
    torch.set_num_threads(1)
    model = Captioner(job).to(dtype)
    model.load_state_dict({name: t.to(dtype) for name, t in read_checkpoint(job["checkpoint"]).items()}, strict=True)
    media = {name: t.to(dtype) for name, t in read_safetensors(job["media"]).items()}
    o = job["optimizer"]
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": o["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    series = {"loss": [], "grad_norm": [], "lr": []}
    for step, samples in enumerate(job["batches"], start=1):
        lr = learning_rate(job["schedule"], step)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad(set_to_none=False)
        supervised = sum(len(sample["supervised"]) for sample in samples)
        total = 0.0
        for sample in samples:
            loss = -model(sample, media) / supervised
            loss.backward()
            total += loss.item()
        norm = nn.utils.clip_grad_norm_(model.parameters(), job["clip"])
        optimizer.step()
        series["loss"].append(total)
        series["grad_norm"].append(norm.item())
        series["lr"].append(lr)
    return series


if __name__ == "__main__":
    print(json.dumps(train(json.loads(Path(sys.argv[1]).read_text()))))
