// A worker's inner loop: takes a command, steps the env, fills a row, and posts the result.
//
// The same loop runs in a process of its own, in a thread, and (one command at a time) in the caller's thread. It
// implements Gymnasium's calling convention and the autoreset modes. Its parts are:
//
//   WorkerPort   commands, results and bells            ResultRows   the rows of results
//   HostedEnv    the state of an env between commands   Progress     the counts of episodes, steps and seeds
//   Meter        the current task, and statistics       EpisodeLog   the data to replay an episode
//   EnvCalls     the code of envs, which may hang
//
// Rare cases, and all that needs pickling, are left to the worker's Python side, the `hooks`:
//
//   flatten(obs) -> (arrays, objects)            converts an observation that does not fit its columns, or raises
//   pack(objects, info, wanted, final) -> parts  pickles the values of a row that have no column
//   freeze(obs, info) -> bytes                   pickles terminal data before the reset can overwrite it
//   copy_obs(obs) -> obs                         returns a copy that shares no memory with the env
//   reset_arguments(env, parts) -> dict          returns the caller's arguments for the reset, or a state to restore
//   restore(env, state) -> place                 puts the env into the state; see `place_of`
//   complete_reset(env, dict | None) -> (dict, additions to its info | None)   is called if `complete_resets` is on
//   give_seed_back(env)                          is called when a reset in advance that used a seed was discarded
//   beginning(env, kwargs | None) -> (Entry, bytes)   returns the data of an episode's beginning, for the EpisodeLog
//   fit_computed(i, value) -> array              converts a value for computed column i, or raises
//   raise_for_column(i, exception)               raises an error that names the function of that column
//   action_objects(parts) -> list                unpickles the leaves of an action that have no column
//   handle(env | None, parts) -> parts           handles a message for an env, or for the worker (None)
//   describe(exception, env | None, op) -> parts describes an exception for the pool
//   end_child(exception | None)                  ends this process, a child that code of an env has forked
//   close() -> parts                             closes every env; returns the failures
//   has_grown() -> bool                          returns whether this process exceeds its memory limit
//   begin_replay(), end_replay(why | None, error | None) -> exception | None   are around an episode that is
//                                                played again; `why` it could not be, or the env's error
//   replay_reset(env, beginning) -> result       resets the env as the episode began
//   has_other_options(env, beginning) -> bool    returns whether the env's lasting options have changed since
//   pickled(value) -> bytes                      pickles a value of an info for its digest
//   renew(env)                                   creates an env and passes it to replace_env
//   build_beside(env, parts) -> parts            creates another env, which replaces this one on a later request
//   send(parts), receive() -> parts              use the socket, for parts that do not fit into the blob rings
//
// For vector envs, the hooks step the envs and fill their rows, see worker/vector_envs.cpp. Each of these hooks returns
// None, or the flags and the parts of the result:
//
//   reset_vector(env, row, parts | None)
//   step_vector(env, row, action, parts | None)
//   observe_vector(env, row)
//   reset_vector_into_rows(env, row)
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shm/columns.hpp"
#include "shm/plan.hpp"
#include "worker/cpu_meter.hpp"
#include "worker/env_calls.hpp"
#include "worker/episode_log.hpp"
#include "worker/hosted_env.hpp"
#include "worker/result_rows.hpp"
#include "worker/worker_port.hpp"

namespace remuda {

class WorkerLoop {
 public:
  WorkerLoop(std::shared_ptr<Arena> arena, Plan plan, WorkerSpec spec, nb::list envs, nb::object hooks,
             nb::handle obs_nest, std::vector<Column> obs, std::vector<Column> final_obs, nb::handle action_nest,
             std::vector<Column> actions, std::vector<nb::object> functions, std::vector<Column> computed,
             std::size_t step_columns);

  // Runs until a kClose command has been answered, or until `stop`; returns true. Returns false if another thread has
  // taken over: the caller must then leave the loop alone. The caller holds the GIL; the loop releases it to sleep.
  bool run();
  // Runs the commands that are in the ring, then returns. Returns true once a kClose command has been answered.
  bool run_available();
  // Makes `run` return soon without a kClose command, if the pool was abandoned. Any thread may call this.
  void stop() {
    stopped_.store(true, std::memory_order_release);
    port_.wake();
  }

  // Runs code of an env for a hook. Raises TakenOver if another thread has taken over meanwhile.
  nb::object run_env_code(nb::handle code) {
    return env_calls_.run([&] { return code(); });
  }
  // Takes the loop over from a thread that still is in `task`, in code of an env. Returns the env, which that thread
  // keeps; nullopt if the thread is no longer there. Then `give_up` and `run` continue the loop.
  std::optional<std::uint32_t> take_over(std::uint64_t task);
  // Puts `stand_in` in the place of the env whose call hangs, and answers the command with `error`.
  void give_up(nb::object stand_in, nb::handle error);

  // The env that is being reset, stepped or called, if any. Any thread may call this.
  std::optional<std::uint32_t> current_env() const { return meter_.current_env(); }
  // Counts a log record that this worker is about to send to the pool. Any thread may call this.
  void note_record() { records_->sent.fetch_add(1, std::memory_order_relaxed); }
  // Adds the time that a hook spent pickling or sending the parts of an info without a column.
  void note_info(std::uint64_t ns) { add(figures_.info_ns, ns); }
  // Records the key and the size of a pickled value in infos, the largest so far.
  void name_info(const std::string& key, std::uint64_t bytes) { figures_.name_info(key, bytes); }
  // Replaces an env by a new one, which resets before its first step.
  void replace_env(std::uint32_t index, nb::object env);

  // Sets whether the hook `complete_reset` is called for every reset, autoresets included. It is always called for a
  // reset with a seed.
  void complete_resets(bool on) { completes_resets_ = on; }
  // Why the episode of an env that was built again could not be played again: an exception; None if it could.
  nb::object not_resumed(std::uint32_t index) { return none_or(env_at(index).not_resumed); }
  // Notes a call that may have changed the env, see `EpisodeLog`.
  void note_call(std::uint32_t index, bool is_lasting) const { log_.note_call(index, is_lasting); }
  // These two call the functions of `Progress`.
  std::uint64_t next_seed(std::uint32_t index, std::uint64_t base, bool in_each) {
    return env_at(index).progress.next_seed(base, in_each);
  }
  void note_seed(std::uint32_t index, std::uint64_t base, std::uint64_t n) {
    env_at(index).progress.note_seed(base, n);
  }
  // Called before the caller changes the arguments of an env's resets. Makes the reset in advance if one is due, so
  // that the env's random numbers do not depend on timing. Then discards it, and marks the env as due again.
  void reset_anew(std::uint32_t index);

  // Returns the position of an env in its episode: (observation, terminated, truncated, steps, end). `end`: None, or,
  // after the end of the episode, the observation and info of a reset in advance (None if none was made) and the bytes
  // of the computed columns at the end. Raises ValueError before the first reset.
  nb::tuple place_of(std::uint32_t index) const;

  void add_info_column(const nb::tuple& path, nb::object type, Column column) {
    rows_.add_info_column(path, std::move(type), std::move(column));
  }

  // See `Collected`. A stored exception may refer back to the loop, too: its traceback holds the frames that called it.
  template <class Act>
  void each_reference(Act act) {
    act(hooks_);
    for (HostedEnv& env : envs_)
      for (nb::object* one : {&env.env, &env.last_obs, &env.own_obs, &env.ahead, &env.ahead_error, &env.not_resumed})
        act(*one);
    for (nb::object& one : rows_.functions()) act(one);
  }

 private:
  using End = ResultRows::End;

  bool has_command() const { return rest_.count != 0 || port_.has_command(); }
  bool next_command();
  void execute(const Command& command);
  Result result_of(const Command& command, std::uint32_t count) const;
  void execute_one(const Command& command, Result& result);
  void reset(HostedEnv& env, const Command& command, Result& result);
  void step(HostedEnv& env, const Command& command, Result& result);
  void finish_step(HostedEnv& env, nb::object outcome, Result& result);
  nb::object action_from(const std::vector<Column>& columns, std::uint32_t row, const nb::object& parts);
  nb::object call_step(HostedEnv& env, nb::handle action);
  void observe(HostedEnv& env, Result& result);
  void reset_into_row(HostedEnv& env, Result& result);
  void finish_reset(HostedEnv& env, const nb::tuple& outcome, const End& end, Result& result);
  void message(const Command& command, Result& result);
  void rebuild(HostedEnv& env, const Command& command, Result& result);
  void prepare(HostedEnv& env, const Command& command, Result& result);
  void fail(nb::handle error, const Command& command, Result& result, std::uint32_t flags = 0);
  nb::object describe(nb::handle error, nb::handle slot, bool is_second = false);

  void begin_in_log(const Command& command);
  void resume(HostedEnv& env, Result& result);
  std::optional<std::string> replay(HostedEnv& env, std::uint32_t row);
  nb::bytes beginning_of(const HostedEnv& env, std::uint64_t entry) const;
  nb::tuple replay_reset(HostedEnv& env, std::uint64_t entry);
  bool replay_step(HostedEnv& env, std::uint64_t entry, std::uint32_t row, const EpisodeLog::Objects& objects);
  bool is_same(HostedEnv& env, std::uint64_t entry, std::uint32_t row, nb::handle obs, nb::handle info);
  bool refuse(HostedEnv& env, const Command& command, Result& result);

  void execute_vector(const Command& command, Result& result);
  nb::object run_vector(const Command& command);
  void count_steps(HostedEnv* sub_envs);
  void begin_episode(HostedEnv& env);
  void count_reward(HostedEnv& env, double reward, bool is_last);
  void note_results(const Command& command);

  nb::tuple outcome_of_reset(HostedEnv& env, nb::object kwargs, Result& result);
  nb::tuple make_or_take_reset(HostedEnv& env, nb::object kwargs);
  nb::tuple call_reset(HostedEnv& env, nb::object kwargs);
  void restore(HostedEnv& env, const nb::object& state, Result& result);
  bool take_place(HostedEnv& env, const nb::tuple& place, std::uint32_t row);
  bool reset_one_ahead();
  void reset_ahead(HostedEnv& env, nb::object kwargs);
  void catch_up(HostedEnv& env);
  bool forget_ahead(HostedEnv& env);
  void own_last_obs(HostedEnv& env);
  bool must_build(const HostedEnv& env) const;
  void renew(HostedEnv& env);
  bool has_grown();
  std::uint32_t renewal_due(const HostedEnv& env);
  std::uint32_t successor_due(const HostedEnv& env);
  void post_undone(std::uint32_t due, Result& result);
  void keep_last(HostedEnv& env, std::uint32_t row);
  void finish_row(HostedEnv& env, const Objects& objects, nb::handle info, const End& end, Result& result);
  void post_row(HostedEnv& env, const Objects& objects, nb::handle info, const End& end, Result& result);

  nb::object read_blob(const Command& command);
  nb::object read_reset_arguments(const Command& command);
  void post(Result& result, nb::object parts);
  bool run_commands();
  void wait_for_command();
  HostedEnv& env_at(std::uint32_t index) { return envs_[index - spec_.first_env]; }
  HostedEnv& env_of(const Command& command) { return env_at(command.env); }

  std::shared_ptr<Arena> arena_;
  const Plan plan_;
  const WorkerSpec spec_;
  nb::object hooks_;
  std::vector<HostedEnv> envs_;
  Nest action_nest_;
  std::vector<Column> actions_;
  ResultRows rows_;
  WorkerPort port_;
  WorkerFigures& figures_;
  Meter& meter_;
  CpuMeter cpu_meter_;
  EnvCalls env_calls_;
  EpisodeLog log_;
  std::vector<Column> log_actions_;
  Records* records_;

  Command command_{};           // the command that is executed; its `count` is 0 if there is none
  Command rest_{};              // the commands of the same record that come next; its `count` is 0 if there are none
  bool has_published_ = false;  // whether results were published since the latest record
  std::uint64_t now_ = 0;       // the time in ns when the last task ended
  // Whether the current command has stepped its env, and the time in ns of resets and renewals within the command. The
  // durations of steps exclude this time.
  bool has_stepped_ = false;
  std::uint64_t resetting_ = 0;
  bool completes_resets_ = false;
  bool closed_ = false;
  // Whether the process exceeds its memory limit, as the last check has found, and the time in ns of the next check.
  bool has_grown_ = false;
  std::uint64_t check_memory_at_ = 0;
  std::atomic<bool> stopped_{false};
};

}  // namespace remuda
