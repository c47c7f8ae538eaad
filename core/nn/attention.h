#pragma once
// Attention as a service of the unit context: the layer says which heads and which partition, and hands in q, k, v as
// soon as each is projected; who exchanges what with whom, packing and the KV cache stay behind it.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/tensor.h"

namespace loom {

class HeadMoves;
class UnitContext;
struct AttentionPlan;

struct AttentionSpec {
  int64_t heads = 1;
  int64_t kv_heads = 1;  // divides heads (GQA)
  int64_t head_dim = 1;
  bool causal = false;
  double scale = 0;                // 0 = 1 / sqrt(head_dim)
  int64_t window = 0;              // keys looked back at, itself included; 0 = all
  std::string partition{};         // of the queries
  std::string kv_partition = "=";  // of keys and values; "=" = the same rows as the queries (self attention)
};

enum class AttentionInput { query = 1, key, value };

// Staged: a.query(q), a.key(k), a.value(v) in any order, the same on all ranks, then output(). Attention by heads over
// several ranks sends each of them off at once, so what a layer does before the next hides it. q is [rows, heads *
// head_dim], k and v [kv rows, kv_heads * head_dim]; the result is [rows, heads * head_dim]. A query whose segment has
// no keys gives zeros.
class Attention {
 public:
  void query(const Tensor& q) { take(AttentionInput::query, q); }
  void key(const Tensor& k) { take(AttentionInput::key, k); }
  void value(const Tensor& v) { take(AttentionInput::value, v); }
  Tensor output();

  // In place of these calls, for a fused projection: may fused() be called? Self attention that is this rank's alone,
  // without a cache, where the pieces of the CPU are in use.
  bool fuses(const Tensor& qkv);
  // qkv [rows, q | k | v] belongs to the attention from now on. `turn` (may be empty) changes the columns of q and k
  // where they are, or their gradients back.
  Tensor fused(const Tensor& qkv, std::function<void(const Tensor& heads, bool inverse)> turn);

 private:
  friend class UnitContext;
  Attention(UnitContext& ctx, AttentionSpec spec);
  void take(AttentionInput input, const Tensor& x);
  // Whose heads these are, and who exchanges what: asked with the first tensor that is there (none of the three = a
  // fused projection), and then known.
  const AttentionPlan& plan(const Tensor& x, std::optional<AttentionInput> input);
  Tensor& of(AttentionInput input) {
    return input == AttentionInput::query ? q_ : input == AttentionInput::key ? k_ : v_;
  }

  UnitContext* ctx_;
  AttentionSpec spec_;                         // as asked for
  AttentionSpec share_;                        // of this rank
  bool grouped_ = false;                       // share_ is a tensor group's, over the group's rows
  std::shared_ptr<const AttentionPlan> plan_;  // null until one is there, and with a cache
  std::shared_ptr<HeadMoves> moves_;
  Tensor q_, k_, v_;
};

}  // namespace loom
