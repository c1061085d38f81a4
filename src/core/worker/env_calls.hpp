// Runs the code of envs. While that code hangs, another thread can take over the loop of the worker.
//
// A thread cannot be killed. When the pool finds that a call of an env is late, it starts another thread, which calls
// `take_over` and continues the loop. Should the late call return after all, `run` throws TakenOver in the first
// thread. This thread then leaves the loop, and no longer touches the loop or the arena.
//
// Code of an env may fork. A child that comes back from that code must not run the loop, too: it ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

#include "os/forks.hpp"
#include "python/numpy_api.hpp"
#include "worker/env_results.hpp"

namespace remuda {

// Thrown in a thread that has lost its loop to another thread. A hook in Python sees it as the exception `type`.
struct TakenOver : std::exception {
  const char* what() const noexcept override { return "another thread has taken over the loop of this one"; }

  static inline nb::handle type;
  static bool is_in(const nb::python_error& error) { return error.matches(type); }
};

class EnvCalls {
 public:
  explicit EnvCalls(const nb::object& hooks) : hooks_(hooks) {}

  // Returns `code()`, which runs code of an env, and nothing else that uses the loop. Only the loop's thread calls
  // this.
  template <class Code>
  auto run(Code&& code) {
    const std::uint64_t forks = fork_count;
    const std::uint64_t mine = count_.load(std::memory_order_relaxed) + 1;
    count_.store(mine, std::memory_order_release);
    auto outcome = [&] {
      try {
        return code();
      } catch (nb::python_error& error) {
        if (fork_count != forks) hooks_.attr("end_child")(value_of(error));
        end(mine);
        throw;
      } catch (...) {
        end(mine);
        throw;
      }
    }();
    if (fork_count != forks) hooks_.attr("end_child")(nb::none());
    end(mine);
    return outcome;
  }

  // Makes the thread lose the loop that now runs code of an env, if `is_late` returns true. The caller then has the
  // loop. Returns false if no code runs or it is not late: the loop stays with its thread. Any thread may call this.
  template <class Condition>
  bool take_over(Condition&& is_late) {
    std::uint64_t current = count_.load(std::memory_order_acquire);
    return current % 2 == 1 && is_late() && count_.compare_exchange_strong(current, current + 1);
  }

 private:
  void end(std::uint64_t mine) {
    if (!count_.compare_exchange_strong(mine, mine + 1)) throw TakenOver{};
  }

  const nb::object& hooks_;
  std::atomic<std::uint64_t> count_{0};  // the number of begins and ends of calls: odd while a call runs
};

}  // namespace remuda
