// The reason why no command was sent: the first check that failed, and the slots that failed it.
#pragma once

#include <cstdint>
#include <vector>

namespace remuda {

struct Refusal {
  enum class Reason : std::uint8_t {
    kPart,     // The pool was split again, or closed, and this part no longer exists.
    kPending,  // A step for some slots needs a part without pending slots.
    // The argument is not a list, tuple or array of distinct slots of the part that form whole vector envs.
    kTargets,
    kMustReset,  // Some slots must be reset first.
    kLost,       // The envs of some slots are lost.
    kInFlight,   // Some slots have a command or a result already.
  };

  Reason reason;
  std::vector<std::uint32_t> slots =
      {};  // the slots that failed the check, in the order of the command; empty for kPart and kTargets
};

}  // namespace remuda
