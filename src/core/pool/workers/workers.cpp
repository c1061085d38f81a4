#include "pool/workers/workers.hpp"

#include <algorithm>
#include <stdexcept>

#include "ipc/blob_parts.hpp"

namespace remuda {

Workers::Workers(const std::shared_ptr<Arena>& arena, const Plan& plan,
                 const std::vector<std::uint32_t>& envs_of_worker, const nb::sequence& queues,
                 std::uint32_t max_running)
    : arena_(*arena),
      plan_(plan),
      figures_(arena->at<WorkerFigures>(plan.worker_figures)),
      mail_(plan.workers, queues),
      watch_(std::make_shared<Watch>(arena->wakeup(), plan.workers, nb::len(queues) != 0)),
      records_(*arena->at<Records>(Plan::kRecords)),
      limit_(plan.workers, max_running) {
  std::uint32_t first_env = 0;
  for (std::uint32_t w = 0; w < plan.workers; first_env += envs_of_worker[w++])
    ports_.emplace_back(*arena, plan, w, first_env, envs_of_worker[w]);
}

void Workers::push(std::uint32_t worker, Command command, nb::handle parts) {
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

void Workers::publish(std::uint32_t worker, TimeOfCall& now, bool at_once) {
  Port& port = ports_[worker];
  if (!port.has_unpublished || !port.is_alive()) return;
  const bool had_turn = limit_.has(worker);
  if (at_once)
    limit_.take(worker);
  else if (!limit_.ask(worker))
    return;
  if (!had_turn && deadlines_.has_any()) port.heard = now.get();
  port.has_unpublished = false;
  has_published_ = true;
  port.commands.publish();
  now.note(notify(*port.bell));
}

void Workers::finish_turn(std::uint32_t worker) {
  if (!limit_.has(worker)) return;
  limit_.end(worker);
  TimeOfCall now;
  while (const auto next = limit_.next()) publish(*next, now);
}

Mail::Arrival Workers::read(std::uint32_t worker, const Result& result, nb::object& parts) {
  if (result.flags & kOnSocket) return mail_.read(worker, parts);
  try {
    if (result.flags & kHasBlob) parts = read_parts(ports_[worker].blobs_in);
  } catch (const std::length_error&) {
    return Mail::Arrival::kNonsense;
  }
  return Mail::Arrival::kWhole;
}

void Workers::watch_process(std::uint32_t worker, int pidfd, int socket) {
  watch_->set_process(worker, pidfd);
  mail_.open(worker, socket);
}

void Workers::end(std::uint32_t worker) {
  end_absence(worker);  // of a worker whose successors could not be started
  watch_process(worker, -1, -1);
  ports_[worker].become(WorkerState::kDead);
  finish_turn(worker);
}

void Workers::reopen(std::uint32_t worker) {
  figures_[worker].absent_since_ns.store(now_ns(), std::memory_order_relaxed);
  ports_[worker].reopen(arena_, plan_, worker);
  mail_.hold(worker);
}

void Workers::arrive(std::uint32_t worker, int pidfd, int socket) {
  end_absence(worker);
  ports_[worker].become(WorkerState::kRunning);
  watch_process(worker, pidfd, socket);
  TimeOfCall now;
  publish(worker, now);
  mail_.write_on();  // Sends the held messages, after their commands were published.
}

void Workers::begin_outage(std::uint32_t worker, std::uint64_t since) {
  figures_[worker].outage_since_ns.store(since, std::memory_order_relaxed);
}

void Workers::end_absence(std::uint32_t worker) {
  WorkerFigures& figures = figures_[worker];
  figures.absent_since_ns.store(0, std::memory_order_relaxed);
  const std::uint64_t since = figures.outage_since_ns.exchange(0, std::memory_order_relaxed);
  if (since != 0) add(figures.outage_ns, now_ns() - since);
}

// Returns the op for which the worker has missed the deadline. The op may be a reset in advance, although the pool does
// not wait for that.
std::optional<Op> Workers::late_with(std::uint32_t worker, std::uint64_t task, Op oldest, Clock::time_point now) const {
  const Port& port = ports_[worker];
  const bool is_busy = port.is_at(task);
  if (!port.has_deadlines() || !(limit_.has(worker) || is_busy)) return std::nullopt;
  const Op op = is_busy ? Task::op(task) : oldest;
  const auto begin = is_busy ? Clock::time_point(Nanoseconds(Task::begin_ns(task))) : port.heard;
  // The time before the latest transfer of bytes does not count, because this process may have been slow to send or
  // receive.
  const auto since = std::max(begin, mail_.socket(worker).moved());
  return deadlines_.is_over(op, since, now, watch_->clock()) ? std::optional(op) : std::nullopt;
}

Clock::time_point Workers::next_check(Clock::time_point now) const {
  if (!deadlines_.has_any()) return {};
  // Early looks notice if this process is frozen (running_clock.hpp).
  Clock::time_point next = now + std::max<Nanoseconds>(deadlines_.shortest() / 10, RunningClock::kStall);
  for (std::uint32_t worker = 0; worker < count(); ++worker) {
    const Port& port = ports_[worker];
    const std::uint64_t task = port.task();
    if (!port.has_deadlines() || !port.is_at(task)) continue;
    const Nanoseconds limit = deadlines_.of(Task::op(task));
    if (limit.count() == 0) continue;
    const auto since = std::max(Clock::time_point(Nanoseconds(Task::begin_ns(task))), mail_.socket(worker).moved());
    next = std::min(next, since + limit + watch_->clock().lost_since(since));
  }
  return std::max(next, now + std::chrono::milliseconds(1));
}

nb::tuple Workers::doing(std::uint32_t worker) const {
  const Port& port = ports_[worker];
  const std::uint64_t task = port.task();
  const std::uint32_t env = port.meter->env.load(std::memory_order_relaxed);
  if (!port.is_at(task)) return nb::make_tuple(nb::none(), nb::none());
  return nb::make_tuple(Task::op(task), port.hosts(env) ? nb::object(nb::int_(env)) : nb::none());
}

std::uint64_t Workers::busy_since(std::uint32_t worker) const {
  const std::uint64_t task = ports_[worker].task();
  return ports_[worker].is_at(task) ? Task::begin_ns(task) : 0;
}

}  // namespace remuda
