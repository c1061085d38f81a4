// The pool and its workers, from the first command to the last answer: src/core/pool/hub/*.cpp, src/core/worker/loop.cpp.
//
// Rings are queues whose records appear when they are published, as ring.pml proves.  Doorbells work as doorbell.pml
// proves: a sleeper is woken by the ringer that reaches its goal, if that ringer is not killed before, or spuriously
// earlier.  With KEEPS a worker may keep the count of its published results until it has nothing left to do.  ringer.pml
// checks when it must ring earlier.
//
// One worker may be killed at any moment.  No sleep ends by itself, except the pool's while there is an undetected death.
// So a lost wake-up appears as an endless sleep.

#define WORKERS 2
#ifdef ONE_EACH
#define ALL 2                // slots: one for each worker
#define owner(slot) (slot)
#define CAPACITY 2           // the size of a ring: a command for each slot of a worker, and CLOSE
#else
#define ALL 3                // slots: 0 and 1 belong to worker 0, and 2 to worker 1
#define owner(slot) ((slot) / 2)
#define CAPACITY 3
#endif
#ifndef ROUNDS
#define ROUNDS 1             // the rounds of sending and receiving
#endif
#ifndef MAX_RUNNING
#define MAX_RUNNING WORKERS  // the number of workers that may have commands at once
#endif
#define EVERYTHING 255

mtype = { STEP, CLOSE, IDLE, IN_FLIGHT, ORPHANED, READY }

// The transitions of a slot's state, without those for spares.
#define follows(from, to) ( \
  (from == IDLE && to == IN_FLIGHT) || \
  (from == IN_FLIGHT && (to == READY || to == ORPHANED)) || \
  (from == ORPHANED && (to == IN_FLIGHT || to == READY || to == IDLE)) || \
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
bool ended;             // the pool has closed

// -- the bells ---------------------------------------------------------------------------------------------------------

#define POOL WORKERS  // the index of the pool's bell; that of worker w is w

typedef Bell {
  byte notified;
  byte target;
  bool asleep;
}
Bell bells[WORKERS + 1];

inline add(b, n) { bells[b].notified = bells[b].notified + n }

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
    :: true  // the goal is reached, or the wait returns early
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
  :: nothing_to_do -> heard = bells[me].notified; wait(me, heard + 1, false)
  :: else
  fi;
#else
  heard = bells[me].notified;
  if
  :: nothing_to_do -> wait(me, heard + 1, false)
  :: else
  fi;
#endif
  heard = 0
}

#ifdef FAREWELL_UNPUBLISHED
#define finished closed
#else
#define finished (closed && unpublished == 0 && kept == 0)
#endif

proctype Worker(byte me) {
  byte slot, unpublished, kept, heard;
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
    :: unpublished > 0 -> publish_results()  // after a slow step, or when nothing is left to do
#ifdef KEEPS
#ifdef THROUGH_UNRUNG
    :: kept > 0 && (visible_commands[me] > 0 || closed) -> ring_for_results()
#else
    :: kept > 0 -> ring_for_results()
#endif
#endif
    :: finished || stopped[me] -> break
    :: is_through && !closed && !stopped[me] -> wait_for_command()
    od
  } unless { killed[me] };
  alive[me] = false
}

// Kills one worker at any time, or none.
proctype Killer() {
  if
  :: killed[0] = true
  :: killed[1] = true
  :: skip
  fi
}

// -- the pool: sending -------------------------------------------------------------------------------------------------

inline push(w, op, slot) {
  assert(nfull(commands[w]));
  commands[w] ! op, slot;
  outstanding[w]++;
  pushed[w] = true
}

inline publish(w) {
  if
  :: pushed[w] && !dead[w] && (running[w] || number_running < MAX_RUNNING) ->
#ifdef POOL_RINGS_FIRST
     d_step { add(w, 1); wake(w) };
#endif
     d_step {
       number_running = number_running + (1 - running[w]);
       running[w] = true;
       pushed[w] = false;
       visible_commands[w] = len(commands[w])
     };
#ifndef POOL_RINGS_FIRST
     d_step { add(w, 1); wake(w) }
#endif
  :: pushed[w] && !dead[w] && !running[w] && number_running >= MAX_RUNNING ->
     if
     :: !(turns ?? [eval(w)]) -> turns ! w
     :: else
     fi
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

// -- the pool: receiving -----------------------------------------------------------------------------------------------

inline accept(w) {
  visible_results[w]--;
  results[w] ? op, slot;
  outstanding[w]--;
  if
  :: op == STEP ->
     assert(state[slot] == IN_FLIGHT && owner(slot) == w);  // each command is answered once
     become(slot, READY); ready++; in_flight--
  :: op == CLOSE ->
     assert(answer_awaited[w] && outstanding[w] == 0);  // this is the worker's last answer
     answer_awaited[w] = false; answered[w] = true; awaited--; answers++
  fi;
  op = 0; slot = 0
}

inline drain_ring(w) {
  d_step {
    do
    :: visible_results[w] > 0 -> accept(w)
    :: else -> break
    od
  };
  if
  :: outstanding[w] == 0 -> finish_turn(w)
  :: else
  fi
}

inline drain() {
  drain_ring(0);
  drain_ring(1)
}

inline note_death(w) {
  if
  :: gone[w] ->
     d_step {
       assert(visible_results[w] == 0);   // the pool has received all published results
       assert(killed[w] || answered[w]);  // a worker that ends by itself has answered
       gone[w] = false; dead[w] = true; newly_dead++
     };
#ifndef TURN_KEPT
     finish_turn(w)
#endif
  :: else
  fi
}

inline find_dead() {
#ifdef POLL_LATE
  drain();
#endif
  gone[0] = !alive[0] && !dead[0];  // poll checks one descriptor after the other
  gone[1] = !alive[1] && !dead[1];
  if
  :: gone[0] || gone[1] ->
#ifndef POLL_LATE
     drain();
#endif
     note_death(0);
     note_death(1)
  :: else
  fi
}

#ifdef TURNS_UNHEARD
#define each (awaited > 0)
#else
#define each (awaited > 0 || len(turns) > 0)
#endif

inline count_needed(wanted) {
  d_step {
    if
    :: each -> needed = 1
    :: else ->
       needed = wanted - ready;
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

#define attention (answers > 0 || newly_dead > 0)
#define unnoticed_death ((!alive[0] && !dead[0]) || (!alive[1] && !dead[1]))

// Hub::wait: until enough is ready, or an answer or a death needs attention.
inline wait_for(wanted) {
  if
  :: find_dead()  // if the last look was a slice ago
  :: skip
  fi;
  do
  ::
#ifdef HUB_HEARS_LATE
     drain();
     heard = bells[POOL].notified;
#else
     heard = bells[POOL].notified;
     drain();
#endif
     if
     :: ready >= wanted || attention -> break
     :: else
     fi;
     count_needed(wanted);
     wait(POOL, heard + needed, unnoticed_death);
#ifndef UNPOLLED
     if
     :: bells[POOL].notified < heard + needed -> find_dead()
     :: else
     fi
#endif
  od;
  atomic { heard = 0; needed = 0 }
}

// -- the pool: its owner -----------------------------------------------------------------------------------------------

#ifdef SEND_BUSY
#define may_be_sent(slot) (state[slot] != READY && !dead[owner(slot)])
#else
#define may_be_sent(slot) (state[slot] == IDLE && !dead[owner(slot)])
#endif

// Sends a command to each idle slot of the workers that are not dead.
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

// Exchange::attend: takes the answers, and drops the commands of dead workers.
inline attend() {
  d_step {
    answers = 0;
    newly_dead = 0;
    for (slot : 0 .. ALL - 1) {
      if
      :: state[slot] == IN_FLIGHT && dead[owner(slot)] ->
         become(slot, ORPHANED); become(slot, IDLE); in_flight--
      :: else
      fi
    }
    slot = 0;
    for (w : 0 .. WORKERS - 1) {
      if
      :: answer_awaited[w] && dead[w] -> answer_awaited[w] = false; awaited--
      :: else
      fi
    }
    w = 0
  }
}

inline take() {
  d_step {
    for (slot : 0 .. ALL - 1) {
      if
      :: state[slot] == READY -> become(slot, IDLE)
      :: else
      fi
    }
    slot = 0;
    ready = 0
  }
}

inline say_close(w) {
  if
  :: alive[w] ->
     d_step { push(w, CLOSE, 0); answer_awaited[w] = true; awaited++ };
     publish(w)
  :: else
  fi
}

inline stop(w) {
  stopped[w] = true;
  d_step { add(w, 1); wake(w) }
}

proctype Pool() {
  mtype state[ALL] = IDLE, op;
  byte in_flight, ready, outstanding[WORKERS], awaited, answers, newly_dead, number_running;
  bool pushed[WORKERS], running[WORKERS], gone[WORKERS], dead[WORKERS], answer_awaited[WORKERS], answered[WORKERS];
  chan turns = [WORKERS] of { byte };
  byte round, wanted, heard, needed, slot, w, next;

  do
  :: round < ROUNDS && !(dead[0] && dead[1]) ->
     send();
     select(wanted : 1 .. in_flight + ready);
     wait_for(wanted);
     d_step { wanted = 0; round++ };
     attend();
     take()
  :: true -> break  // closes the pool at any time, also with results in flight
  od;
  round = 0;

#ifdef ABANDON
  stop(0);
  stop(1);
#else
  say_close(0);
  say_close(1);
#ifndef CLOSE_UNDRAINED
  do
  :: awaited > 0 -> wait_for(EVERYTHING); attend()
  :: else -> break
  od;
#endif
  assert(answered[0] || !alive[0]);
  assert(answered[1] || !alive[1]);
#endif
  ended = true
}

init {
  atomic {
    alive[0] = true; run Worker(0);
    alive[1] = true; run Worker(1);
    run Killer();
    run Pool()
  }
}

ltl ends { <> ended }
