// A number keeps its value in a type of integers, or it does not; choices are within their bounds, both ends included.
#include <limits>

#include "check.hpp"
#include "pool/actions/whole_numbers.hpp"

using remuda::Choices;
using remuda::IntegerType;

namespace {

using std::int64_t;
using std::uint64_t;

constexpr IntegerType kInt8{true, 8}, kUint8{false, 8}, kInt64{true, 64}, kUint64{false, 64}, kBool{false, 1};
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();

}  // namespace

TEST(integers_with_a_sign) {
  CHECK(kInt8.holds(int64_t{-128}) && kInt8.holds(int64_t{127}));
  CHECK(!kInt8.holds(int64_t{-129}) && !kInt8.holds(int64_t{128}) && !kInt8.holds(kMost));
  CHECK(kUint8.holds(int64_t{0}) && kUint8.holds(int64_t{255}));
  CHECK(!kUint8.holds(int64_t{-1}) && !kUint8.holds(int64_t{256}));
  CHECK(kInt64.holds(kLeast) && kInt64.holds(kMost) && kUint64.holds(kMost) && !kUint64.holds(int64_t{-1}));
  CHECK(kBool.holds(int64_t{0}) && kBool.holds(int64_t{1}) && !kBool.holds(int64_t{2}) && !kBool.holds(int64_t{-1}));
}

TEST(integers_without_a_sign) {
  CHECK(kInt8.holds(uint64_t{127}) && !kInt8.holds(uint64_t{128}));
  CHECK(kUint8.holds(uint64_t{255}) && !kUint8.holds(uint64_t{256}));
  CHECK(kInt64.holds(uint64_t{kMost}) && !kInt64.holds(uint64_t{kMost} + 1));
  CHECK(kUint64.holds(~uint64_t{0}));
}

TEST(floats) {
  CHECK(kInt8.holds(-128.0L) && kInt8.holds(127.0L) && kInt8.holds(-0.0L));
  CHECK(!kInt8.holds(-128.5L) && !kInt8.holds(127.5L) && !kInt8.holds(128.0L) && !kInt8.holds(0.5L));
  CHECK(kInt64.holds(-0x1p63L) && !kInt64.holds(0x1p63L) && !kUint64.holds(-1.0L) && !kUint64.holds(0x1p64L));
  CHECK(kUint64.holds(0x1p63L));
  for (IntegerType type : {kInt8, kUint64, kBool}) {
    CHECK(!type.holds(std::numeric_limits<long double>::quiet_NaN()));
    CHECK(!type.holds(std::numeric_limits<long double>::infinity()));
    CHECK(!type.holds(-std::numeric_limits<long double>::infinity()));
  }
}

TEST(one_pair_of_bounds_for_all) {
  const Choices<int64_t> choices({{-1, 2}});
  const int64_t good[] = {-1, 0, 2, 2, -1}, low[] = {0, -2}, high[] = {0, 0, 3};
  CHECK(choices.hold(good, 5) && choices.hold(good, 0) && !choices.hold(low, 2) && !choices.hold(high, 3));
}

TEST(a_pair_for_each_number_of_an_element) {
  const Choices<int64_t> choices({{0, 1}, {5, 9}});
  const int64_t good[] = {0, 5, 1, 9}, swapped[] = {0, 5, 5, 1};
  CHECK(choices.hold(good, 4) && !choices.hold(swapped, 4));
}

TEST(bounds_beyond_those_of_a_sign) {
  const Choices<uint64_t> choices({{1, ~uint64_t{0}}});
  const uint64_t good[] = {1, ~uint64_t{0}}, low[] = {0};
  CHECK(choices.hold(good, 2) && !choices.hold(low, 1));
}
