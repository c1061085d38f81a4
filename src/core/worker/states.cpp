// Where an env is in its episode: what goes with a state that is taken of it, and what an env that is put there gets.
#include "worker/env_results.hpp"
#include "worker/loop.hpp"

namespace remuda {

nb::tuple WorkerLoop::place_of(std::uint32_t index) const {
  const Env& env = envs_[index - spec_.first_env];
  if (!env.last_obs.is_valid()) throw nb::value_error("there is no state before the first reset");
  const bool is_over = env.needs_reset;
  return nb::make_tuple(env.last_obs, is_over && env.terminated, is_over && env.truncated,
                        is_over ? 0 : progress_[index].steps.load(std::memory_order_relaxed),
                        env.ahead.is_valid() ? env.ahead : nb::none());
}

// In the place of a reset, but no episode begins: seeds and renewals are counted on as if nothing had been.
void WorkerLoop::restore(Env& env, const nb::object& state, Result& result) {
  const std::uint32_t index = index_of(env);
  if (env.is_missing && !spec_.has_successors) renew(env);
  forget_ahead(env);
  env.is_due = false;
  if (log_.is_on()) log_.add(index, Entry::kRestored);
  // A successor of ours is to know that this env is no fresh one.
  if (progress_[index].resets.load(std::memory_order_relaxed) == 0) count_no_episode(index);
  take_place(env, nb::borrow<nb::tuple>(hooks_.attr("restore")(index, state)), result.row);
  Objects objects;
  write_obs(obs_, env.last_obs, result.row, objects);
  finish_row(env, objects, nb::dict(), {}, result);
}

void WorkerLoop::take_place(Env& env, const nb::tuple& place, std::uint32_t row) {
  env.last_obs = nb::borrow(item(place, 0));
  env.terminated = truth(item(place, 1), "terminated");
  env.truncated = truth(item(place, 2), "truncated");
  set_needs_reset(env, env.terminated || env.truncated);
  progress_[index_of(env)].steps.store(nb::cast<std::uint64_t>(item(place, 3)), std::memory_order_relaxed);
  if (!item(place, 4).is_none()) {
    env.ahead = nb::borrow(item(place, 4));
    add(progress_[index_of(env)].resets, 1);  // as of any reset in advance
  }
  env.is_due = env.needs_reset && !env.ahead.is_valid();
  write_flags(row, 0.0, env.terminated, env.truncated);
}

// A reset that takes no seed from those that follow.
void WorkerLoop::count_no_episode(std::uint32_t index) {
  add(progress_[index].resets, 1);
  add(progress_[index].counted_from, 1);
  add(progress_[index].seeded_at, 1);
}

}  // namespace remuda
