#include "tests/loopback/pairwise.h"

#include <set>
#include <tuple>

#include "core/base/random.h"

namespace loom::test {
namespace {

using Pair = std::tuple<size_t, int, size_t, int>;  // factor, level, later factor, level

std::set<Pair> possible_pairs(const std::vector<Factor>& factors, const Allowed& allowed) {
  std::set<Pair> out;
  for (size_t i = 0; i < factors.size(); ++i) {
    for (size_t j = i + 1; j < factors.size(); ++j) {
      for (int a = 0; a < static_cast<int>(factors[i].levels.size()); ++a) {
        for (int b = 0; b < static_cast<int>(factors[j].levels.size()); ++b) {
          Combination open(factors.size(), -1);
          open[i] = a;
          open[j] = b;
          if (allowed(open)) out.insert({i, a, j, b});
        }
      }
    }
  }
  return out;
}

int64_t fresh_pairs(const Combination& c, size_t factor, const std::set<Pair>& open) {
  int64_t n = 0;
  for (size_t other = 0; other < c.size(); ++other) {
    if (other == factor || c[other] < 0) continue;
    const bool first = factor < other;
    n += static_cast<int64_t>(
        open.count(first ? Pair{factor, c[factor], other, c[other]} : Pair{other, c[other], factor, c[factor]}));
  }
  return n;
}

class Builder {
 public:
  Builder(const std::vector<Factor>& factors, const Allowed& allowed, uint64_t seed)
      : factors_(factors), allowed_(allowed), random_({seed, Purpose::sample}) {}

  // Fills the open levels, in random order, each with the one that covers most; false when nothing goes.
  bool fill(Combination& c, const std::set<Pair>& open) {
    std::vector<size_t> order;
    for (size_t f = 0; f < c.size(); ++f) {
      if (c[f] < 0) order.insert(order.begin() + static_cast<std::ptrdiff_t>(below(order.size() + 1)), f);
    }
    for (const size_t f : order) {
      const auto levels = static_cast<int>(factors_[f].levels.size());
      const auto start = static_cast<int>(below(static_cast<size_t>(levels)));
      int best = -1;
      int64_t most = -1;
      for (int k = 0; k < levels; ++k) {
        c[f] = (start + k) % levels;
        if (!allowed_(c)) continue;
        const int64_t n = fresh_pairs(c, f, open);
        if (n > most) best = c[f], most = n;
      }
      c[f] = best;
      if (best < 0) return false;
    }
    return true;
  }
  size_t below(size_t bound) { return static_cast<size_t>(random_.below(bound, next_++)); }

 private:
  const std::vector<Factor>& factors_;
  const Allowed& allowed_;
  Philox random_;
  uint64_t next_ = 0;
};

int64_t close(const Combination& c, std::set<Pair>& open) {
  int64_t n = 0;
  for (size_t i = 0; i < c.size(); ++i) {
    for (size_t j = i + 1; j < c.size(); ++j) n += static_cast<int64_t>(open.erase({i, c[i], j, c[j]}));
  }
  return n;
}

}  // namespace

std::vector<Combination> pairwise(const std::vector<Factor>& factors, const Allowed& allowed, size_t least,
                                  uint64_t seed) {
  std::set<Pair> open = possible_pairs(factors, allowed);
  Builder builder(factors, allowed, seed);
  std::vector<Combination> out;
  while (!open.empty()) {
    Combination best;
    int64_t most = 0;
    for (int attempt = 0; attempt < 20; ++attempt) {
      auto pick = open.begin();
      std::advance(pick, static_cast<std::ptrdiff_t>(builder.below(open.size())));
      Combination c(factors.size(), -1);
      c[std::get<0>(*pick)] = std::get<1>(*pick);
      c[std::get<2>(*pick)] = std::get<3>(*pick);
      if (!builder.fill(c, open)) continue;
      std::set<Pair> rest = open;
      const int64_t n = close(c, rest);
      if (n > most) best = c, most = n;
    }
    if (most == 0) break;  // what is left goes with nothing else
    close(best, open);
    out.push_back(best);
  }
  while (out.size() < least) {
    Combination c(factors.size(), -1);
    if (builder.fill(c, {})) out.push_back(c);
  }
  return out;
}

Coverage coverage_of(const std::vector<Combination>& cases, const std::vector<Factor>& factors,
                     const Allowed& allowed) {
  std::set<Pair> open = possible_pairs(factors, allowed);
  Coverage out;
  out.possible = static_cast<int64_t>(open.size());
  for (const Combination& c : cases) close(c, open);
  out.covered = out.possible - static_cast<int64_t>(open.size());
  return out;
}

std::string describe(const Combination& combination, const std::vector<Factor>& factors) {
  std::string out;
  for (size_t f = 0; f < factors.size(); ++f) {
    out += (f == 0 ? "" : " ") + factors[f].name + "=" + factors[f].levels[static_cast<size_t>(combination[f])];
  }
  return out;
}

}  // namespace loom::test
