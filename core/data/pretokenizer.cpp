// Which characters are letters must not depend on the installed PCRE2: ids would differ between machines, and from
// those of the `tokenizers` package. So characters that Unicode 15 and 16 added are listed here, for libraries that
// only know Unicode 14, and white space is spelled out, since \s of PCRE2 holds one character more (U+180E).
#include "core/data/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <string>

#include "core/base/error.h"

namespace loom {
namespace {

constexpr const char* kLetters =
    R"(\p{L}\x{1c89}\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65})"
    R"(\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{1123f}\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e})"
    R"(\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10})"
    R"(\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d40}-\x{16d6c})"
    R"(\x{18cff}\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d}\x{1e4d0}-\x{1e4eb}\x{1e5d0}-\x{1e5ed})"
    R"(\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr const char* kNumbers =
    R"(\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139})"
    R"(\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})";
constexpr const char* kBlanks =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Shared by all threads: compiled code is only read.
const pcre2_code* word_pattern() {
  static const pcre2_code* const code = [] {
    const std::string pattern = concat("'s|'t|'re|'ve|'m|'ll|'d| ?[", kLetters, "]+| ?[", kNumbers, "]+| ?[^", kBlanks,
                                       kLetters, kNumbers, "]+|[", kBlanks, "]+(?![^", kBlanks, "])|[", kBlanks, "]+");
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* made = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    LOOM_CHECK(made != nullptr, "PCRE2 error ", error, " at ", offset, " of ", pattern);
    pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);  // where memory may not be executable, matching is merely slower
    return made;
  }();
  return code;
}

// Bytes of the character that begins at `at`; 0 when it is no valid UTF-8.
size_t character_size(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xc2 && lead < 0xe0   ? 2
                      : lead >= 0xe0 && lead < 0xf0 ? 3
                      : lead >= 0xf0 && lead < 0xf5 ? 4
                                                    : 0;
  if (size == 0 || at + size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Too long for its value, a surrogate, or above U+10FFFF: visible in the second byte.
  const unsigned char second = byte(1);
  const bool bad = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ||
                   (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90);
  return bad ? 0 : size;
}

size_t valid_until(std::string_view text, size_t at) {
  while (at < text.size()) {
    const size_t size = character_size(text, at);
    if (size == 0) break;
    at += size;
  }
  return at;
}

}  // namespace

struct Pretokens::Match {
  Match() : code(word_pattern()), data(pcre2_match_data_create(1, nullptr)) {
    if (data == nullptr) throw std::bad_alloc();
  }
  ~Match() { pcre2_match_data_free(data); }
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;

  const pcre2_code* code;
  pcre2_match_data* data;
};

Pretokens::Pretokens(std::string_view text) : text_(text), match_(std::make_unique<Match>()) {}
Pretokens::~Pretokens() = default;

bool Pretokens::next(std::string_view& word) {
  if (at_ == text_.size()) return false;
  if (at_ == end_) {
    begin_ = at_;
    end_ = valid_until(text_, at_);
    if (end_ == at_) {
      word = text_.substr(at_++, 1);
      end_ = at_;
      return true;
    }
  }
  // Every character is a letter, a number, blank or none of them, so a match begins where it is looked for.
  const int found = pcre2_match(match_->code, reinterpret_cast<PCRE2_SPTR>(text_.data() + begin_), end_ - begin_,
                                at_ - begin_, PCRE2_NO_UTF_CHECK, match_->data, nullptr);
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match_->data);
  LOOM_CHECK(found > 0 && begin_ + ends[0] == at_ && ends[1] > ends[0], "PCRE2 answered ", found, " at byte ", at_);
  word = text_.substr(at_, ends[1] - ends[0]);
  at_ += word.size();
  return true;
}

}  // namespace loom
