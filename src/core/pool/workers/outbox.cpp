#include "pool/workers/outbox.hpp"

#include "ipc/blob_parts.hpp"

namespace remuda {

void Outbox::push(std::uint32_t worker, Command command, nb::handle parts) {
  Port& port = ports_[worker];
  if (!parts.is_none()) command.flags = write_parts(port.blobs_out, parts) ? kHasBlob : kOnSocket;
  port.commands.push(command);
  port.outstanding += command.count;
  port.has_unpublished = true;
  if (command.flags == kOnSocket) write_to_socket(worker, parts);
}

// First the record, and out of turn: it makes the worker read the socket.
void Outbox::write_to_socket(std::uint32_t worker, nb::handle parts) {
  TimeOfCall now;
  publish(worker, now, true);
  try {
    transfers_.note(worker, Way::kWrite, send_(worker, parts).is(nb::bool_(true)));
  } catch (nb::python_error& error) {
    interrupt_.emplace(error);  // what was begun is done first: the books must balance
  }
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
  port.commands.publish();
  now.note(notify(*port.bell));
}

void Outbox::finish_turn(std::uint32_t worker) {
  if (!turns_.has(worker)) return;
  turns_.end(worker);
  TimeOfCall now;
  while (const auto next = turns_.next()) publish(*next, now);
}

// What is to be read waits until its record is looked at.
void Outbox::write_on() {
  if (!transfers_.any_writing()) return;
  for (std::uint32_t worker = 0; worker < ports_.size(); ++worker) {
    if (!transfers_.is_partial(worker, Way::kWrite) || !transfers_.can_move(worker, Way::kWrite)) continue;
    transfers_.note(worker, Way::kWrite, send_(worker, nb::none()).is(nb::bool_(true)));
  }
}

void Outbox::raise_interrupt() {
  if (!interrupt_) return;
  nb::python_error interrupt(*interrupt_);
  interrupt_.reset();
  throw interrupt;
}

}  // namespace remuda
