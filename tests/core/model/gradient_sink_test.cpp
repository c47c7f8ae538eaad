// Gradients that an operation adds to memory by itself, against the same operation under autograd: equal to the bit (of
// small whole numbers, whose sums are exact in any order).
#include "core/nn/gradient_sink.h"
#include "core/checkpoint/box_view.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/comm/loopback.h"
#include "core/nn/differentiable.h"
#include "tests/support/tiny_model.h"

namespace loom::test {
namespace {

// x W', whose backward adds to the sink of W when there is one.
Tensor product(const Tensor& x, const Weight& weight, int64_t* opened) {
  const Tensor value = weight.value.detach();
  GradientSink* const sink = weight.sink;
  return differentiable(x.detach().matmul(value.t()), {x, weight.value}, {x.detach()},
                        [value, sink, opened](const BackwardCall& call) {
                          Tensor dx = call.needs[0] ? call.grad.matmul(value) : Tensor();
                          const Tensor dw = call.grad.t().matmul(call.saved[0]);
                          if (sink == nullptr) return std::vector<Tensor>{dx, dw};
                          const GradientTarget target = sink->open();
                          ++*opened;
                          if (target.fresh) {
                            target.sum.copy_(dw);
                          } else {
                            target.sum.add_(dw);
                          }
                          return std::vector<Tensor>{dx, Tensor()};
                        });
}

struct SinkOptions {
  TinyOptions tiny;
  bool sinks = true;
  Communicator* comm = nullptr;
  int64_t* opened = nullptr;
};

// Two units. `first` is read by both, twice by the second, and once there without a sink; `unused` by neither pass.
class Chain : public Encoder {
 public:
  Chain(const Declarer& d, const SinkOptions& options) : options_(options) {
    const StreamDecl media{"media", 4, "", false}, hidden{"hidden", 4, "", false}, out{"features", 4, "", false};
    const Declarer one = d.unit({"one", {media}, {hidden}, Mixes::none, true, {}});
    first_ = one.param("first", {4, 4}, Init::normal(1));
    unused_ = one.param("unused", {3, 5}, Init::normal(1));
    const Declarer two = d.unit({"two", {hidden}, {out}, Mixes::none, true, {}});
    second_ = two.param("second", {4, 4}, Init::normal(1));
    two.use(first_);
  }
  void run(int unit, Streams& s, UnitContext& ctx) override {
    const auto times = [&](const Tensor& x, Param p) {
      Weight weight = ctx.weight(p);
      if (!options_.sinks) weight.sink = nullptr;
      return product(x, weight, options_.opened);
    };
    if (unit == 0) return s.set("hidden", times(s["media"], first_));
    const Tensor& x = s["hidden"];
    s.set("features", times(times(x, first_), second_) + times(x, first_) + x.matmul(ctx[first_].t()));
  }
  int64_t width() const override { return 4; }
  int64_t media_width() const override { return 4; }
  ItemMeta measure(const MediaInfo& info) const override { return {info.width, info.width, 0, {}}; }
  Tensor prepare(const Media& media, const Philox&) const override { return media.data; }

 private:
  SinkOptions options_;
  Param first_, unused_, second_;
};

std::shared_ptr<BoundComponent> chain(const SinkOptions& options) {
  Declarations declarations;
  declarations.component = "encoders.image";
  auto component = std::make_shared<Chain>(Declarer(declarations), options);
  BindOptions bound;
  bound.master = options.tiny.master;
  bound.compute = options.tiny.compute;
  bound.always_slab = options.tiny.always_slab;
  bound.recompute = options.tiny.recompute;
  bound.frozen = options.tiny.frozen;
  bound.comm = options.comm;
  auto out = std::make_shared<BoundComponent>(component, std::move(declarations), bound);
  for (const auto& buffer : out->buffers()) {
    for (size_t e = 0; e < buffer->entries().size(); ++e) {
      const BufferEntry& entry = buffer->entries()[e];
      const at::Tensor whole = at::arange(20, at::kDouble).remainder(5).sub(2).slice(0, 0, 4 * 4);
      if (entry.global_shape == std::vector<int64_t>{4, 4})
        buffer->master_of(e).copy_(box_view(whole.view({4, 4}), entry.box, whole_box({4, 4})));
    }
    buffer->master_written();
  }
  return out;
}

// Gradients by name after some passes; the sum over the named passes of whole numbers.
std::map<std::string, Tensor> gradients(const SinkOptions& options, int steps = 1) {
  const auto component = chain(options);
  SlabPool pool(std::max<int64_t>(component->largest_buffer_bytes(), 64));
  Partitions partitions;
  partitions[""].append(3, {});
  for (int step = 0; step < steps; ++step) {
    component->zero_gradients();
    for (int pass = 0; pass < 2; ++pass) {
      TapeContext context;
      context.partitions = &partitions;
      Tape tape(*component, pool, context);
      const int rank = options.comm != nullptr ? options.comm->rank() : 0;
      const Tensor media =
          at::arange(12, at::kDouble).add(pass + rank).remainder(5).sub(1).view({3, 4}).to(options.tiny.compute);
      StreamMap streams{{"media", media}};
      tape.forward(0, streams);
      tape.forward(1, streams);
      StreamMap grads{
          {"features", at::arange(12, at::kDouble).remainder(7).sub(2).view({3, 4}).to(options.tiny.compute)}};
      tape.backward(1, grads);
      tape.backward(0, grads);
    }
    component->finish_gradients();
  }
  std::map<std::string, Tensor> out;
  for (const auto& buffer : component->buffers()) {
    if (!buffer->trainable()) continue;
    for (size_t e = 0; e < buffer->entries().size(); ++e)
      out[buffer->entries()[e].name] = buffer->gradient_of(e).clone();
  }
  return out;
}

void expect_equal(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, gradient] : a) EXPECT_TRUE(at::equal(gradient, b.at(name))) << name;
}

TEST(GradientSinks, AddTheSameBitsAsAutograd) {
  for (const bool recompute : {false, true}) {
    for (const bool always_slab : {false, true}) {
      for (const int steps : {1, 2}) {
        int64_t opened = 0;
        SinkOptions options;
        options.opened = &opened;
        options.tiny.recompute = recompute;
        options.tiny.always_slab = always_slab;
        options.sinks = false;
        const auto expected = gradients(options, steps);
        EXPECT_EQ(opened, 0);
        options.sinks = true;
        const auto found = gradients(options, steps);
        EXPECT_EQ(opened, 8 * steps);  // four products, two passes
        expect_equal(expected, found);
        for (const char* name : {"encoders.image.one.first", "encoders.image.two.second"}) {
          EXPECT_GT(found.at(name).ne(0).sum().item<int64_t>(), 10) << found.at(name);
        }
        EXPECT_EQ(found.at("encoders.image.one.unused").abs().max().item<double>(), 0);
      }
    }
  }
}

TEST(GradientSinks, AddTheSameBitsOnSeveralRanks) {
  for (const int world : {2, 4}) {
    run_loopback(world, [](Communicator& comm) {
      int64_t opened = 0;
      SinkOptions options;
      options.opened = &opened;
      options.comm = &comm;
      options.sinks = false;
      const auto expected = gradients(options, 2);
      options.sinks = true;
      expect_equal(expected, gradients(options, 2));
      EXPECT_EQ(opened, 16);
    });
  }
}

TEST(GradientSinks, FrozenParametersAndOtherTypesHaveNone) {
  int64_t opened = 0;
  SinkOptions options;
  options.opened = &opened;
  options.tiny.frozen = {"*.first"};
  EXPECT_EQ(gradients(options).size(), 2u);
  EXPECT_EQ(opened, 2);
  options.tiny = {.master = at::kDouble, .compute = at::kFloat};
  const auto component = chain(options);
  for (const GradientSink* sink : component->sinks()) EXPECT_EQ(sink, nullptr);
  opened = 0;
  gradients(options);
  EXPECT_EQ(opened, 0);
}

TEST(GradientSinks, OpenOnlyInTheBackwardOfTheTape) {
  SinkOptions options;
  const auto component = chain(options);
  GradientSink* const sink = component->sinks().front();
  ASSERT_NE(sink, nullptr);
  EXPECT_THROW(sink->open(), InternalError);
  SlabPool pool(64);
  {
    const BoundComponent::Sinking sinking(*component, pool);
    EXPECT_TRUE(sink->open().fresh);
    EXPECT_FALSE(sink->open().fresh);
    component->zero_gradients();
    EXPECT_TRUE(sink->open().fresh);
  }
  EXPECT_THROW(sink->open(), InternalError);
}

}  // namespace
}  // namespace loom::test
