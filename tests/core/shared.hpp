// An object in memory that forked children share.
#pragma once

#include <sys/mman.h>

#include <new>

#include "check.hpp"

template <class T>
class Shared {
 public:
  Shared() : memory_(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    CHECK(memory_ != MAP_FAILED);
    new (memory_) T{};
  }
  ~Shared() { munmap(memory_, sizeof(T)); }

  T& operator*() const { return *static_cast<T*>(memory_); }
  T* operator->() const { return static_cast<T*>(memory_); }

 private:
  void* memory_;
};
