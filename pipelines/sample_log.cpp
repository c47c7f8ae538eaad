// JSON by nlohmann; answers may hold bytes that are no UTF-8, which are replaced.
#include "pipelines/sample_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "pipelines/png.h"
#include "pipelines/report_samples.h"

namespace loom {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPicture = "picture";
constexpr size_t kMostOutputs = 64;  // of a sample, in memory; the file keeps all

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

// Only complete lines.
std::vector<Json> read_lines(const std::string& path) {
  std::vector<Json> out;
  if (!is_file(path)) return out;
  const std::string text = read_text(path);
  for (size_t begin = 0, end = text.find('\n'); end != std::string::npos;
       begin = end + 1, end = text.find('\n', begin)) {
    Json json = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                            text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer() && json.contains("name") &&
        json["name"].is_string())
      out.push_back(std::move(json));
  }
  return out;
}

std::string text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) throw_file_error("create", path, errno);
  }
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

SampleLog::SampleLog(std::string path) : path_(std::move(path)) {
  for (const Json& json : read_lines(path_)) {
    ReportSample& sample = entry(text_of(json, "name"));
    sample.prompt = text_of(json, "prompt");
    sample.truth = text_of(json, "truth");
    try {
      if (json.contains(kPicture)) sample.png = from_base64(text_of(json, kPicture));
    } catch (const UserError&) {
      sample.png.clear();  // somebody edited the file; a report needs no picture
    }
    note(sample, {json["step"].get<int64_t>(), text_of(json, "output"), json.value("correct", Json()) == true});
  }
}

ReportSample& SampleLog::entry(const std::string& name) {
  for (ReportSample& sample : samples_) {
    if (sample.name == name) return sample;
  }
  samples_.emplace_back().name = name;
  return samples_.back();
}

void SampleLog::note(ReportSample& sample, ReportOutput output) {
  std::erase_if(sample.outputs, [&](const ReportOutput& old) { return old.step == output.step; });
  const auto place = std::find_if(sample.outputs.begin(), sample.outputs.end(),
                                  [&](const ReportOutput& old) { return old.step < output.step; });
  sample.outputs.insert(place, std::move(output));
  if (sample.outputs.size() > kMostOutputs) sample.outputs.pop_back();
}

void SampleLog::add(int64_t step, const std::vector<EvalSample>& samples) {
  for (const EvalSample& from : samples) {
    ReportSample& sample = entry(from.name);
    sample.prompt = from.prompt;
    sample.truth = from.truth;
    if (sample.png.empty() && from.picture.defined()) sample.png = report_picture(from.picture, samples.size());
    note(sample, {step, from.output, from.correct});
  }
}

void SampleLog::append(int64_t step, const std::vector<EvalSample>& samples) {
  std::vector<bool> had_picture;
  for (const EvalSample& sample : samples) had_picture.push_back(!entry(sample.name).png.empty());
  add(step, samples);
  std::string lines;
  for (size_t i = 0; i < samples.size(); ++i) {
    const EvalSample& from = samples[i];
    Json json = {{"step", step},        {"name", from.name},     {"prompt", from.prompt},
                 {"truth", from.truth}, {"output", from.output}, {"correct", from.correct}};
    if (!had_picture[i] && !entry(from.name).png.empty()) json[kPicture] = base64(entry(from.name).png);
    lines += line_of(json);
  }
  if (lines.empty()) return;
  const OpenFile file(path_);
  write_fully(file.descriptor(), lines, path_);
}

void SampleLog::truncate_after(int64_t step) {
  if (!is_file(path_)) return;
  std::string kept;
  for (const Json& json : read_lines(path_)) {
    if (json["step"].get<int64_t>() <= step) kept += line_of(json);
  }
  write_file_atomic(path_, kept);
  *this = SampleLog(path_);
}

std::vector<ReportSample> SampleLog::samples() const {
  std::vector<ReportSample> out;
  for (const ReportSample& sample : samples_) {
    if (!sample.outputs.empty()) out.push_back(sample);
  }
  std::stable_sort(out.begin(), out.end(), [](const ReportSample& a, const ReportSample& b) {
    return a.outputs.front().step > b.outputs.front().step;
  });
  return out;
}

}  // namespace loom
