// A small test framework: named test cases, checks, and a `main` that runs all cases.
//
//   TEST(a_ring_hands_over_what_was_pushed) { CHECK(...); CHECK_EQ(a, b); CHECK_THROWS(std::invalid_argument, f()); }
//
// The first check that fails ends its process, in any thread or forked child, because later failures would only follow
// from the first one.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace check {

using Case = std::pair<const char*, void (*)()>;

inline std::vector<Case> cases;

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  std::fflush(stderr);
  std::_Exit(1);  // runs no destructors, because other threads still use the objects
}

template <class T>
std::string show(const T& value) {
  std::ostringstream out;
  if constexpr (std::is_enum_v<T>)
    out << static_cast<long long>(value);
  else
    out << value;
  return out.str();
}

template <class A, class B>
void equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (!(a == b)) fail(file, line, std::string("expected ") + text + ", got " + show(a) + " and " + show(b));
}

}  // namespace check

#define TEST(name)                                                                          \
  static void name();                                                                       \
  [[maybe_unused]] static const auto& case_##name = check::cases.emplace_back(#name, name); \
  static void name()

#define CHECK(condition) ((condition) ? void() : check::fail(__FILE__, __LINE__, "expected " #condition))

#define CHECK_EQ(a, b) check::equal((a), (b), #a " == " #b, __FILE__, __LINE__)

#define CHECK_THROWS(type, ...)                                                                \
  do {                                                                                         \
    bool thrown = false;                                                                       \
    try {                                                                                      \
      (void)(__VA_ARGS__);                                                                     \
    } catch (const type&) {                                                                    \
      thrown = true;                                                                           \
    }                                                                                          \
    if (!thrown) check::fail(__FILE__, __LINE__, "expected " #__VA_ARGS__ " to throw " #type); \
  } while (false)

int main() {
  for (const auto& [name, run] : check::cases) {
    std::printf("%s\n", name);
    std::fflush(stdout);
    run();
  }
}
