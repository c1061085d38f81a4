// The worker's functions that save and restore the position of an env in its episode, as part of a state.
#include "worker/env_results.hpp"
#include "worker/loop.hpp"

namespace remuda {

nb::tuple WorkerLoop::place_of(std::uint32_t index) const {
  const HostedEnv& env = envs_[index - spec_.first_env];
  if (!env.last_obs.is_valid() || !env.has_begun) throw nb::value_error("there is no state before the first reset");
  const bool is_over = env.needs_reset();
  if (!is_over) return nb::make_tuple(env.last_obs, false, false, load(env.progress.steps), nb::none());
  const auto ahead = env.ahead.is_valid() ? nb::borrow<nb::tuple>(env.ahead) : nb::make_tuple(nb::none(), nb::none());
  const nb::bytes computed(env.last_computed.data(), env.last_computed.size());
  const auto end = nb::make_tuple(item(ahead, 0), item(ahead, 1), computed);
  return nb::make_tuple(env.last_obs, env.terminated, env.truncated, 0, end);
}

// Puts an env into a state instead of resetting it. No episode begins, so the counts of seeds and renewals do not
// change.
void WorkerLoop::restore(HostedEnv& env, const nb::object& state, Result& result) {
  if (must_build(env)) renew(env);
  forget_ahead(env);
  env.is_due = false;
  if (log_.is_on()) {
    log_.add(env.index, Entry::kRestored);
    log_.note_episode(env.index, env.episodes);
  }
  // Counts one reset, so that a successor of this worker finds that the env has begun.
  if (load(env.progress.resets) == 0) {
    add(env.progress.resets, 1);
    env.progress.keep_seed();
  }
  const bool has_computed =
      take_place(env, nb::borrow<nb::tuple>(hooks_.attr("restore")(env.index, state)), result.row);
  Objects objects;
  rows_.write_obs(env.last_obs, result.row, objects);
  if (!has_computed) return finish_row(env, objects, nb::dict(), {}, result);
  rows_.repeat_computed(env.last_computed, result.row);
  post_row(env, objects, nb::dict(), {}, result);
}

// Puts the env into a place (see `place_of`). Returns whether the place includes the computed columns. It does after
// the end of an episode: an env that has reset in advance has begun its next one, so they cannot be computed from it.
bool WorkerLoop::take_place(HostedEnv& env, const nb::tuple& place, std::uint32_t row) {
  env.last_obs = nb::borrow(item(place, 0));
  env.terminated = truth(item(place, 1), "terminated");
  env.truncated = truth(item(place, 2), "truncated");
  env.set_needs_reset(env.terminated || env.truncated);
  env.progress.steps.store(nb::cast<std::uint64_t>(item(place, 3)), std::memory_order_relaxed);
  env.has_begun = true;
  nb::object computed = nb::none();
  if (!item(place, 4).is_none()) {
    const auto end = nb::borrow<nb::tuple>(item(place, 4));
    computed = nb::borrow(item(end, 2));
    if (!item(end, 1).is_none()) {
      env.ahead = nb::make_tuple(item(end, 0), item(end, 1));
      env.seeds_before_ahead = env.progress.seeds();
      add(env.progress.resets, 1);  // Resets in advance count as resets, too.
    }
  }
  env.is_due = env.needs_reset() && !env.ahead.is_valid();
  rows_.clear_reward(row);
  rows_.write_flags(row, env.terminated, env.truncated);
  if (computed.is_none()) return false;
  const auto bytes = nb::cast<nb::bytes>(computed);
  const auto* first = static_cast<const std::byte*>(bytes.data());
  env.last_computed.assign(first, first + bytes.size());
  return true;
}

}  // namespace remuda
