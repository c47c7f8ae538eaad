#include "pipelines/mix_request.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "pipelines/mix_section.h"

namespace loom {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> names_of(const StepLoader& loader) {
  std::vector<std::string> out;
  for (const OrderSource& source : loader.order().sources()) out.push_back(source.name);
  return out;
}

// The command has checked the request; here it is foreign text.
std::vector<double> weights_of(const Json& request, const std::vector<std::string>& names) {
  std::vector<double> out(names.size(), 0);
  double sum = 0;
  for (const auto& [name, weight] : request.at("weights").items()) {
    const auto found = std::find(names.begin(), names.end(), name);
    LOOM_CHECK_USER(found != names.end(), "no data source ", quote_text(name), did_you_mean(name, names));
    const double value = weight.get<double>();
    LOOM_CHECK_USER(std::isfinite(value) && value >= 0, "weight ", value, " of ", name);
    out[static_cast<size_t>(found - names.begin())] = value;
    sum += value;
  }
  LOOM_CHECK_USER(sum > 0, "no weight is above 0");
  return out;
}

}  // namespace

void write_mix_request(const std::string& run, const std::vector<std::string>& names,
                       const std::vector<double>& weights) {
  Json shares = Json::object();
  for (size_t s = 0; s < names.size(); ++s) shares[names[s]] = weights[s];
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const Json request = {{"id", concat(now, "-", ::getpid())}, {"weights", shares}};
  write_file_atomic(concat(run, "/", kMixRequest), request.dump() + "\n");
}

bool has_mix_request(const std::string& run) { return is_file(concat(run, "/", kMixRequest)); }

void take_up_mix_request(const std::string& run, StepLoader& loader) {
  // Under another name, so that a request that comes meanwhile is neither taken for this one nor removed with it. One
  // that a crash has left there is carried out first.
  const std::string asked = concat(run, "/", kMixRequest), path = asked + ".taken";
  if (!is_file(path)) {
    if (!is_file(asked)) return;
    if (std::rename(asked.c_str(), path.c_str()) != 0) throw_file_error("rename", asked, errno);
  }
  const std::vector<std::string> names = names_of(loader);
  std::vector<double> weights;
  std::string id;
  try {
    const Json request = Json::parse(read_text(path));
    id = request.at("id").get<std::string>();
    weights = weights_of(request, names);
  } catch (const std::exception& problem) {  // of whatever kind
    log_warn(asked, ": not carried out: ", quote_text(problem.what()));
  }
  if (!weights.empty()) {
    const int64_t step = loader.state().next_step;
    if (const auto position = loader.change_mix(weights, id))
      log_info("mix     from step ", step, ", sample ", with_commas(static_cast<int64_t>(*position)),
               " on: ", shares_text(weights, names));
  }
  if (std::remove(path.c_str()) != 0) throw_file_error("remove", path, errno);
}

}  // namespace loom
