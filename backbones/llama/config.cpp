#include "backbones/llama/config.h"

#include "core/base/error.h"

namespace loom::llama {

Schema schema() {
  Schema s;
  s.integer("width", 512, {1, 1048576}, "columns of the stream");
  s.integer("depth", 8, {1, 1024}, "number of blocks");
  s.integer("heads", 8, {1, 4096}, "query heads");
  s.integer("kv_heads", 0, {0, 4096}, "key/value heads, divide heads; 0 = heads");
  s.integer("head_dim", 0, {0, 4096}, "width of a head, even; 0 = width / heads");
  s.integer("ffn", 0, {0, 1048576}, "hidden width of the MLP; 0 = 8/3 of width, rounded up to a multiple of 32");
  s.integer("vocab", 0, {0, 16777216}, "rows of the embedding table; 0 = what the tokenizer needs");
  s.number("rope_theta", 10000.0, {1, 1e12}, "base of the rotary angles");
  s.number("norm_eps", 1e-6, {0, 1}, "epsilon of the RMS norms");
  s.boolean("qkv_bias", false, "bias of the query, key and value projections (Qwen2)");
  s.boolean("out_bias", false, "bias of the attention's output projection");
  s.boolean("mlp_bias", false, "bias of the MLP's projections");
  s.boolean("qk_norm", false, "RMS norm of every query and key head before rotary (Qwen3)");
  s.boolean("tied", true, "the head reads the embedding table");
  s.number("dropout", 0.0, {0, 0.99}, "on both residual branches");
  return s;
}

Config read_config(const ConfigValue& value, const BackboneArgs& args) {
  Config c;
  const auto refuse = [&](const char* key, const std::string& why) {
    const ConfigValue& at = value.at(key);
    throw UserError(concat(at.mark.str(), ": ", at.path, ": ", why));
  };
  c.vocab = value.get_int("vocab");
  c.width = value.get_int("width");
  c.depth = value.get_int("depth");
  c.heads = value.get_int("heads");
  c.kv_heads = value.get_int("kv_heads");
  c.head_dim = value.get_int("head_dim");
  c.ffn = value.get_int("ffn");
  c.rope_theta = value.get_number("rope_theta");
  c.norm_eps = value.get_number("norm_eps");
  c.qkv_bias = value.get_bool("qkv_bias");
  c.out_bias = value.get_bool("out_bias");
  c.mlp_bias = value.get_bool("mlp_bias");
  c.qk_norm = value.get_bool("qk_norm");
  c.tied = value.get_bool("tied");
  c.dropout = value.get_number("dropout");
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.heads % c.kv_heads != 0) refuse("kv_heads", concat(c.kv_heads, " does not divide the ", c.heads, " heads"));
  if (c.head_dim == 0) {
    if (c.width % c.heads != 0)
      refuse("heads", concat(c.heads, " heads do not divide width ", c.width, "; give head_dim"));
    c.head_dim = c.width / c.heads;
    if (c.head_dim % 2 != 0) refuse("heads", concat("heads of width ", c.head_dim, "; rotary needs an even width"));
  }
  if (c.head_dim % 2 != 0) refuse("head_dim", concat("rotary needs an even width, found ", c.head_dim));
  if (c.ffn == 0) c.ffn = (c.width * 8 / 3 + 31) / 32 * 32;
  if (c.vocab == 0) c.vocab = args.vocab;
  if (c.vocab < args.vocab) refuse("vocab", concat(c.vocab, " rows are too few, the tokenizer needs ", args.vocab));
  if (c.vocab == 0) refuse("vocab", "there is no tokenizer to take it from; give the number of rows");
  return c;
}

}  // namespace loom::llama
