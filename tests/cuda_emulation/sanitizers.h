#pragma once

// What the engine itself is compiled with. (Kernels are not asked: in a plain build they are instrumented for the thread
// sanitizer, whose callbacks are this library's.)

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include <cstddef>

namespace metp::emulation {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kWatched = false;  // the sanitizer watches memory instead
#else
inline constexpr bool kWatched = true;
#endif

/// For the address sanitizer: nothing may touch these bytes, or may again.
inline void Poison([[maybe_unused]] const void* at, [[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(at, bytes);
#endif
}
inline void Unpoison([[maybe_unused]] const void* at, [[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(at, bytes);
#endif
}

}  // namespace metp::emulation
