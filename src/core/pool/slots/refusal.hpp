// Why a command was not sent: the first of the checks that failed. Nothing was sent then.
#pragma once

#include <cstdint>

namespace remuda {

enum class Refusal : std::uint8_t {
  kPart,       // there is no such part any more
  kPending,    // something else is in flight, or not taken yet
  kTargets,    // they are not told as a list, tuple or array of distinct slots of the part, of vector envs all
  kActions,    // they do not fit
  kMustReset,  // a slot must be reset first
  kLost,       // an env was lost
  kInFlight,   // a slot has a command already
};

}  // namespace remuda
