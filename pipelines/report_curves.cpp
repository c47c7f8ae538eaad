// One table of charts; losses inside components (names that begin with "loss/") get a chart each.
#include "pipelines/report_curves.h"

#include <utility>

namespace loom {
namespace {

// Part over whole, step by step; steps that lack either are left out.
Points share_of(const Points& part, const Points& whole) {
  const std::map<double, double> wholes(whole.begin(), whole.end());
  Points out;
  for (const auto& [step, value] : part) {
    const auto at = wholes.find(step);
    if (at != wholes.end() && at->second > 0) out.emplace_back(step, value / at->second);
  }
  return out;
}

Chart one(const char* title, NumberStyle style, bool from_zero, bool may_log, const char* css, Points points) {
  return Chart{title, style, from_zero, may_log, false, {{title, css, std::move(points)}}};
}

}  // namespace

std::vector<Chart> training_charts(const std::map<std::string, Points>& metrics) {
  const auto of = [&](const std::string& name) {
    const auto at = metrics.find(name);
    return at != metrics.end() ? at->second : Points{};
  };
  std::vector<Chart> charts = {Chart{"Loss per supervised token",
                                     NumberStyle::plain,
                                     false,
                                     true,
                                     true,
                                     {{"training", "a", of("loss")}, {"held-out", "b", of("eval_loss")}}}};
  const Points exact = of("exact_match"), accuracy = of("token_accuracy");
  if (exact.empty() || accuracy.empty()) {
    charts.push_back(one("Exact match", NumberStyle::percent, true, false, "b", exact));
    charts.push_back(one("Token accuracy", NumberStyle::percent, true, false, "b", accuracy));
  } else {
    charts.push_back(Chart{"Held-out answers",
                           NumberStyle::percent,
                           true,
                           false,
                           false,
                           {{"right tokens", "a", accuracy}, {"exact match", "b", exact}}});
  }
  charts.push_back(one("Tokens per second", NumberStyle::count, true, false, "a", of("tokens_per_second")));
  const Points share = of("peak_share");
  if (share.empty()) {
    charts.push_back(one("Arithmetic speed", NumberStyle::flops, true, false, "a", of("flops_per_second")));
  } else {
    charts.push_back(one("Share of the measured peak", NumberStyle::percent, true, false, "a", share));
  }
  charts.push_back(one("Time spent waiting for data", NumberStyle::percent, true, false, "a",
                       share_of(of("data_seconds"), of("seconds"))));
  charts.push_back(one("Microbatches filled", NumberStyle::percent, true, false, "a", of("packed_fill")));
  charts.push_back(Chart{"Memory",
                         NumberStyle::bytes,
                         true,
                         false,
                         false,
                         {{"process", "a", of("rss")}, {"tensors at most", "b", of("tensor_peak")}}});
  charts.push_back(one("Gradient norm", NumberStyle::plain, false, true, "a", of("grad_norm")));
  charts.push_back(one("Learning rate", NumberStyle::plain, true, false, "a", of("lr")));
  for (const auto& [name, points] : metrics) {
    if (name.rfind("loss/", 0) != 0) continue;
    Chart inner = one("", NumberStyle::plain, false, true, "a", points);
    inner.title = inner.series[0].label = "Loss: " + name.substr(5);
    charts.push_back(std::move(inner));
  }
  return charts;
}

}  // namespace loom
