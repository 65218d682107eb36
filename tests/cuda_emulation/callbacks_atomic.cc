// What g++ -fsanitize=thread makes of atomic operations: the check, and the operation itself, always in the strongest
// order. Kernels' only ever add, maximise and minimise integers; the rest is for host code in their files (reference
// counts). Macros, since each width has functions of its own by name.

#include "tests/cuda_emulation/sanitizers.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <cstdint>

#include "tests/cuda_emulation/shadow.h"

namespace {

template <typename T>
void CheckLoad(const volatile T* at) {
  metp::emulation::Touch<sizeof(T), false, true>(const_cast<const T*>(at));
}
template <typename T>
void CheckStore(const volatile T* at) {
  metp::emulation::Touch<sizeof(T), true>(const_cast<const T*>(at));
}
template <typename T>
void CheckUpdate(const volatile T* at) {
  metp::emulation::Touch<sizeof(T), true, true>(const_cast<const T*>(at));
}

}  // namespace

#define UPDATE(bits, name)                                                                              \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t* at, uint##bits##_t value, int) { \
    CheckUpdate(at);                                                                                    \
    return __atomic_##name(at, value, __ATOMIC_SEQ_CST);                                                \
  }

#define COMPARE(bits, name)                                                                                \
  int __tsan_atomic##bits##_compare_exchange_##name(volatile uint##bits##_t* at, uint##bits##_t* expected, \
                                                    uint##bits##_t value, int, int) {                      \
    CheckUpdate(at);                                                                                       \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
  }

#define WIDTH(bits)                                                                                       \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* at, int) {                     \
    CheckLoad(at);                                                                                        \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                         \
  }                                                                                                       \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t* at, uint##bits##_t value, int) {              \
    CheckStore(at);                                                                                       \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                        \
  }                                                                                                       \
  uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t* at, uint##bits##_t value, int) { \
    CheckUpdate(at);                                                                                      \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                              \
  }                                                                                                       \
  uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                              \
      volatile uint##bits##_t* at, uint##bits##_t expected, uint##bits##_t value, int, int) {             \
    CheckUpdate(at);                                                                                      \
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
    return expected;                                                                                      \
  }                                                                                                       \
  UPDATE(bits, fetch_add)                                                                                 \
  UPDATE(bits, fetch_sub)                                                                                 \
  UPDATE(bits, fetch_and)                                                                                 \
  UPDATE(bits, fetch_or)                                                                                  \
  UPDATE(bits, fetch_xor)                                                                                 \
  UPDATE(bits, fetch_nand)                                                                                \
  COMPARE(bits, strong)                                                                                   \
  COMPARE(bits, weak)

extern "C" {

WIDTH(8)
WIDTH(16)
WIDTH(32)
WIDTH(64)

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

}  // extern "C"

#undef WIDTH
#undef COMPARE
#undef UPDATE

#endif
