#include "worker/remote_port.hpp"

#include <algorithm>
#include <utility>

#include "ipc/clock.hpp"

namespace remuda {

RemotePort::RemotePort(std::shared_ptr<Arena> arena, const Plan& plan, const WorkerSpec& spec, std::uint32_t envs,
                       nb::object receive, nb::object send)
    : arena_(std::move(arena)),
      plan_(plan),
      spec_(spec),
      receive_(std::move(receive)),
      send_(std::move(send)),
      port_(*arena_, plan_, spec_),
      meter_(*arena_->at<Meter>(plan_.meter(spec.index))),
      envs_(envs) {
  meter_.end();
}

void RemotePort::take(nb::list commands) {
  Command command;
  while (port_.pop(command)) {
    nb::object parts = nb::none();
    if (command.flags & kOnSocket)
      parts = receive_();
    else if (command.flags & kHasBlob)
      parts = port_.read_blob();
    Pending pending{command.sequence, now_ns(), command.env, command.row, command.op};
    if (is_message(command.op)) {
      messages_.push_back(pending);
      command.row = spec_.index;
    } else {
      for (std::uint32_t i = 0; i < command.count; ++i, ++pending.env, ++pending.row)
        envs_[pending.env - spec_.first_env] = pending;
    }
    commands.append(nb::make_tuple(command.op, command.env, command.count, command.row, command.action,
                                   command.sequence, std::move(parts)));
  }
  note_task();
}

void RemotePort::answer(std::uint32_t env, std::uint32_t count, std::uint32_t flags, nb::handle parts) {
  for (std::uint32_t i = 0; i < count; i += plan_.width)
    if (Pending& pending = envs_.at(env + i - spec_.first_env); pending.sequence != 0)
      post(pending, plan_.width, flags, parts);
  port_.publish(true, now_ns());
  note_task();
}

void RemotePort::answer_message(std::uint64_t sequence, std::uint32_t flags, nb::handle parts) {
  const auto its = std::find_if(messages_.begin(), messages_.end(),
                                [sequence](const Pending& pending) { return pending.sequence == sequence; });
  if (its == messages_.end()) return;
  post(*its, 1, flags | kIsMessage, parts);
  messages_.erase(its);
  port_.publish(true, now_ns());
  note_task();
}

// Records a command without an answer as the worker's task, for reports of the worker's death.
void RemotePort::note_task() {
  auto next = std::find_if(envs_.begin(), envs_.end(), [](const Pending& pending) { return pending.sequence != 0; });
  if (next == envs_.end() && !messages_.empty()) next = messages_.begin();
  if (next == envs_.end())
    meter_.end();
  else
    meter_.begin(next->op, next->env, now_ns());
}

void RemotePort::note_record() {
  arena_->at<Records>(Plan::kRecords)->sent.fetch_add(1, std::memory_order_relaxed);
  arena_->wakeup().wake();
}

void RemotePort::post(Pending& pending, std::uint32_t count, std::uint32_t flags, nb::handle parts) {
  Result result{};
  result.env = pending.env;
  result.row = pending.row;
  result.count = count;
  result.flags = flags;
  result.sequence = std::exchange(pending.sequence, 0);
  result.begin_ns = pending.begin_ns;
  result.end_ns = now_ns();
  result.op = pending.op;
  if (!parts.is_none()) {
    const bool fits = !PyTuple_Check(parts.ptr()) && port_.write_blob(parts);
    result.flags |= fits ? kHasBlob : kOnSocket;
    if (!fits) send_(parts);
  }
  port_.push(result);
}

}  // namespace remuda
