// A worker's inner loop: take a command, step the env, fill the row, post the result.
//
// The same loop runs in a process of its own, in a thread, and (one command at a time) in the
// caller's thread.  It knows Gymnasium's calling convention and the autoreset modes; all that is rare
// or needs pickling is left to its Python side, the `hooks`:
//
//   flatten(obs) -> (arrays, objects)            an observation that does not fit as it is, or raise
//   pack(objects, info, wanted, final) -> parts
//   freeze(obs, info) -> bytes                   terminal data, before the reset can overwrite it
//   reset_arguments(env, parts) -> dict          what the caller names for this reset; or a state, for `restore`
//   restore(env, state) -> place                 puts the env into it; see `place_of`
//   complete_reset(env, dict | None) -> (dict, additions to its info | None)   where that is on
//   beginning(env, kwargs | None) -> (Entry, bytes)   of an episode, for the log, where there is one
//   fit_computed(i, value) -> array              what computed column i is to have, or raise
//   blame_computed(i, exception)                 raises, and says that the function of that column has raised this
//   action_objects(parts) -> list                the parts of an action that have no column
//   handle(env | None, parts) -> parts           a request
//   describe(exception, env | None, op) -> parts
//   close() -> parts                             close every env; what failed
//   has_grown() -> bool                          whether this process takes more memory than it is to
//   renew(env)                                   make an env (anew), and replace_env with it
//   build_beside(env, parts) -> parts            make another env, to take the place of this one when it is told to
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

#include <memory>
#include <optional>
#include <vector>

#include "ipc/ringer.hpp"
#include "shm/columns.hpp"
#include "shm/infos.hpp"
#include "shm/plan.hpp"
#include "worker/computed_columns.hpp"
#include "worker/cpu_meter.hpp"
#include "worker/episode_log.hpp"

namespace remuda {

// How a space maps to columns: its tree, and the index of its first column.
struct WorkerSpec {
  std::uint32_t index;      // of this worker
  std::uint32_t first_env;  // it hosts the envs first_env, first_env + 1, ...
  bool is_vector;           // its envs are vector envs, be they of one each
  Autoreset autoreset;
  bool resets_ahead;  // an env is reset when its episode ends, unless something else is to be done, before it is asked
  std::int64_t spin_ns;
  bool spins_heedlessly;
  std::uint64_t publish_ns;   // results of steps that take less are made visible together, others at once
  std::uint32_t renew_every;  // episodes after which an env is to be made anew; 0: never
  bool watches_memory;        // of its process: one that has grown too large is to be replaced
  bool renews_in_place;       // by the hooks; else the result says that it is due, and the pool sees to it
  bool has_successors;        // a process that could not make an env anew is replaced; others try again
};

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
    notify(*bell_);
  }

  // The env that is being reset, stepped or called, if any. Any thread may ask.
  std::optional<std::uint32_t> current_env() const;
  // Something is about to be logged to the pool. Any thread may call it.
  void note_word() { words_->said.fetch_add(1, std::memory_order_relaxed); }
  // A fresh env in the place of another.  It resets before it steps.
  void replace_env(std::uint32_t index, nb::object env);

  // Whether the hooks are asked about every reset, autoresets included.
  void complete_resets(bool on) { completes_resets_ = on; }
  // Which seed the reset under way is to be given, of those derived from that base, where each episode has one, or else
  // where few have; 0 where the env had another base until now. And: it is given the n-th.
  std::uint64_t seed_of_episode(std::uint32_t index, std::uint64_t base) const;
  std::uint64_t next_seed(std::uint32_t index, std::uint64_t base) const;
  void note_seed(std::uint32_t index, std::uint64_t base, std::uint64_t n);
  // What an env was reset for ahead is no longer so: if it was, it is to be reset once more.
  void reset_anew(std::uint32_t index);

  // Where an env is in its episode: (observation, terminated, truncated, steps, what it was reset to in advance |
  // None). Raises before the first reset.
  nb::tuple place_of(std::uint32_t index) const;

  void add_info_column(const nb::tuple& path, nb::object type, Column column) {
    infos_.add(path, std::move(type), std::move(column));
  }

 private:
  struct Env {
    nb::object env;
    nb::object last_obs = {};                          // for kObserve
    std::vector<std::byte> last_computed = {};         // of the computed columns, for the same
    bool terminated = false, truncated = false;        // by the last step; mean something while a reset is needed
    bool needs_reset = false;                          // the episode ended, and next_step autoreset is due
    bool is_missing = false;                           // the one before is closed, and another could not be made yet
    bool is_unbuilt = false;                           // its first reset makes it
    std::uint32_t episodes = 0;                        // begun since it was made, by resets that were asked for
    std::uint64_t results = 0;                         // rows filled, its predecessors' counted
    bool is_due = false;                               // to be reset ahead
    nb::object ahead = {};                             // what that reset returned, until it is asked for
    std::optional<nb::python_error> ahead_error = {};  // ... or raised
    double reward = 0.0;                               // of the episode so far
    bool has_begun = false;                            // was reset since it was made; of a vector env's first sub-env
    std::uint64_t reset_begin_ns = 0;                  // of its latest reset
    std::uint64_t reset_end_ns = 0;
  };

  struct End {                  // of an episode, whose row is to hold the beginning of the next one too
    std::uint64_t columns = 0;  // its info columns
    nb::object frozen = {};     // what has no column; null: nothing
  };

  void next_env(Command& command) const;
  void execute(const Command& command);
  Result begin_result(const Command& command, std::uint32_t count);
  void reset(Env& env, const Command& command, Result& result);
  void step(Env& env, const Command& command, Result& result);
  void finish_step(Env& env, nb::object outcome, Result& result);
  void set_needs_reset(Env& env, bool needs_reset);
  End keep_end(nb::handle obs, nb::handle info, std::uint32_t row);
  void observe(Env& env, Result& result);
  void observe_kept(Env& env, Result& result);
  void reset_into_row(Env& env, Result& result);
  void finish_reset(Env& env, const nb::tuple& outcome, const End& end, Result& result);
  void message(const Command& command, Result& result);
  void rebuild(Env& env, const Command& command, Result& result);
  void prepare(Env& env, const Command& command, Result& result);
  void fail(nb::python_error& error, const Command& command, Result& result);
  nb::object describe(nb::python_error& error, nb::handle slot);

  void execute_vector(const Command& command);
  nb::object run_vector(const Command& command);
  void count_steps(Env* sub_envs);
  void begin_episode(Env& env);
  void count_reward(Env& env, double reward, bool is_last);
  void note_results(const Command& command);

  nb::tuple outcome_of_reset(Env& env, nb::object kwargs, Result& result);
  nb::tuple make_or_take_reset(Env& env, nb::object kwargs);
  nb::tuple call_reset(Env& env, nb::object kwargs);
  void restore(Env& env, const nb::object& state, Result& result);
  void take_place(Env& env, const nb::tuple& place, std::uint32_t row);
  void count_no_episode(std::uint32_t index);
  bool reset_one_ahead();
  void reset_ahead(Env& env, nb::object kwargs);
  void catch_up(Env& env, const nb::object& kwargs);
  bool forget_ahead(Env& env);
  void renew(Env& env);
  std::uint32_t renewal_due(const Env& env);
  std::uint32_t successor_due(const Env& env);
  bool has_grown();
  void log_action(const Command& command, nb::handle parts);
  void begin(Op op, std::uint32_t index, std::uint64_t now);
  void write_flags(std::uint32_t row, double reward, bool terminated, bool truncated);
  void write_computed(Env& env, std::uint32_t row);
  void keep_last(Env& env, std::uint32_t row);
  // Raises what does not fit.
  Fit write_obs(const std::vector<Column>& columns, nb::handle obs, std::uint32_t row, Objects& objects);
  void finish_row(Env& env, const Objects& objects, nb::handle info, const End& end, Result& result);
  nb::object pack_rest(const Objects& objects, nb::handle info, const End& end, Result& result);

  nb::object read_blob(const Command& command);
  nb::object read_reset_arguments(const Command& command);
  void post(Result& result, nb::object parts);
  bool join_run(const Result& result);
  void publish(bool is_all);
  bool run_commands();
  void wait_for_command();
  void note_cpu();
  Env& env_of(const Command& command) { return envs_[command.env - spec_.first_env]; }
  std::uint32_t index_of(const Env& env) const {
    return spec_.first_env + static_cast<std::uint32_t>(&env - envs_.data());
  }

  std::shared_ptr<Arena> arena_;
  Plan plan_;
  WorkerSpec spec_;
  std::vector<Env> envs_;
  nb::object hooks_;
  Nest obs_nest_, action_nest_;
  std::vector<Column> obs_, final_obs_, actions_;
  ComputedColumns computed_;
  InfoWriter infos_;

  Bell* bell_;
  Ringer ringer_;  // for the pool
  Words* words_;
  Meter* meter_;
  Progress* progress_;  // by env
  EnvFigures* env_figures_;
  WorkerFigures* figures_;
  EpisodeLog log_;
  RingConsumer<Command> commands_;
  RingProducer<Result> results_;
  BlobReader blobs_in_;
  BlobWriter blobs_out_;
  SpinPolicy spin_policy_;
  CpuMeter cpu_meter_;
  double* reward_;
  bool* terminated_;
  bool* truncated_;
  std::uint64_t* info_mask_;

  std::uint64_t now_ = 0;           // the end of what was done last
  bool has_stepped_ = false;        // the env, by the command under way
  std::uint64_t resetting_ = 0;     // of the time of that command: ns in which the env was reset, or made anew
  std::uint64_t last_publish_ = 0;  // when results were last made visible
  std::uint32_t unpublished_ = 0;   // results since then
  std::uint64_t weigh_at_ = 0;      // when it is next looked at how much memory we take
  bool has_grown_ = false;          // once is enough
  bool closed_ = false;
  bool completes_resets_ = false;
  std::atomic<bool> stopped_{false};
};

}  // namespace remuda
