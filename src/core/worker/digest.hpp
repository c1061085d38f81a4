// A digest of what an env returned, to find out whether the env, built again, returns the same. It distinguishes all
// values that a learner could, and does not withstand an attack.
#pragma once

#include <cstddef>
#include <cstdint>

#include "python/numpy_api.hpp"

namespace remuda {

class Digest {
 public:
  // `hooks`: those of the loop, which pickle values of other types than `add` knows.
  explicit Digest(const nb::object& hooks) : hooks_(hooks) {}

  void add(const void* data, std::size_t bytes);
  // Adds a value: numbers, texts, arrays, and dicts and sequences of these. The order of a set does not count. Raises
  // what the hook raises.
  void add(nb::handle value);

  // The digest of all that was added; never 0.
  std::uint64_t value() const { return state_ == 0 ? 1 : state_; }

 private:
  // The sizes and kinds of values are added too: otherwise, different values could have the same bytes one after
  // another.
  void add_number(std::uint64_t number) { state_ = mixed(state_, number); }
  void add_nested(nb::handle value);
  void add_array(nb::handle array);
  void add_items(nb::handle items, Py_ssize_t count);
  void add_set(nb::handle items);
  static std::uint64_t mixed(std::uint64_t state, std::uint64_t number) {
    state = (state ^ number) * 0x9E3779B97F4A7C15;  // 2 ** 64 divided by the golden ratio
    return state ^ (state >> 32);
  }

  static constexpr int kDeepest = 50;  // a value that is nested more deeply, or contains itself, is pickled

  const nb::object& hooks_;
  int depth_ = 0;
  std::uint64_t state_ = 0x6A09E667F3BCC908;
};

}  // namespace remuda
