// Two connected stream sockets, like those of a pool and a worker.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include "check.hpp"

struct SocketPair {
  SocketPair() { CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0); }
  ~SocketPair() {
    for (int end : ends) close(end);
  }
  void close_other() {
    close(ends[1]);
    ends[1] = -1;
  }

  int ends[2];  // the pool's end, the worker's end
};
