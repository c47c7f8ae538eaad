#pragma once
// Words and numbers for people: the nearest valid name, "60,000", "1.2M", globs over parameter names. Small pure
// functions that every layer uses in its messages, kept here so that they all read alike.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loom {

// Edits (insert, delete, replace, swap of neighbours) that turn a into b; case and '-' against '_' cost nothing.
std::size_t edit_distance(std::string_view a, std::string_view b);
// The candidate that was probably meant; nothing when none is close. The first one wins a tie.
std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates);
// "; did you mean 'kv_heads'?", or nothing: to be appended to a message.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);  // "a..b" has three parts; "" has one
std::string_view trim(std::string_view text);
std::string quote_text(std::string_view text);  // 'text' on one line of valid UTF-8, shortened when long; for messages

// '*' stands for any run of characters, dots included; '?' for one. The whole text must match.
bool glob_match(std::string_view pattern, std::string_view text);

std::string with_commas(int64_t value);      // 60,000
std::string human_count(double value);       // 950, 1.2K, 1.2M, 7.1B
std::string human_bytes(double bytes);       // 512 B, 1.9 GB (powers of 1000)
std::string human_duration(double seconds);  // 1:31, 2:03:04
std::string shortest_double(double value);   // fewest digits that read back to the same bits; inf, -inf, nan

bool valid_utf8(std::string_view text);
std::size_t utf8_columns(std::string_view text);                   // code points
std::string utf8_cut(std::string_view text, std::size_t columns);  // at most so many code points

}  // namespace loom
