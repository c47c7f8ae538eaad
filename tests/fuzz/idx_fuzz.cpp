// IDX files, plain or gzip. Two bytes say how long the file of pictures is; the rest is the file of labels.
#include <algorithm>

#include "core/config/config_value.h"
#include "core/data/idx_source.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loom;
  if (size < 2) return 0;
  const std::string_view bytes = fuzz::view(data, size).substr(2);
  const size_t cut = std::min<size_t>(data[0] | data[1] << 8, bytes.size());
  const fuzz::MemoryFile images(bytes.substr(0, cut)), labels(bytes.substr(cut));
  fuzz::expect_parsed_or_refused([&] {
    const ConfigValue names =
        ConfigValue::list({ConfigValue::string("shirt"), ConfigValue::string("bag"), ConfigValue::string("{name}")});
    const ConfigValue config = ConfigValue::map({{"type", ConfigValue::string("idx")},
                                                 {"images", ConfigValue::string(images.path())},
                                                 {"labels", ConfigValue::string(labels.path())},
                                                 {"names", names},
                                                 {"caption", ConfigValue::string("a {name}")},
                                                 {"modality", ConfigValue::string("image")},
                                                 {"limit", ConfigValue::integer(0)}});
    const std::unique_ptr<Source> source = make_idx_source(config, "fuzz.0");
    for (int64_t i = 0; i < std::min<int64_t>(source->size(), 4); ++i) source->read(i);
    source->read(source->size() - 1);
  });
  fuzz::expect_parsed_or_refused([&] { read_idx_picture(images.path(), data[0], "image"); });
  return 0;
}
