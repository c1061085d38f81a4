// Whether numbers keep their values in a type of integers, and whether they are choices that a space has.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace remuda {

// A type of integers of so many bits; a bool is one of a single bit without a sign.
struct IntegerType {
  bool is_signed;
  int bits;

  // Whether it has this number: one that is whole, and in its range.
  bool holds(std::int64_t number) const {
    if (!is_signed) return number >= 0 && holds(static_cast<std::uint64_t>(number));
    return bits == 64 || (number >= -(std::int64_t{1} << (bits - 1)) && number < (std::int64_t{1} << (bits - 1)));
  }
  bool holds(std::uint64_t number) const {
    const int value_bits = bits - (is_signed ? 1 : 0);
    return value_bits == 64 || number < (std::uint64_t{1} << value_bits);
  }
  // The ends of the range are powers of two, which every type of floats has.
  bool holds(long double number) const {
    const long double end = std::ldexp(1.0L, bits - (is_signed ? 1 : 0));
    return number >= (is_signed ? -end : 0.0L) && number < end && number == std::floor(number);
  }
};

// The inclusive bounds of a discrete space: one pair for all its numbers, or one for each number of an element. `Wide`:
// std::int64_t or std::uint64_t, in which they are compared.
template <class Wide>
class Choices {
 public:
  explicit Choices(std::vector<std::pair<Wide, Wide>> bounds) : bounds_(std::move(bounds)) {}

  // Whether all of `count` numbers, of whole elements, are within.
  bool hold(const Wide* numbers, std::size_t count) const {
    if (bounds_.size() == 1) {
      const auto [low, high] = bounds_[0];
      for (std::size_t i = 0; i < count; ++i)
        if (numbers[i] < low || numbers[i] > high) return false;
      return true;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto& [low, high] = bounds_[i % bounds_.size()];
      if (numbers[i] < low || numbers[i] > high) return false;
    }
    return true;
  }

 private:
  std::vector<std::pair<Wide, Wide>> bounds_;
};

}  // namespace remuda
