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
bool urgent, has_news;
byte emitter;

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
bool logs[THREADS];    // the thread emits records, or is about to
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
  :: else ->
#ifdef COUNTED_LATE
     waiters++;
#endif
     atomic { asleep[me] = true; mutex = false };
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

inline add_call(kind) {
  assert(depth[me] == 0 || lets_in[me]);  // otherwise a call in the middle of another one
  if
  :: depth[me] == 0 -> yields[me] = (kind == DECISION || log_thread == me)
  :: else
  fi;
  assert(kind == DECISION || log_thread == me || !refuses(me));
  depth[me]++;
  if
  :: holder == NOBODY -> take_turn()
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
  :: must_wait -> must_wait = false; wait_for_turn()
  :: else
  fi;
  if
  :: is_refused || is_lost
  :: else ->
     if
     :: kind == OUTSIDE -> is_inside = true
     :: kind == DECISION -> is_deciding = true
     :: else
     fi
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

// The constructor of Turn::Absence.
inline give_up() {
  atomic { was_inside = is_inside; was_deciding = is_deciding; is_inside = false; is_deciding = false; inside-- };
#ifdef WAITERS_FIRST
  if
  :: waiters == 0 -> holder = NOBODY
  :: else -> holder = NOBODY; atomic { !mutex -> notify_all() }
  fi
#else
  holder = NOBODY;
  if
  :: waiters == 0
  :: else -> atomic { !mutex -> notify_all() }
  fi
#endif
}

// Turn::Absence::end, or its destructor if a signal handler raises before.
inline come_back() {
  if
  :: atomic { holder == NOBODY -> take_turn() }
  :: atomic { holder != NOBODY -> skip }; wait_for_turn()
  fi;
  if
  :: is_lost -> lets_in[me] = true
  :: else -> atomic { is_inside = was_inside; is_deciding = was_deciding; was_inside = false; was_deciding = false }
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
     log();
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
#ifdef SUPERVISOR_CLOSES
  assert(me != SUPERVISOR);
#endif
  if
#ifndef JOIN_INSIDE
  :: holder == me -> give_up(); supervisor_ended; come_back()  // Hub::in_absence
  :: else -> supervisor_ended
#else
  :: supervisor_ended
#endif
  fi
}

// Pool.close, with HubLock::put_off.  It looks for calls and makes the pool refuse further ones in one step.
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
  :: closes_now -> closes_now = false; close_now(); log()
  :: waits -> waits = false; wait_for(!close_put_off && !is_close_running, false, false)
  :: else
  fi
}

// -- log records -------------------------------------------------------------------------------------------------------

// Code of the program.
inline handler() {
  if
  :: true
#ifdef LOCKS
  :: program == NOBODY || program == me  // takes the lock and gives it back
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
        close_now();  // Hub::log does nothing in a log handler
        atomic { !mutex -> is_close_running = false; runs_close = false; notify_all() }
     :: else
     fi
#endif
  fi
}

// Hub::log, with Emission.  A thread does not wait for another one's handlers.
inline log() {
  if
#ifdef NO_PATIENCE
  :: emitter == me
#else
  :: emitter != NOBODY
#endif
  :: atomic { emitter == NOBODY -> emitter = me };
#ifndef LOGGER_UNGUARDED
     if
     :: me >= LOGGER -> log_thread = me
     :: else
     fi;
#endif
     do
     :: atomic { unlogged > 0 -> taken = unlogged; unlogged = 0 };
        handler();
        atomic { logged = logged + taken; taken = 0 }
     :: else -> break
     od;
#ifndef LOGGER_UNGUARDED
     if
     :: me >= LOGGER -> log_thread = NOBODY
     :: else
     fi;
#endif
     emitter = NOBODY
  fi
}

// Hub::log_news
inline log_news() {
  atomic { has_news = false; logs[me] = true };
#ifdef LOGS_INSIDE
  log();
#else
  lets_in[me] = true;
  give_up();
  log();
  come_back();
  if
  :: !is_lost -> lets_in[me] = false
  :: else
  fi;
#endif
  logs[me] = false
}

// -- receiving ---------------------------------------------------------------------------------------------------------

inline ring(n) {
  d_step {
    rung[A] = (rung[A] + n > 2 -> 2 : rung[A] + n);
    rung[B] = (rung[B] + n > 2 -> 2 : rung[B] + n);
    if
    :: sleeper != NOBODY && rung[sleeper] >= target -> sleeper = NOBODY
    :: else
    fi
  }
}

inline drain() {
  d_step {
#ifdef FAULTS
    if
    :: visible[0] > 0 -> events = events + visible[0]; woken = true  // they need a decision
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
  is_new[me] = false;
#ifdef FOLLOWS_LATE
  other = sleeps_for;
  if
  :: other == 0 -> sleeps_for = needed
  :: else -> followers++
  fi;
#else
  followers++;
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
  :: other > 1 -> ring(other)
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

// Hub::wait_from, until all results of a part are there.
inline wait_from(part) {
  do
  :: rung[me] = 0;  // it reads the count
     drain();
     if
#ifndef ROW_FIRST
     :: (ready[part] >= pending[part] || urgent) && has_news -> log_news()
     :: (ready[part] >= pending[part] || urgent) && !has_news -> break
#else
     :: ready[part] >= pending[part] || urgent -> break
#endif
     :: else ->
        if
        :: is_closing -> break
        :: else ->
           needed = (sleeps_for != 0 || followers != 0 -> 1 : pending[part] - ready[part]);
           sleep();
           signal()
        fi
     fi;
     if
     :: is_lost -> break
     :: else
     fi
  od
}

// A signal handler may close the pool in thread A.
inline signal() {
#ifdef CLOSES
  if
  :: me == A && may_close && !is_lost -> may_close = false; close()
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
       // No row precedes its record.
       assert(logged == decisions || logs[B] || logs[LOGGER] || logs[LOGGER_2])
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

#define locals byte needed, other, taken; bool must_wait, is_refused, is_lost, runs_close, closes_now, waits, was_inside, was_deciding

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
        :: !is_lost -> signal()
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
  atomic { is_refused = false; is_lost = false; was_inside = false; was_deciding = false };
#ifdef RAISES
  may_raise = false;
#endif
  close();
  has_closed && supervisor_ended && !is_close_running && b_ended;
  assert(depth[A] == 0 && depth[B] == 0 && holder != A);
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

proctype Worker() {
  do
  :: d_step { left[0] > 0 && (left[0] > 1 || b_has_row || pending[1] == 0) -> left[0]--; visible[0]++ }; ring(1)
  :: d_step { left[1] > 0 -> left[1]--; visible[1]++ }; ring(1)
  :: left[0] == 0 && left[1] == 0 -> break
  :: is_closed -> break
  od
}

// -- the supervisor ----------------------------------------------------------------------------------------------------

proctype Supervisor() {
  byte me = SUPERVISOR, left_to_start = 2;
  locals;

  do
  :: watch_closed -> break
  :: !watch_closed && woken ->
     woken = false;
     enter(DECISION);
     drain();
     atomic {
       if
       :: events > 0 ->
          ready[0] = ready[0] + events;
          urgent = urgent || pending[0] > ready[0];
          unlogged++; decisions++; has_news = true;
          events = 0
       :: else
       fi
     };
#ifndef DECISION_UNHEARD
     other = sleeps_for;
     if
     :: other != 0 -> ring(other)  // Hub::wake_callers
     :: else
     fi;
     other = 0;
#endif
     leave()
#ifdef LOGGERS
  :: !watch_closed && unlogged > 0 && left_to_start > 0 ->
     run Logger(LOGGER + 2 - left_to_start);
     left_to_start--
#endif
  od;
  supervisor_ended = true
}

// Hub::log_apart
proctype Logger(byte me) {
  locals;

#ifdef LOGGER_UNGUARDED
  log_thread = me;
#endif
  logs[me] = true;
  log();
  logs[me] = false;
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
