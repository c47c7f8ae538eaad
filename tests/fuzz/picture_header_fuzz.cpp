// Picture files of every format: the header, and the pixels when it claims few enough of them.
#include <ATen/ATen.h>

#include <algorithm>

#include "core/data/picture.h"
#include "core/data/picture_formats.h"
#include "core/data/picture_header.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loom;
  constexpr int64_t kMost = 4096;
  const std::string_view bytes = fuzz::view(data, size);
  const int turned = exif_orientation(bytes);
  fuzz::require(turned >= 1 && turned <= 8, "an orientation is 1 to 8");
  bool small = false;
  fuzz::expect_parsed_or_refused([&] {
    const PictureHeader header = read_picture_header(bytes, "picture");
    fuzz::require(header.width > 0 && header.height > 0, "a header without a size was accepted");
    fuzz::require(header.orientation >= 1 && header.orientation <= 8, "an orientation is 1 to 8");
    for (const auto& [place, value] : header.changes) fuzz::require(place < size, "a change outside the file");
    small = header.width <= kMost && header.height <= kMost && header.width * header.height <= kMost;
  });
  PictureOptions options;
  options.max_pixels = kMost;
  fuzz::expect_parsed_or_refused([&] {
    const Media media = decode_picture(bytes, "picture", "image", options);
    fuzz::require(small, "more pixels than allowed were decoded");
    fuzz::require(media.data.numel() == media.info.height * media.info.width * media.info.channels, "wrong pixels");
    fuzz::touch(media.data.const_data_ptr(), media.data.nbytes());
  });
  return 0;
}
