// Bindings of the protocol's constants: ops, autoreset modes, flags, limits.
#include "ipc/protocol.hpp"

#include "bindings/bindings.hpp"
#include "pool/batches/frames.hpp"
#include "pool/workers/message_socket.hpp"
#include "shm/infos.hpp"
#include "worker/episode_log.hpp"

using namespace nb::literals;

namespace remuda {

void bind_protocol(nb::module_& m) {
  nb::enum_<Op>(m, "Op")
      .value("RESET", Op::kReset)
      .value("STEP", Op::kStep)
      .value("OBSERVE", Op::kObserve)
      .value("MESSAGE", Op::kMessage)
      .value("CLOSE", Op::kClose)
      .value("REBUILD", Op::kRebuild)
      .value("RESET_INTO_ROW", Op::kResetIntoRow)
      .value("PREPARE", Op::kPrepare)
      .value("RESUME", Op::kResume)
      .value("REPEAT", Op::kRepeat);
  nb::enum_<Autoreset>(m, "Autoreset")
      .value("NEXT_STEP", Autoreset::kNextStep)
      .value("SAME_STEP", Autoreset::kSameStep)
      .value("DISABLED", Autoreset::kDisabled)
      .value("BACKGROUND", Autoreset::kBackground);
  m.attr("MESSAGE_MARK") = nb::bytes(MessageSocket::kMark.data(), MessageSocket::kMarkBytes);
  m.attr("HAS_FINAL") = kHasFinal;
  m.attr("HAS_NEW_KEYS") = kHasNewKeys;
  m.attr("IS_FAILURE") = kIsFailure;
  m.attr("NOT_RESUMED") = kNotResumed;
  m.attr("RENEWAL_DUE") = kRenewalDue;
  m.attr("GROWN") = kGrown;
  m.attr("HAS_SPARES") = kHasSpares;
  m.attr("UNDONE") = kUndone;
  m.attr("IS_MESSAGE") = kIsMessage;
  m.attr("ABANDONED") = kAbandoned;
  m.attr("WHOLE_WORKER") = kWholeWorker;
  m.attr("INFO_COLUMN") = kInfo;
  m.attr("MAX_INFO_COLUMNS") = InfoWriter::kMaxColumns;
  m.attr("MAX_INFO_COLUMN_BYTES") = InfoWriter::kMaxColumnBytes;
  m.attr("BEGINNING_BYTES") = sizeof(LogBeginning::text);
  m.attr("MAX_FRAMES") = FrameBook::kMaxFrames;
}

}  // namespace remuda
