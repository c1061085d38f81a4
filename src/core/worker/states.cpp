// Where an env is in its episode: what goes with a state that is taken of it, and what an env that is put there gets.
#include "worker/env_results.hpp"
#include "worker/loop.hpp"

namespace remuda {

nb::tuple WorkerLoop::place_of(std::uint32_t index) const {
  const HostedEnv& env = envs_[index - spec_.first_env];
  if (!env.last_obs.is_valid()) throw nb::value_error("there is no state before the first reset");
  const bool is_over = env.needs_reset;
  return nb::make_tuple(env.last_obs, is_over && env.terminated, is_over && env.truncated,
                        is_over ? 0 : counts_.steps(index), env.ahead.is_valid() ? env.ahead : nb::none());
}

// In the place of a reset, but no episode begins: seeds and renewals are counted on as if nothing had been.
void WorkerLoop::restore(HostedEnv& env, const nb::object& state, Result& result) {
  if (must_build(env)) renew(env);
  forget_ahead(env);
  env.is_due = false;
  if (log_.is_on()) log_.add(env.index, Entry::kRestored);
  // A successor of ours is to know that this env is no fresh one.
  if (!counts_.has_begun(env.index)) {
    counts_.count_reset(env.index);
    counts_.keep_seed(env.index);
  }
  take_place(env, nb::borrow<nb::tuple>(hooks_.attr("restore")(env.index, state)), result.row);
  Objects objects;
  rows_.write_obs(env.last_obs, result.row, objects);
  finish_row(env, objects, nb::dict(), {}, result);
}

void WorkerLoop::take_place(HostedEnv& env, const nb::tuple& place, std::uint32_t row) {
  env.last_obs = nb::borrow(item(place, 0));
  env.terminated = truth(item(place, 1), "terminated");
  env.truncated = truth(item(place, 2), "truncated");
  set_needs_reset(env, env.terminated || env.truncated);
  counts_.set_steps(env.index, nb::cast<std::uint64_t>(item(place, 3)));
  if (!item(place, 4).is_none()) {
    env.ahead = nb::borrow(item(place, 4));
    env.seeds_before_ahead = counts_.seeds(env.index);
    counts_.count_reset(env.index);  // as of any reset in advance
  }
  env.is_due = env.needs_reset && !env.ahead.is_valid();
  rows_.write_flags(row, 0.0, env.terminated, env.truncated);
}

}  // namespace remuda
