// A worker's inner loop: take a command, step the env, fill the row, post the result.
//
// The same loop runs in a process of its own, in a thread, and (one command at a time) in the
// caller's thread.  It knows Gymnasium's calling convention and the autoreset modes, and passes on what others keep:
//
//   commands and results, bells          WorkerPort     what becomes of an env's results      ResultRows
//   what is known of an env              HostedEnv      episodes, steps and seeds so far      EnvCounts
//   what is being done, and was          TaskMeter      what a death is to be replayed from   EpisodeLog
//   whether the process has grown        MemoryWatch
//
// All that is rare or needs pickling is left to its Python side, the `hooks`:
//
//   flatten(obs) -> (arrays, objects)            an observation that does not fit as it is, or raise
//   pack(objects, info, wanted, final) -> parts
//   freeze(obs, info) -> bytes                   terminal data, before the reset can overwrite it
//   copy_obs(obs) -> obs                         shares no memory with the env
//   reset_arguments(env, parts) -> dict          what the caller names for this reset; or a state, for `restore`
//   restore(env, state) -> place                 puts the env into it; see `place_of`
//   complete_reset(env, dict | None) -> (dict, additions to its info | None)   where that is on
//   give_seed_back(env)                          nobody wants the latest reset, which was given a seed
//   beginning(env, kwargs | None) -> (Entry, bytes)   of an episode, for the log, where there is one
//   fit_computed(i, value) -> array              what computed column i is to have, or raise
//   blame_computed(i, exception)                 raises, and says that the function of that column has raised this
//   action_objects(parts) -> list                the parts of an action that have no column
//   handle(env | None, parts) -> parts           a request
//   describe(exception, env | None, op) -> parts
//   close() -> parts                             close every env; what failed
//   has_grown() -> bool                          whether this process takes more memory than it is to
//   renew(env)                                   make an env (anew), and replace_env with it
//   build_beside(env, parts) -> parts            make another env, to take this one's place when it is told to
//   send(parts), receive() -> parts              the socket
//
// Where envs are vector envs, the hooks step those and fill their rows, see worker/vector_envs.cpp; each returns None,
// or the flags and the parts of the result:
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
#include "worker/computed_columns.hpp"
#include "worker/env_counts.hpp"
#include "worker/episode_log.hpp"
#include "worker/hosted_env.hpp"
#include "worker/memory_watch.hpp"
#include "worker/result_rows.hpp"
#include "worker/task_meter.hpp"
#include "worker/worker_port.hpp"
#include "worker/worker_spec.hpp"

namespace remuda {

class WorkerLoop {
 public:
  WorkerLoop(std::shared_ptr<Arena> arena, Plan plan, WorkerSpec spec, nb::list envs, nb::object hooks,
             nb::handle obs_nest, std::vector<Column> obs, std::vector<Column> final_obs, nb::handle action_nest,
             std::vector<Column> actions, ComputedColumns computed);

  // Runs until a kClose command has been answered.  Called with the GIL; sleeps without it.
  void run();
  // Runs what is in the command ring and returns; true once a kClose command has been answered.
  bool run_available();
  // Makes `run` return soon, unasked: for a pool that was abandoned. Any thread may call it.
  void stop() {
    stopped_.store(true, std::memory_order_release);
    port_.wake();
  }

  // The env that is being reset, stepped or called, if any. Any thread may ask.
  std::optional<std::uint32_t> current_env() const { return meter_.current_env(); }
  // Something is about to be logged to the pool. Any thread may call it.
  void note_record() { records_->sent.fetch_add(1, std::memory_order_relaxed); }
  // What hooks tell of infos, for statistics: see `TaskMeter`.
  void note_info(std::uint64_t ns) { meter_.note_info(ns); }
  void name_info(const std::string& key, std::uint64_t bytes) { meter_.name_info(key, bytes); }
  // A fresh env in the place of another.  It resets before it steps.
  void replace_env(std::uint32_t index, nb::object env);

  // Whether the hooks are asked about every reset, autoresets included.
  void complete_resets(bool on) { completes_resets_ = on; }
  // Which seed the reset under way is to be given, of those derived from that base, where each episode has one, or else
  // where few have; 0 where the env had another base until now. And: it is given the n-th.
  std::uint64_t seed_of_episode(std::uint32_t index, std::uint64_t base) const {
    return counts_.seed_of_episode(index, base);
  }
  std::uint64_t next_seed(std::uint32_t index, std::uint64_t base) const { return counts_.next_seed(index, base); }
  void note_seed(std::uint32_t index, std::uint64_t base, std::uint64_t n) { counts_.note_seed(index, base, n); }
  // What its resets are given is about to change: if an env was reset in advance, or is about to be, that is no longer
  // wanted, and it is to be reset once more.
  void reset_anew(std::uint32_t index);

  // The position of an env in its episode: (observation, terminated, truncated, steps, ahead).  `ahead`: None, or of a
  // reset made in advance (observation, info, the bytes of the computed columns before it).  Raises before the first
  // reset.
  nb::tuple place_of(std::uint32_t index) const;

  void add_info_column(const nb::tuple& path, nb::object type, Column column) {
    rows_.add_info_column(path, std::move(type), std::move(column));
  }

  // What Python's garbage collector has to know: whom we hold that may hold us.  An exception does, if it was raised
  // while we ran: by its traceback it holds the frames below, and what they call us by.
  int visit(visitproc visit, void* arg) const;
  void clear();

 private:
  using End = ResultRows::End;

  void next_env(Command& command) const;
  void execute(const Command& command);
  Result begin_result(const Command& command, std::uint32_t count);
  void reset(HostedEnv& env, const Command& command, Result& result);
  void step(HostedEnv& env, const Command& command, Result& result);
  void finish_step(HostedEnv& env, nb::object outcome, Result& result);
  void set_needs_reset(HostedEnv& env, bool needs_reset);
  void observe(HostedEnv& env, Result& result);
  void reset_into_row(HostedEnv& env, Result& result);
  void finish_reset(HostedEnv& env, const nb::tuple& outcome, const End& end, Result& result);
  void message(const Command& command, Result& result);
  void rebuild(HostedEnv& env, const Command& command, Result& result);
  void prepare(HostedEnv& env, const Command& command, Result& result);
  void fail(nb::python_error& error, const Command& command, Result& result);
  nb::object describe(nb::python_error& error, nb::handle slot);

  void execute_vector(const Command& command);
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
  void catch_up(HostedEnv& env, const nb::object& kwargs);
  bool forget_ahead(HostedEnv& env);
  void own_last_obs(HostedEnv& env);
  bool must_build(const HostedEnv& env) const;
  void renew(HostedEnv& env);
  std::uint32_t renewal_due(const HostedEnv& env);
  std::uint32_t successor_due(const HostedEnv& env);
  void log_action(const Command& command, nb::handle parts);
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
  EnvCounts counts_;
  TaskMeter meter_;
  EpisodeLog log_;
  MemoryWatch memory_watch_;
  Records* records_;

  std::uint64_t now_ = 0;  // the end of what was done last
  bool completes_resets_ = false;
  bool closed_ = false;
  std::atomic<bool> stopped_{false};
};

}  // namespace remuda
