// The pool, its supervisor and its workers, from the first command to the last answer: src/core/pool/hub/*.cpp,
// src/core/worker/loop.cpp and _engine/supervision.
//
// Rings are queues whose records appear when they are published, as ring.pml proves.  Doorbells work as doorbell.pml
// proves: a sleeper is woken by the ringer that reaches its goal, if that ringer is not killed before; with EARLY, also
// earlier.  With KEEPS a worker may keep the count of its published results until it has nothing left to do.  ringer.pml
// checks when it must ring earlier.  The turn is one variable: turn.pml checks how threads get it and wait for it.
//
// Worker 0 may be killed at any moment, and with FAILS one env may raise.  No sleep ends by itself.  So a lost wake-up
// appears as an endless sleep.  Without RESTARTS the pool raises faults.

#define WORKERS 2
#ifdef ONE_EACH
#define ALL 2                // slots: one for each worker
#define owner(slot) (slot)
#define CAPACITY 3           // the size of a ring: a command for each slot of a worker, CLOSE, and REBUILD
#else
#define ALL 3                // slots: 0 and 1 belong to worker 0, and 2 to worker 1
#define owner(slot) ((slot) / 2)
#define CAPACITY 4
#endif
#ifndef ROUNDS
#define ROUNDS 1             // the rounds of sending and receiving
#endif
#define FINE 0               // the worker whose steps are all modelled, and that may be killed
#ifndef MAX_RUNNING
#define MAX_RUNNING WORKERS  // the number of workers that may have commands at once
#endif

mtype = { STEP, FAILED_STEP, REBUILD, CLOSE }                 // commands and results
mtype = { IDLE, IN_FLIGHT, ORPHANED, READY, FAILED }          // slots
mtype = { SERVING, DEAD, COMING }                             // ports

// The transitions of a slot's state, without those for spares.
#define follows(from, to) ( \
  (from == IDLE && to == IN_FLIGHT) || \
  (from == IN_FLIGHT && (to == READY || to == ORPHANED)) || \
  (from == ORPHANED && (to == IN_FLIGHT || to == READY || to == IDLE || to == FAILED)) || \
  (from == FAILED && to == IDLE) || \
  (from == READY && to == IDLE))
inline become(slot, to) {
  assert(follows(state[slot], to));
  state[slot] = to
}

// The rings: the pushed records, and the number of them that are visible.
chan commands[WORKERS] = [CAPACITY] of { mtype, byte };  // op, slot
chan results[WORKERS] = [CAPACITY] of { mtype, byte };
byte visible_commands[WORKERS], visible_results[WORKERS];

bool killed[WORKERS];
bool alive[WORKERS];    // false: the pidfd is readable
bool stopped[WORKERS];  // set by WorkerLoop::stop
bool may_fail;          // whether an env may raise; one does at most
bool ended;             // the pool has closed

// -- the bells ---------------------------------------------------------------------------------------------------------

#define POOL WORKERS  // the index of the pool's bell; that of worker w is w

// `notified` is counted from the waiter's last look at it.
typedef Bell {
  byte notified;
  byte target;
  bool asleep;
}
Bell bells[WORKERS + 1];

inline look_at(b) { bells[b].notified = 0 }

// A count above the highest target says no more than that target.
#define most(b) ((b) == POOL -> ALL + 1 : 1)
inline add(b, n) {
  bells[b].notified = (bells[b].notified + (n) > most(b) -> most(b) : bells[b].notified + (n))
}

inline wake(b) {
  if
  :: bells[b].asleep && bells[b].notified >= bells[b].target -> bells[b].asleep = false
  :: else
  fi
}

inline wait(b, goal, slice_over) {
  atomic {
    if
    :: bells[b].notified < goal -> bells[b].target = goal; bells[b].asleep = true
#ifdef EARLY
    :: true  // the goal is reached, or the wait returns early
#else
    :: else
#endif
    fi
  };
  atomic { !bells[b].asleep || slice_over -> bells[b].asleep = false; bells[b].target = 0 }
}

// -- the worker --------------------------------------------------------------------------------------------------------

inline publish_results() {
#ifdef WORKER_RINGS_FIRST
  d_step { add(POOL, unpublished); wake(POOL) };
  d_step { visible_results[me] = visible_results[me] + unpublished; unpublished = 0 }
#else
  d_step { visible_results[me] = visible_results[me] + unpublished; kept = kept + unpublished; unpublished = 0 };
#ifndef KEEPS
  ring_for_results()
#endif
#endif
}

inline ring_for_results() {
  d_step { add(POOL, kept); kept = 0 };
  d_step { wake(POOL) }
}

#ifdef THROUGH_UNRUNG
#define is_through (visible_commands[me] == 0 && unpublished == 0)
#else
#define is_through (visible_commands[me] == 0 && unpublished == 0 && kept == 0)
#endif

#ifdef STOP_UNSEEN
#define nothing_to_do (visible_commands[me] == 0)
#else
#define nothing_to_do (visible_commands[me] == 0 && !stopped[me])
#endif

inline wait_for_command() {
#ifdef WORKER_HEARS_LATE
  if
  :: nothing_to_do -> look_at(me); wait(me, 1, false)
  :: else
  fi;
#else
  look_at(me);
  if
  :: nothing_to_do -> wait(me, 1, false)
  :: else
  fi
#endif
}

#ifdef FAREWELL_UNPUBLISHED
#define finished closed
#else
#define finished (closed && unpublished == 0 && kept == 0)
#endif

proctype Worker(byte me; bool in_detail) {
  byte slot, unpublished, kept;
  mtype op;
  bool closed;
  {
    do
    :: d_step {  // pop, execute, post
         !closed && visible_commands[me] > 0 ->
         visible_commands[me]--;
         commands[me] ? op, slot;
         assert(nfull(results[me]));
         results[me] ! op, slot;
         unpublished++;
         closed = (op == CLOSE);
         op = 0; slot = 0
       }
#ifdef FAILS
    :: d_step {  // an env raises
         !closed && may_fail && visible_commands[me] > 0 && commands[me] ? [STEP, _] ->
         visible_commands[me]--;
         commands[me] ? op, slot;
         results[me] ! FAILED_STEP, slot;
         unpublished++;
         may_fail = false;
         op = 0; slot = 0
       }
#endif
    :: unpublished > 0 && !in_detail ->
       d_step {
         visible_results[me] = visible_results[me] + unpublished;
         add(POOL, unpublished); wake(POOL);
         unpublished = 0
       }
    :: unpublished > 0 && in_detail -> publish_results()  // after a slow step, or when nothing is left to do
#ifdef KEEPS
#ifdef THROUGH_UNRUNG
    :: kept > 0 && (visible_commands[me] > 0 || closed) -> ring_for_results()
#else
    :: kept > 0 -> ring_for_results()
#endif
#endif
    :: finished || stopped[me] -> break
    :: is_through && !closed && !stopped[me] && in_detail -> wait_for_command()
    od;
    alive[me] = false
  } unless { in_detail && killed[me] }
}

// Kills a worker at any time, or never.
proctype Killer() {
  if
  :: d_step { killed[FINE] = true; alive[FINE] = false }
  :: true
  fi
}

// -- the hub -----------------------------------------------------------------------------------------------------------

// Only the process that has the turn uses these variables.  The supervisor reads `sleeps_for` after the pool set it.
bool turn;
mtype state[ALL] = IDLE, port[WORKERS] = SERVING;
byte in_flight;                            // slots that wait for a result, also those that wait for a decision
byte ready, failed;                        // slots with a result, and with a failure to be raised
byte outstanding[WORKERS], messages[WORKERS];
byte awaited;                              // answers that have not arrived
byte calls;                                // answers on which the supervisor has not decided
byte answers;                              // those of them that have arrived
bool raises[ALL];                          // slots whose failure has arrived
bool reported[WORKERS];                    // dead workers that were sent another command
bool pushed[WORKERS], running[WORKERS], lost[WORKERS], answer_awaited[WORKERS], answered[WORKERS];
byte number_running, sleeps_for;
chan turns = [WORKERS] of { byte };
bool urgent;                               // the loss of an env must be raised
bool decided;                              // the supervisor has decided since the wait began
bool undecided;                            // a failure has arrived on which the supervisor has not decided
bool closing;

// Watch
bool woken, watch_closed, supervisor_ended;
bool watched[WORKERS] = true;
bool built[WORKERS];                       // the worker's successor has built its envs

inline take_turn() { atomic { !turn -> turn = true } }

// -- the hub: sending --------------------------------------------------------------------------------------------------

inline push(w, op, slot) {
  assert(nfull(commands[w]));
  commands[w] ! op, slot;
  outstanding[w]++;
  pushed[w] = true;
#ifndef DEAD_UNREPORTED
  if
  :: port[w] == DEAD -> reported[w] = true; woken = true
  :: else
  fi
#endif
}

inline post_message(w, op) {
  push(w, op, 0);
  messages[w]++; awaited++; calls++
}

// In two steps; the callers in `atomic` make one of them.
inline publish(w) {
  atomic {
    if
    :: pushed[w] && port[w] == SERVING && (running[w] || number_running < MAX_RUNNING) ->
       d_step { number_running = number_running + (1 - running[w]); running[w] = true; pushed[w] = false; rings = true };
#ifdef POOL_RINGS_FIRST
       d_step { add(w, 1); wake(w) }
#else
       visible_commands[w] = len(commands[w])
#endif
    :: pushed[w] && port[w] == SERVING && !running[w] && number_running >= MAX_RUNNING ->
       if
       :: !(turns ?? [eval(w)]) -> turns ! w
       :: else
       fi
    :: else
    fi
  };
  if
  :: rings ->
     d_step {
       rings = false;
#ifdef POOL_RINGS_FIRST
       visible_commands[w] = len(commands[w])
#else
       add(w, 1); wake(w)
#endif
     }
  :: else
  fi
}

inline finish_turn(w) {
  if
  :: running[w] ->
     d_step { running[w] = false; number_running-- };
     do
     :: len(turns) > 0 && number_running < MAX_RUNNING -> turns ? next; publish(next); next = 0
     :: else -> break
     od
  :: else
  fi
}

// -- the hub: receiving ------------------------------------------------------------------------------------------------

inline accept(w) {
  visible_results[w]--;
  results[w] ? op, slot;
  outstanding[w]--;
  if
  :: op == STEP || op == FAILED_STEP ->
     assert(state[slot] == IN_FLIGHT && owner(slot) == w);  // each command is answered once
     if
     :: op == STEP -> become(slot, READY); ready++; in_flight--
     :: else -> become(slot, ORPHANED); raises[slot] = true; undecided = true
     fi
  :: else ->
     assert(messages[w] > 0);
     messages[w]--; awaited--; answers++;
     if
     :: op == CLOSE ->
        assert(answer_awaited[w] && outstanding[w] == 0);  // this is the worker's last answer
        answer_awaited[w] = false; answered[w] = true
     :: else
     fi
  fi;
#ifdef EVENT_UNSEEN
  skip;
#else
  if
  :: op != STEP -> woken = true  // Watch::wake
  :: else
  fi;
#endif
  op = 0; slot = 0
}

inline drain_ring(w) {
  atomic {
    d_step {
      do
      :: port[w] == SERVING && visible_results[w] > 0 -> accept(w)
      :: else -> break
      od
    };
    if
    :: outstanding[w] == 0 -> finish_turn(w)
    :: else
    fi
  }
}

inline drain() {
  atomic {
    drain_ring(0);
    drain_ring(1)
  }
}

#ifdef TURNS_UNHEARD
#define each (awaited > 0)
#else
#define each (awaited > 0 || len(turns) > 0)
#endif

#define is_over(wanted) (ready + failed >= wanted || urgent)

inline count_needed(wanted, decision) {
  d_step {
    if
    :: each || decision || is_over(wanted) -> needed = 1
    :: else ->
       needed = wanted - (ready + failed);
       if
       :: needed > in_flight -> needed = (in_flight > 0 -> in_flight : 1)
       :: else
       fi
    fi;
#ifdef NEEDS_ONE_MORE
    needed++
#endif
  }
}

// Hub::wait_from.  `decision`: whether it waits for the next decision, instead of for results.  `slice_over`: when a
// sleep may end by itself.
inline wait_from(wanted, decision, slice_over) {
  d_step { decided = false; look_at(POOL) };
  do
  ::
#ifdef HUB_HEARS_LATE
     drain();
     look_at(POOL);
#endif
     atomic {
#ifndef HUB_HEARS_LATE
       drain();
#endif
       if
       :: (decision && (decided || slice_over) && !undecided) ||
          (!decision && ((is_over(wanted) && !undecided) || in_flight + ready + failed < wanted)) -> break
       :: else -> count_needed(wanted, decision); sleeps_for = needed; turn = false
       fi
     };
     atomic {
       if
       :: bells[POOL].notified < needed -> bells[POOL].target = needed; bells[POOL].asleep = true
#ifdef EARLY
       :: true  // the wait returns early
#else
       :: else
#endif
       fi
     };
     atomic {
       (!bells[POOL].asleep || slice_over) && !turn ->
       bells[POOL].asleep = false; bells[POOL].target = 0;
       sleeps_for = 0; turn = true
#ifndef HUB_HEARS_LATE
       ;
       look_at(POOL)
#endif
     }
  od;
  atomic { needed = 0; decided = false }
}

// -- the supervisor ----------------------------------------------------------------------------------------------------

// Supervisor._on_message, for the failure of a slot.
inline decide_on_failure(slot) {
  raises[slot] = false;
  if
  :: closing || lost[owner(slot)] -> become(slot, IDLE); in_flight--
  :: else ->
#ifdef RESTARTS
     post_message(owner(slot), REBUILD);
     become(slot, READY); ready++; in_flight--
#else
     become(slot, FAILED); failed++; in_flight--
#endif
  fi
}

inline decide_on_messages() {
  d_step {
    calls = calls - answers;
    answers = 0;
    for (slot : 0 .. ALL - 1) {
      if
      :: raises[slot] -> decide_on_failure(slot)
      :: else
      fi
    }
    slot = 0
  };
  publish(0);
  publish(1)
}

// Hub::end, in a decision on an ended worker.
inline end(w) {
  d_step {
    if
    :: port[w] == SERVING ->
       assert(visible_results[w] == 0);   // the pool has received all published results
       assert(killed[w] || answered[w] || stopped[w]);  // a worker that ends by itself has answered
       watched[w] = false;
       port[w] = DEAD
    :: else
    fi;
    calls = calls - messages[w]; awaited = awaited - messages[w];
    messages[w] = 0; answer_awaited[w] = false;
    for (slot : 0 .. ALL - 1) {
      if
      :: owner(slot) == w && state[slot] == IN_FLIGHT -> become(slot, ORPHANED); orphaned = true
      :: else
      fi
    }
    slot = 0
  };
#ifndef TURN_KEPT
  finish_turn(w)
#endif
}

// WorkerFaults.died: ends the worker, settles its slots, and starts its successor.
inline died(w) {
  assert(port[w] != COMING);  // each death is reported once
  end(w);
  skip;
  d_step {
#ifdef RESTARTS
    if
    :: !closing -> reopen(w)
    :: else
    fi;
#else
    if
    :: !closing && (orphaned || reported_now) -> lost[w] = true; urgent = true
    :: else
    fi;
#endif
    for (slot : 0 .. ALL - 1) {
      if
      :: owner(slot) == w && state[slot] == ORPHANED && !raises[slot] ->
#ifdef RESTARTS
         if
         :: !closing -> become(slot, IN_FLIGHT); push(w, STEP, slot)
         :: else -> become(slot, IDLE); in_flight--
         fi
#else
         become(slot, IDLE); in_flight--
#endif
      :: else
      fi
    }
    slot = 0; orphaned = false; reported_now = false
  }
}

inline reopen(w) {
  do
  :: len(commands[w]) > 0 -> commands[w] ? _, _
  :: else -> break
  od;
  do
  :: len(results[w]) > 0 -> results[w] ? _, _  // written, but never published
  :: else -> break
  od;
  visible_commands[w] = 0; outstanding[w] = 0; pushed[w] = false;
  bells[w].notified = 0; bells[w].target = 0; bells[w].asleep = false;
  port[w] = COMING
}

// Hub::decide: Hub::take_events and Supervisor._decide.
inline decide() {
#ifdef DRAIN_FIRST
  drain();
  d_step { gone[0] = watched[0] && !alive[0]; gone[1] = watched[1] && !alive[1] };
#endif
  atomic {
#ifndef DRAIN_FIRST
    drain();
#endif
#ifdef END_FIRST
    if
    :: gone[0] -> end(0)
    :: else
    fi;
    if
    :: gone[1] -> end(1)
    :: else
    fi;
#endif
    skip;
    d_step {
      again[0] = reported[0]; reported[0] = false; gone[0] = gone[0] || again[0];
      again[1] = reported[1]; reported[1] = false; gone[1] = gone[1] || again[1]
    };
    decide_on_messages();
    if
    :: gone[0] -> reported_now = again[0]; died(0); start(0)
    :: else
    fi;
    if
    :: gone[1] -> reported_now = again[1]; died(1); start(1)
    :: else
    fi;
#ifdef RESTARTS
    join(0);
    join(1);
#endif
    skip;
    d_step {
      gone[0] = false; gone[1] = false; again[0] = false; again[1] = false;
      decided = true; undecided = false;
#ifndef DECISION_UNHEARD
      add(POOL, sleeps_for); wake(POOL);  // Hub::wake_callers
#endif
      turn = false
    }
  }
}

inline start(w) {
#ifdef RESTARTS
  if
  :: port[w] == COMING -> run Starter(w)
  :: else
  fi
#else
  skip
#endif
}

// WorkerFaults.continue_starts
inline join(w) {
  if
  :: built[w] && !closing ->
     atomic {
       built[w] = false;
       alive[w] = true; watched[w] = true; port[w] = SERVING;
       run Worker(w, false)
     };
     publish(w)
  :: else
  fi
}

#ifdef RESTARTS
proctype Starter(byte w) {
  d_step { built[w] = true; woken = true }
}
#endif

proctype Supervisor() {
  byte slot, next;
  mtype op;
  bool gone[WORKERS], again[WORKERS], orphaned, reported_now, rings;

  do
  :: watch_closed -> break
  :: atomic {  // Watch::wait, and it enters the hub
       !watch_closed && !turn &&
#ifdef DEATH_UNSEEN
       woken ->
#else
       (woken || (watched[0] && !alive[0]) || (watched[1] && !alive[1])) ->
#endif
#ifndef CLEAR_LATE
       woken = false;
#endif
       turn = true;
#ifndef DRAIN_FIRST
       gone[0] = watched[0] && !alive[0];
       gone[1] = watched[1] && !alive[1]
#endif
     };
     decide()
#ifdef CLEAR_LATE
     ;
     woken = false
#endif
  od;
  supervisor_ended = true
}

// -- the caller --------------------------------------------------------------------------------------------------------

#ifdef SEND_BUSY
#define may_be_sent(slot) (state[slot] != READY && !lost[owner(slot)])
#else
#define may_be_sent(slot) (state[slot] == IDLE && !lost[owner(slot)])
#endif

// Sends a command to each idle slot of the workers that are not lost.
inline send() {
  d_step {
    for (slot : 0 .. ALL - 1) {
      if
      :: may_be_sent(slot) ->
         become(slot, IN_FLIGHT); in_flight++;
         push(owner(slot), STEP, slot)
      :: else
      fi
    }
    slot = 0
  };
  publish(0);
  publish(1)
}

// Takes the results, and raises the faults.
inline take() {
  d_step {
    for (slot : 0 .. ALL - 1) {
      if
      :: state[slot] == READY || state[slot] == FAILED -> become(slot, IDLE)
      :: else
      fi
    }
    slot = 0;
    ready = 0; failed = 0; urgent = false
  }
}

inline say_close(w) {
  take_turn();
  if
  :: port[w] == SERVING && alive[w] ->
     d_step { post_message(w, CLOSE); answer_awaited[w] = true };
     publish(w)
  :: else
  fi;
  turn = false
}

inline stop(w) {
  stopped[w] = true;
  d_step { add(w, 1); wake(w) }
}

proctype Pool() {
  byte round, wanted, needed, slot, next;
  bool rings;
  mtype op;

  do
  :: round < ROUNDS ->
     take_turn();
     send();
     if
     :: in_flight + ready + failed > 0 ->
        select(wanted : 1 .. in_flight + ready + failed);
        wait_from(wanted, false, false)
     :: else
     fi;
     d_step { wanted = 0; round++ };
     take();
     turn = false
  :: true -> break  // closes the pool at any time, also with results in flight
  od;
  round = 0;

#ifdef ABANDON
  stop(0);
  stop(1);
#else
  take_turn();
  closing = true;
  turn = false;
  say_close(0);
  say_close(1);
#ifndef CLOSE_UNDRAINED
  // It looks at the calls without the turn.  So a decision may precede the wait, which then ends after a slice.
  do
  :: calls > 0 -> take_turn(); wait_from(0, true, calls == 0); turn = false
  :: else -> break
  od;
#endif
  assert(answered[0] || !alive[0]);
  assert(answered[1] || !alive[1]);
#endif
  d_step { watch_closed = true; woken = true };
  supervisor_ended;
  ended = true
}

init {
  atomic {
#ifdef FAILS
    may_fail = true;
#endif
    alive[0] = true; run Worker(0, FINE == 0);
    alive[1] = true; run Worker(1, FINE == 1);
    run Killer();
    run Supervisor();
    run Pool()
  }
}

ltl ends { <> ended }
