// The reason why a command was not sent: the first check that failed, and the slots that failed it.
#pragma once

#include <cstdint>
#include <vector>

namespace remuda {

struct Refusal {
  enum class Reason : std::uint8_t {
    kPart,       // the pool was split again, and this part no longer exists
    kPending,    // some slots of the part have commands or results
    kTargets,    // not a list, tuple or array of distinct slots of the part, in whole vector envs
    kMustReset,  // some slots must be reset first
    kLost,       // the envs of some slots are lost
    kInFlight,   // some slots have a command or a result already
  };

  Reason reason;
  std::vector<std::uint32_t> slots =
      {};  // the slots that failed the check, in the order of the command; empty for kPart and kTargets
};

}  // namespace remuda
