// The turn of the threads that are in a pool: src/core/pool/hub/turn.cpp, with hub_lock.cpp, `Hub::sleep`,
// `Hub::wait_from` and `Hub::decide`, emission.hpp, and the close of _engine/pool/pool.py.
//
// Two threads receive: A the results of part 0, in a series of calls, and B the result of part 1, in one call.  The
// supervisor decides.  With FAULTS the results of part 0 are faults, and their records are emitted by the threads that
// wait, or by threads that do nothing else.  Log handlers and signal handlers do what the macros CALLS, LOCKS, CLOSES
// and RAISES permit.  The thread that started the program, A, closes the pool at the end.
//
// The lock of `Turn` is `mutex`: what happens under it is one step, except where a thread reads `waiters` or `holder`
// without it.  All atomic variables are sequentially consistent.  No sleep ends by itself, except that of a call that
// a close waits for: it ends after a slice.  Bells work as doorbell.pml proves.

#ifndef LOGGERS
#define LOGGERS 0   // the threads that only emit
#endif
#define NOBODY 0
#define A 1
#define B 2
#define SUPERVISOR 3
#define LOGGER 4    // the thread that emits records while the callers are away
#define LOGGER_2 5  // another one, started while the first is in a log handler
#define THREADS 6

mtype = { OUTSIDE, SERIES, DECISION }

// Turn
bool mutex;
bool asleep[THREADS];  // in `changed`
byte waiters, holder, log_thread;
bool is_new[THREADS];  // `news` has changed since the thread has read it
byte depth[THREADS];   // the calls of a thread that are outermost: a handler may make one within another
bool yields[THREADS], lets_in[THREADS];
bool is_inside, is_deciding;
bool close_put_off, is_closing, is_close_running;

// Hub
byte sleeps_for, followers;
byte rung[THREADS];    // the rings of the bell since the thread has read its count; 2 stands for more, too
byte sleeper, target;  // the thread that sleeps on the bell
byte visible[2], ready[2], pending[2], events;
bool urgent;
byte seen;             // the decisions before a call of `log_news` that has ended
byte emitter;
bool in_handler;       // the emitter is in a log handler
bool undecided;        // a fault has arrived on which the supervisor has not decided

// Watch, and the pool in Python
bool woken, watch_closed, supervisor_ended, is_closed;

// The program
byte program;          // the thread that holds a lock of the program
bool b_has_row;
byte left[2];          // the results that the workers will publish
#ifdef CLOSES
bool may_close = true;
#endif
#ifdef RAISES
bool may_raise = true;
#endif

// What is proven
byte inside;           // the threads between taking and giving up the turn
byte unlogged, logged; // the records of decisions; `unlogged` are those that no thread has begun to emit
byte decisions;        // that have a record
bool has_closed, b_ended, ended;

// -- Turn --------------------------------------------------------------------------------------------------------------

#define is_plain(t) (depth[t] > 0 && !yields[t])
#define any_besides(t) ((t != A && is_plain(A)) || (t != B && is_plain(B)) || \
  (t != LOGGER && is_plain(LOGGER)) || (t != LOGGER_2 && is_plain(LOGGER_2)))
// The callers have parts of their own.  The calls of the other threads are for the whole pool.
#define refuses(t) ((t == A || t == B) -> (is_plain(LOGGER) || is_plain(LOGGER_2)) : any_besides(t))

inline notify_all() {
  asleep[A] = false; asleep[B] = false; asleep[SUPERVISOR] = false;
  asleep[LOGGER] = false; asleep[LOGGER_2] = false
}

inline take_turn() { holder = me; inside++; assert(inside == 1) }

// Sleeps until `is_met`.  `takes`: takes the turn in the same step.  `is_slice_over`: whether the limit may pass before.
inline wait_for(is_met, takes, is_slice_over) {
#ifdef COUNTED_LATE
  atomic { !mutex -> mutex = true };
#else
  atomic { !mutex -> mutex = true; waiters++ };
#endif
  do
  :: atomic {
       is_met ->
       if
       :: takes -> take_turn()
       :: else
       fi;
       break
     }
  :: atomic { !(is_met) && is_slice_over -> break }
#ifdef COUNTED_LATE
  :: !(is_met) && !(is_slice_over) -> waiters++; atomic { asleep[me] = true; mutex = false };
#else
  :: atomic { !(is_met) && !(is_slice_over) -> asleep[me] = true; mutex = false };
#endif
     atomic { (!asleep[me] || is_slice_over) && !mutex -> asleep[me] = false; mutex = true }
#ifdef COUNTED_LATE
     ;
     waiters--
#endif
  od;
#ifdef COUNTED_LATE
  mutex = false
#else
  atomic { waiters--; mutex = false }
#endif
}

// With RAISES a signal handler may raise in thread A while it waits for the turn.
#ifdef RAISES
#define is_interrupted (me == A && may_raise)
#else
#define is_interrupted false
#endif

// Waits for the turn. `is_lost`: whether the thread must go on without it.
inline wait_for_turn() {
  wait_for(holder == NOBODY, true, is_interrupted);
#ifdef RAISES
  if
  :: holder != me -> atomic { may_raise = false; is_lost = true }
  :: else
  fi
#endif
}

inline note(kind) {
  if
  :: kind == OUTSIDE -> is_inside = true
  :: kind == DECISION -> is_deciding = true
  :: else
  fi
}

inline add_call(kind) {
  assert(depth[me] == 0 || lets_in[me]);  // otherwise a call in the middle of another one
  if
  :: depth[me] == 0 -> yields[me] = (kind == DECISION || log_thread == me)
  :: else
  fi;
  assert(kind == DECISION || log_thread == me || !refuses(me));
  depth[me]++;
  if
  :: holder == NOBODY -> take_turn(); note(kind)
  :: else -> must_wait = true
  fi
}

// `is_refused`: whether the pool is closed.
inline begin_call(kind) {
  atomic {
    !mutex ->
    is_refused = is_closed && kind != DECISION;
    if
    :: is_refused
    :: else -> add_call(kind)
    fi
  };
  if
  :: must_wait ->
     must_wait = false;
     wait_for_turn();
     if
     :: !is_lost -> note(kind)
     :: else
     fi
  :: else
  fi
}

inline enter(kind) {
  begin_call(kind);
  if
  :: is_lost -> withdraw()
  :: else
  fi
}

inline remove_call() {
  depth[me]--;
  if
  :: holder == me -> holder = NOBODY; inside--
  :: else
  fi;
  if
  :: waiters > 0 -> notify_all()
  :: else
  fi
}

// Takes the close that was put off, if this thread must run it.  `own`: the calls of this thread that remain.
inline take_close(own) {
  if
  :: is_closing && depth[me] == own && !any_besides(me) ->
     close_put_off = false; is_closing = false; is_close_running = true; runs_close = true;
#ifndef REFUSES_LATE
     is_closed = true
#endif
  :: else
  fi
}

inline withdraw() {
  atomic {
    !mutex ->
    remove_call();
#ifndef WITHDRAW_FORGETS
    take_close(0)
#endif
  };
  run_close()
}

inline end_call() {
  atomic {
    !mutex ->
    if
    :: holder == me -> is_inside = false; is_deciding = false
    :: else
    fi;
    remove_call();
    take_close(0)
  }
}
inline leave() {
  end_call();
  run_close()
}

// The begin and the end of a call within a series.
inline enter_within() { assert(!is_inside && !is_deciding); is_inside = true }
inline leave_within() {
  if
  :: holder == me ->
     is_inside = false;
     if
     :: is_closing -> atomic { !mutex -> take_close(1) }; run_close()
     :: else
     fi
  :: else
  fi
}

inline let_go() {
  atomic {
    was_inside = is_inside; was_deciding = is_deciding; is_inside = false; is_deciding = false;
    inside--; holder = NOBODY
  }
}

// The constructor of Turn::Absence.
inline give_up() {
#ifdef WAITERS_FIRST
  if
  :: waiters == 0 -> let_go()
  :: else -> let_go(); atomic { !mutex -> notify_all() }
  fi
#else
  let_go();
  if
  :: waiters == 0
  :: else -> atomic { !mutex -> notify_all() }
  fi
#endif
}

inline restore() { is_inside = was_inside; is_deciding = was_deciding; was_inside = false; was_deciding = false }

// Turn::Absence::end, or its destructor if a signal handler raises before.
inline come_back() {
  if
  :: atomic { holder == NOBODY -> take_turn(); restore() }
  :: atomic { holder != NOBODY -> skip };
     wait_for_turn();
     atomic {
       if
       :: is_lost -> lets_in[me] = true
       :: else -> restore()
       fi
     }
  fi
}

inline announce() {
  atomic {
    !mutex ->
    is_new[A] = true; is_new[B] = true;
    if
    :: waiters > 0 -> notify_all()
    :: else
    fi
  }
}

// -- closing -----------------------------------------------------------------------------------------------------------

// HubLock::run
inline run_close() {
  if
  :: runs_close ->
     close_now();
     atomic { !mutex -> is_close_running = false; runs_close = false; notify_all() }
  :: else
  fi
}

// Pool._close
inline close_now() {
  atomic {
    assert(!has_closed && !any_besides(me));  // each close runs once, after the last call
    has_closed = true; is_closed = true
  };
  d_step { watch_closed = true; woken = true };  // Watch::close
  if
#ifndef JOINS_INSIDE
  :: holder == me -> give_up(); supervisor_ended; come_back()  // Hub::in_absence
#endif
  :: else -> supervisor_ended
  fi
#ifdef JOINS_LOGGER
  ;
  emitter == NOBODY || emitter == me
#endif
}

// Pool.close, with HubLock::close.  It looks for calls and makes the pool refuse further ones in one step.
inline close() {
  atomic {
    !mutex ->
    if
    :: is_closed
    :: else ->
       if
       :: (holder == me -> (!is_inside && !is_deciding && !any_besides(me))
                         : (!is_plain(A) && !is_plain(B) && !is_plain(LOGGER) && !is_plain(LOGGER_2))) ->
          is_closed = true; closes_now = true
       :: else -> close_put_off = true; is_closing = true;
#ifdef WAITS_IN_CALL
          waits = true
#else
          waits = (depth[me] == 0)
#endif
       fi
    fi
  };
  if
  :: closes_now -> closes_now = false; close_now()
  :: waits -> waits = false; wait_for(!close_put_off && !is_close_running, false, false)
  :: else
  fi
}

// -- log records -------------------------------------------------------------------------------------------------------

// Code of the program.  Here Hub::log does nothing.
inline handler() {
  if
  :: true
#ifdef CLOSES
  :: atomic { may_close -> may_close = false }; close()
#endif
#ifdef LOCKS
  :: true; program == NOBODY || program == me  // takes the lock and gives it back
#endif
#ifdef CALLS
  :: me != A ->  // calls the pool
     begin_call(OUTSIDE);
     if
     :: !is_refused -> end_call()
     :: else
     fi;
     if
     :: runs_close ->
        close_now();
        atomic { !mutex -> is_close_running = false; runs_close = false; notify_all() }
     :: else
     fi
#endif
  fi
}

// Hub::log, with Emission.  A thread does not wait for another one's handlers: its patience ends while one runs.
inline log() {
  if
#ifdef NO_PATIENCE_ENDS
  :: emitter == me
#elif defined(IMPATIENT)
  :: emitter != NOBODY
#else
  :: emitter == me || (emitter != NOBODY && in_handler)
#endif
  :: atomic {
       emitter == NOBODY -> emitter = me
#ifndef LOGGER_UNGUARDED
       ;
       log_thread = (me >= LOGGER -> me : NOBODY)
#endif
     };
     do
     :: atomic { unlogged > 0 -> taken = unlogged; unlogged = 0; in_handler = true };
        handler();
        atomic { logged = logged + taken; taken = 0; in_handler = false }
     :: else -> break
     od;
     atomic {
#ifndef LOGGER_UNGUARDED
       log_thread = NOBODY;
#endif
       emitter = NOBODY
     }
  fi
}

// Hub::log_news
inline log_news() {
  atomic { news = decisions; lets_in[me] = true };
#ifdef SEEN_FIRST
  seen = news;
#endif
#ifdef LOGS_INSIDE
  log();
#else
  give_up();
  log();
  come_back();
#endif
  atomic {
    if
    :: !is_lost -> lets_in[me] = false; seen = news
    :: else
    fi
  }
}

// -- receiving ---------------------------------------------------------------------------------------------------------

inline ring(n) {
  rung[A] = (rung[A] + n > 2 -> 2 : rung[A] + n);
  rung[B] = (rung[B] + n > 2 -> 2 : rung[B] + n);
  if
  :: sleeper != NOBODY && rung[sleeper] >= target -> sleeper = NOBODY
  :: else
  fi
}

inline drain() {
  d_step {
#ifdef FAULTS
    if
    :: visible[0] > 0 -> events = events + visible[0]; undecided = true; woken = true
    :: else
    fi;
#else
    ready[0] = ready[0] + visible[0];
#endif
    ready[1] = ready[1] + visible[1];
    visible[0] = 0; visible[1] = 0
  }
}

// Hub::sleep
inline sleep() {
#ifdef FOLLOWS_LATE
  atomic { is_new[me] = false; other = sleeps_for };
  if
  :: other == 0 -> sleeps_for = needed
  :: else -> followers++
  fi;
#else
  atomic { is_new[me] = false; followers++ };
  atomic {
    other = sleeps_for;
    if
    :: other == 0 -> followers--; sleeps_for = needed
    :: else
    fi
  };
#endif
#ifndef LEADER_UNWOKEN
  if
  :: other > 1 -> d_step { ring(other) }
  :: else
  fi;
#endif
  give_up();
  if
  :: other != 0 ->
     wait_for(is_new[me], false, is_closing);
     followers--
  :: else ->
     atomic {
       if
       :: rung[me] < needed -> target = needed; sleeper = me
       :: else
       fi
     };
     atomic { sleeper != me || is_closing -> sleeper = NOBODY; target = 0 };
#ifdef NEWS_FIRST
     if
     :: followers != 0 -> announce()
     :: else
     fi;
     sleeps_for = 0;
#else
     sleeps_for = 0;
     if
     :: followers != 0 -> announce()
     :: else
     fi;
#endif
  fi;
  atomic { other = 0; needed = 0 };
  come_back()
}

#define is_over(part) ((ready[part] >= pending[part] || urgent) && !undecided)

// Hub::wait_from, until all results of a part are there.
inline wait_from(part) {
  do
  :: rung[me] = 0;  // it reads the count
     drain();
     if
#ifdef ROW_FIRST
     :: is_over(part) -> break
#else
     :: is_over(part) && decisions != seen -> log_news()
     :: is_over(part) && decisions == seen -> break
#endif
     :: else ->
        if
        :: is_closing -> break
        :: else ->
           needed = (undecided || sleeps_for != 0 || followers != 0 -> 1 : pending[part] - ready[part]);
           sleep();
           interrupt()
        fi
     fi;
     if
     :: is_lost -> break
     :: else
     fi
  od
}

// A signal handler in thread A, or a finalizer in thread B, may close the pool.
inline interrupt() {
#ifdef CLOSES
  if
  :: atomic { may_close && !is_lost -> may_close = false }; close()
  :: true
  fi
#else
  skip
#endif
}

// Takes the results, or raises the faults.
inline take(part) {
  atomic {
    if
    :: part == 0 && (ready[0] > 0 || urgent) ->
       // No row precedes its record, unless another thread emits records and a log handler takes long.
       assert(logged == decisions || emitter != NOBODY)
    :: else
    fi;
    pending[part] = pending[part] - ready[part];
    ready[part] = 0;
#ifndef URGENT_KEPT
    urgent = false;
#endif
    b_has_row = b_has_row || (part == 1 && pending[1] == 0)
  }
}

#define locals byte needed, other, taken, news; bool must_wait, is_refused, is_lost, runs_close, closes_now, waits, was_inside, was_deciding

proctype CallerA() {
  byte me = A;
  locals;

#ifdef LOCKS
  atomic { program == NOBODY -> program = A };
#endif
  enter(SERIES);
  if
  :: !is_refused ->
     do
     :: pending[0] > 0 && !is_closing && !is_closed && !is_lost ->  // as Exchange.drop_pending
        enter_within();
        wait_from(0);
        if
        :: !is_lost && !is_closing -> take(0)
        :: else
        fi;
        leave_within();
        if
        :: !is_lost -> interrupt()
        :: else
        fi
     :: else -> break
     od;
     if
     :: depth[A] > 0 -> leave()
     :: else  // it has withdrawn
     fi
  :: else
  fi;
  lets_in[A] = false;
#ifdef LOCKS
  program = NOBODY;
#endif
#ifdef CLOSES
  may_close = false;
#endif
  atomic { is_refused = false; is_lost = false; was_inside = false; was_deciding = false };
#ifdef RAISES
  may_raise = false;
#endif
  close();
  log();  // Engine.release
  has_closed && supervisor_ended && !is_close_running && b_ended;
  assert(depth[A] == 0 && depth[B] == 0 && holder != A && !close_put_off);
  ended = true
}

proctype CallerB() {
  byte me = B;
  locals;

#ifdef PARTS
  do
  :: pending[1] == 0 || is_refused -> break
  :: else ->
     enter(OUTSIDE);
     if
     :: !is_refused ->
        wait_from(1);
        if
        :: !is_closing -> take(1)
        :: else
        fi;
        leave()
     :: else
     fi
  od;
#endif
  b_ended = true
}

#ifdef SLOW
#define may_come (left[0] > 0 && (b_has_row || left[1] + visible[1] + ready[1] == 0))  // no result precedes B's row
#else
#define may_come (left[0] > 0)
#endif

// Publishes the results, and rings.
proctype Worker() {
  do
#ifdef FAULTS
  :: d_step { may_come && left[0] == 2 -> left[0]--; visible[0]++; ring(1) }        // an env raises
  :: d_step { may_come && left[0] == 1 -> left[0]--; events++; woken = true }       // a process ends
#else
  :: d_step { may_come -> left[0]--; visible[0]++; ring(1) }
#endif
  :: d_step { left[1] > 0 -> left[1]--; visible[1]++; ring(1) }
  :: left[0] == 0 && left[1] == 0 -> break
  :: is_closed -> break
  od
}

// -- the supervisor ----------------------------------------------------------------------------------------------------

proctype Supervisor() {
  byte me = SUPERVISOR, left_to_start = LOGGERS;
  locals;

  do
  :: watch_closed -> break
  :: atomic { !watch_closed && woken -> woken = false };
     enter(DECISION);
     drain();
     atomic {
       if
       :: events > 0 ->
          ready[0] = ready[0] + events;
          urgent = urgent || pending[0] > ready[0];
          unlogged++; decisions++;
          events = 0
       :: else
       fi;
       undecided = false
     };
#ifdef SUPERVISOR_LOGS
     log();
#endif
#ifdef SUPERVISOR_CLOSES
     close();
#endif
#ifndef DECISION_UNHEARD
     other = sleeps_for;
     if
     :: other != 0 -> d_step { ring(other) }  // Hub::wake_callers
     :: else
     fi;
     other = 0;
#endif
     leave()
#if LOGGERS > 0
  :: !watch_closed && unlogged > 0 && left_to_start > 0 ->
     atomic { left_to_start--; run Logger(LOGGER + left_to_start) }
#endif
  od;
  supervisor_ended = true
}

// Hub::log, in a thread that does nothing else
proctype Logger(byte me) {
  locals;

#ifdef LOGGER_UNGUARDED
  log_thread = me;
#endif
  log();
#ifdef LOGGER_UNGUARDED
  log_thread = NOBODY
#endif
}

init {
  atomic {
    pending[0] = 2; left[0] = 2;
#ifdef PARTS
    pending[1] = 1; left[1] = 1;
#endif
    run CallerA();
    run CallerB();
    run Worker();
    run Supervisor()
  }
}

ltl ends { <> ended }
