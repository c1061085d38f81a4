// Plays the episode of an env again in a new env, from the log, up to the last result that the pool has
// received. Each row is compared with the digest of the row that was sent. No row that the pool reads is written.
#include "ipc/blob_parts.hpp"
#include "worker/env_results.hpp"
#include "worker/loop.hpp"

namespace remuda {

namespace {

std::string not_the_same(std::uint64_t step) {
  return step == 0 ? "its first observation was not the same"
                   : "it was not the same from step " + std::to_string(step) + " on";
}

}  // namespace

// If the episode cannot be played again, the env refuses commands until it is built again, see `refuse`.
void WorkerLoop::resume(HostedEnv& env, Result& result) {
  result.flags |= kIsMessage;
  if (must_build(env)) renew(env);
  env.episodes = static_cast<std::uint32_t>(load(log_.place_of(env.index).episodes));
  hooks_.attr("begin_replay")();
  std::optional<std::string> why;
  const std::uint32_t row = plan_.kept_row(env.index, env.results + 1);  // the next result overwrites it
  const auto error = error_of([&] { why = replay(env, row); });
  if (error && TakenOver::is_in(*error)) throw TakenOver{};
  rows_.clear_reward(row);  // kept rows have no rewards and step columns
  log_.end_resuming(env.index);
  const nb::object text = why ? nb::object(nb::cast(*why)) : nb::none();
  const nb::object raised = error ? nb::object(nb::borrow(value_of(*error))) : nb::none();
  const nb::object reason = hooks_.attr("end_replay")(text, raised);
  env.not_resumed = reason.is_none() ? nb::object() : reason;
  now_ = now_ns();
  if (error) return fail(value_of(*error), command_, result);
  post(result, why ? nb::object(nb::make_tuple(nb::bytes(why->data(), why->size()))) : nb::object());
}

// Returns why the episode could not be played again; nullopt if it could, or if there was none.
std::optional<std::string> WorkerLoop::replay(HostedEnv& env, std::uint32_t row) {
  const LogPlace& place = log_.place_of(env.index);
  const std::uint64_t first = log_.first_to_replay(env.index), end = log_.entries(env.index);
  const EpisodeLog::Objects objects = log_.objects_by_entry(env.index);
  bool is_outdated = false;  // whether the env has other options now than for the reset in advance
  for (std::uint64_t n = first, step = 0; n < end; ++n, ++step) {
    if (log_.kind(env.index, n) == Entry::kStep) {
      if (!replay_step(env, n, row, objects)) return not_the_same(step);
      continue;
    }
    // The other resets were made in advance. The last one begins with the random numbers that those before it have
    // left.
    if (n != first && n + 1 < end) continue;
    if (n != first) own_last_obs(env);
    const nb::tuple outcome = replay_reset(env, n);
    if (n + 1 == end && load(place.is_ahead) != 0) {
      env.ahead = outcome;
      env.seeds_before_ahead = place.seeds_before_ahead;
      is_outdated = nb::cast<bool>(hooks_.attr("has_other_options")(env.index, beginning_of(env, n)));
    } else if (n == first && !is_same(env, n, row, item(outcome, 0), item(outcome, 1))) {
      return not_the_same(step);
    }
  }
  if (first == end) return std::nullopt;
  env.is_due = env.needs_reset() && !env.ahead.is_valid() && successor_due(env) == 0;
  if (is_outdated) reset_anew(env.index);
  return std::nullopt;
}

nb::bytes WorkerLoop::beginning_of(const HostedEnv& env, std::uint64_t entry) const {
  const Bytes beginning = log_.beginning(env.index, entry);
  return nb::bytes(beginning.data(), beginning.size());
}

nb::tuple WorkerLoop::replay_reset(HostedEnv& env, std::uint64_t entry) {
  meter_.begin(Op::kReset, env.index, now_ns());
  const nb::object result = hooks_.attr("replay_reset")(env.index, beginning_of(env, entry));
  env.has_begun = true;
  env.reward = 0.0;
  const nb::tuple outcome = results_of(result, 2, "reset() to return (observation, info)");
  check_info(item(outcome, 1));
  return outcome;
}

bool WorkerLoop::replay_step(HostedEnv& env, std::uint64_t entry, std::uint32_t row,
                             const EpisodeLog::Objects& objects) {
  nb::object parts;
  if (const auto found = objects.find(entry); found != objects.end()) {
    nb::list list;
    for (const Bytes& part : found->second) list.append(nb::bytes(part.data(), part.size()));
    parts = list;
  }
  const nb::object action = action_from(log_actions_, static_cast<std::uint32_t>(log_.row_of(env.index, entry)), parts);
  meter_.begin(Op::kStep, env.index, now_ns());
  const nb::object outcome = call_step(env, action);
  const nb::tuple tuple = results_of(outcome, 5, "step() to return (observation, reward, terminated, truncated, info)");
  env.reward += rows_.write_reward(item(tuple, 1), row);
  env.terminated = truth(item(tuple, 2), "terminated");
  env.truncated = truth(item(tuple, 3), "truncated");
  check_info(item(tuple, 4));
  rows_.write_step_columns(env.env, row, env_calls_);
  rows_.write_flags(row, env.terminated, env.truncated);
  return is_same(env, entry, row, item(tuple, 0), item(tuple, 4));
}

bool WorkerLoop::is_same(HostedEnv& env, std::uint64_t entry, std::uint32_t row, nb::handle obs, nb::handle info) {
  Objects objects;
  rows_.write_obs(obs, row, objects);
  env.last_obs = nb::borrow(obs);
  rows_.write_computed(env.env, row, env.last_computed, env_calls_);
  const std::uint64_t known = log_.digest(env.index, entry);
  return known == 0 || known == rows_.digest(objects, info, row, log_.kind(env.index, entry) == Entry::kStep);
}

// Answers a command of an env whose episode could not be played again. Returns false if the command begins an episode:
// then the env is built again, and carries it out.
bool WorkerLoop::refuse(HostedEnv& env, const Command& command, Result& result) {
  const bool begins = command.op == Op::kReset || command.op == Op::kResetIntoRow ||
                      (command.op == Op::kStep && env.needs_reset() && spec_.autoreset == Autoreset::kNextStep);
  if (begins) {
    renew(env);
    return false;
  }
  read_blob(command);
  fail(env.not_resumed, command, result, kNotResumed);
  return true;
}

}  // namespace remuda
