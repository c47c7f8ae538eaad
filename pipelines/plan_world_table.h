#pragma once
// A plan of several ranks as text and as JSON, and the tables that all plans are printed with.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "pipelines/plan_world.h"

namespace loom {

using Table = std::vector<std::vector<std::string>>;

std::string bytes_text(int64_t bytes);  // "1.9 GB"; "-" for none
std::string flops_text(double flops);   // "41.8 TFLOP"
// Columns as wide as their widest cell; the first and those of `words` begin at the left, numbers end at the right.
void print_table(const Table& table, const std::set<size_t>& words = {});
// "weights 1.8 GB, gradients 10 MB, ..." at the peak.
std::string peak_parts(const TrainingPlan& plan);
// The line about memory for saving; nothing without any.
void print_snapshot(const TrainingPlan& plan);
// "train.recompute=true -> 1.2 GB (saves 0.8 GB)", when that is less than the plan's peak.
void add_knob(const TrainingPlan& plan, const std::string& setting, const std::optional<int64_t>& peak,
              std::vector<std::string>& knobs);
// Operations by unit, of what was run.
void print_units(const TrainingPlan& plan, const std::string& title);

void print_world_plan(const Job& job, const WorldPlan& world);
std::string world_plan_json(const Job& job, const WorldPlan& world);

}  // namespace loom
