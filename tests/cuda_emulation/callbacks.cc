// What g++ -fsanitize=thread calls for each access of instrumented code: kernels, and the host code in their files. Not
// compiled with it itself. Under a sanitizer of its own the build has the sanitizer's.

#include "tests/cuda_emulation/sanitizers.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <cstring>

#include "tests/cuda_emulation/shadow.h"

using metp::emulation::Touch;
using metp::emulation::TouchRange;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void __tsan_read1(void* at) { Touch<1, false>(at); }
void __tsan_read2(void* at) { Touch<2, false>(at); }
void __tsan_read4(void* at) { Touch<4, false>(at); }
void __tsan_read8(void* at) { Touch<8, false>(at); }
void __tsan_read16(void* at) { Touch<16, false>(at); }
void __tsan_write1(void* at) { Touch<1, true>(at); }
void __tsan_write2(void* at) { Touch<2, true>(at); }
void __tsan_write4(void* at) { Touch<4, true>(at); }
void __tsan_write8(void* at) { Touch<8, true>(at); }
void __tsan_write16(void* at) { Touch<16, true>(at); }

// "volatile" accesses, where the compiler is told to tell them apart.
void __tsan_volatile_read1(void* at) { Touch<1, false>(at); }
void __tsan_volatile_read2(void* at) { Touch<2, false>(at); }
void __tsan_volatile_read4(void* at) { Touch<4, false>(at); }
void __tsan_volatile_read8(void* at) { Touch<8, false>(at); }
void __tsan_volatile_read16(void* at) { Touch<16, false>(at); }
void __tsan_volatile_write1(void* at) { Touch<1, true>(at); }
void __tsan_volatile_write2(void* at) { Touch<2, true>(at); }
void __tsan_volatile_write4(void* at) { Touch<4, true>(at); }
void __tsan_volatile_write8(void* at) { Touch<8, true>(at); }
void __tsan_volatile_write16(void* at) { Touch<16, true>(at); }

// Of types that need not be aligned to their size.
void __tsan_unaligned_read2(void* at) { TouchRange(at, 2, false); }
void __tsan_unaligned_read4(void* at) { TouchRange(at, 4, false); }
void __tsan_unaligned_read8(void* at) { TouchRange(at, 8, false); }
void __tsan_unaligned_read16(void* at) { TouchRange(at, 16, false); }
void __tsan_unaligned_write2(void* at) { TouchRange(at, 2, true); }
void __tsan_unaligned_write4(void* at) { TouchRange(at, 4, true); }
void __tsan_unaligned_write8(void* at) { TouchRange(at, 8, true); }
void __tsan_unaligned_write16(void* at) { TouchRange(at, 16, true); }

void __tsan_read_range(void* at, size_t bytes) { TouchRange(at, bytes, false); }
void __tsan_write_range(void* at, size_t bytes) { TouchRange(at, bytes, true); }

void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  TouchRange(from, bytes, false);
  TouchRange(to, bytes, true);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  TouchRange(from, bytes, false);
  TouchRange(to, bytes, true);
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  TouchRange(to, bytes, true);
  return std::memset(to, value, bytes);
}

}  // extern "C"

#endif
