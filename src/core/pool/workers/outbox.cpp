#include "pool/workers/outbox.hpp"

#include "ipc/blob_parts.hpp"

namespace remuda {

void Outbox::push(std::uint32_t worker, Command command, nb::handle parts) {
  Port& port = ports_[worker];
  if (!parts.is_none()) command.flags = write_parts(port.blobs_out, parts) ? kHasBlob : kOnSocket;
  port.commands.push(command);
  port.outstanding += command.count;
  port.has_unpublished = true;
  if (command.flags != kOnSocket) return;
  // The record is published before the message, and without waiting for a turn, because the record makes the worker
  // read the message.
  TimeOfCall now;
  publish(worker, now, true);
  mail_.post(worker, parts);
}

void Outbox::publish(std::uint32_t worker, TimeOfCall& now, bool at_once) {
  Port& port = ports_[worker];
  if (!port.has_unpublished || !port.is_published()) return;
  const bool had_turn = turns_.has(worker);
  if (at_once)
    turns_.take(worker);
  else if (!turns_.ask(worker))
    return;
  if (!had_turn && deadlines_.has_any()) port.heard = now.get();
  port.has_unpublished = false;
  has_published_ = true;
  port.commands.publish();
  now.note(notify(*port.bell));
}

void Outbox::finish_turn(std::uint32_t worker) {
  if (!turns_.has(worker)) return;
  turns_.end(worker);
  TimeOfCall now;
  while (const auto next = turns_.next()) publish(*next, now);
}

}  // namespace remuda
