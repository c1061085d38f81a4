// A record that can be checked for being whole: a mixture of two records, or of a record and zeros, fails the check.
#pragma once

#include <cstdint>

// Returns a hash of `x` (the finalizer of splitmix64).
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

struct Record {
  std::uint64_t sequence = 0;
  std::uint64_t body[7] = {};  // computed from the sequence

  Record() = default;
  explicit Record(std::uint64_t n) : sequence(n) {
    for (std::uint64_t i = 0; i < 7; ++i) body[i] = mixed(7 * n + i + 1);
  }
  bool whole() const { return *this == Record(sequence); }
  bool operator==(const Record&) const = default;
};
static_assert(sizeof(Record) == 64);
