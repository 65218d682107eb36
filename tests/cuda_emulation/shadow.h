#pragma once

// The check of one access, in line for the callbacks. Each word of four bytes has four cells: the last write of its lower
// and of its upper half (elements of bf16 have different writers), and two reads. A cell is one number (here.h), read and
// written whole, so streams on several host threads need no lock; what they lose to each other is a race not found.
//
// Of reads that nothing orders two are kept that differ in warp or block, so that at least one of them is not ordered
// before a writer that forgot a barrier. A read that has happened before the present one is forgotten: who is ordered
// behind this one is ordered behind that one too. (After FastTrack, Flanagan and Freund, 2009.)

#include <cstring>

#include "tests/cuda_emulation/address_space.h"
#include "tests/cuda_emulation/here.h"
#include "tests/cuda_emulation/operations.h"

namespace metp::emulation {

// What does not fit an allocation, was not written, or is no device memory: found and reported out of line.
void TouchUnwatched(uintptr_t at, size_t bytes, bool write);
void TouchFromHost(uintptr_t at, size_t bytes, bool write);
void ReportStates(uintptr_t at, const uint8_t* states, size_t bytes, bool write);
void ReportRace(uintptr_t at, uint64_t mine, bool write, uint64_t other, bool other_wrote);
void ReportMisaligned(uintptr_t at, size_t bytes, bool write);
/// Marks written what is inside, reports the rest.
void MarkWritten(uintptr_t at, uint8_t* states, size_t bytes);
/// Any number of bytes at any address.
void TouchRange(const void* from, size_t bytes, bool write);

inline bool OrderedElsewhere(uint64_t other) {
  const Actor& actor = ActorAt(other >> kActorShift);
  if (actor.operation == here.operation) return actor.block == here.block;
  return actor.stream < here.slots && here.clock[actor.stream] >= actor.operation;
}

/// Whether the access that `other` stands for has happened before one now.
inline bool Ordered(uint64_t other) {
  const uint64_t difference = other ^ here.stamp;
  if ((difference >> kActorShift) != 0) return OrderedElsewhere(other);
  if ((difference & kThreadMask) == 0) return true;
  const uint32_t tick = static_cast<uint32_t>(other >> kTickShift & kMaxTick);
  if (tick <= here.block_floor) return true;
  if ((difference & kWarpMask) != 0) return false;
  return tick <= here.warp_floor || (here.known != nullptr && tick <= here.known[other >> kThreadShift & 31]);
}

inline bool Races(uint64_t other, uint64_t mine) {
  return (other & mine & kAllBytes) != 0 && (other & mine & kAtomicBit) == 0 && !Ordered(other);
}

inline uint64_t LoadCell(const uint64_t* cell) { return __atomic_load_n(cell, __ATOMIC_RELAXED); }
inline void StoreCell(uint64_t* cell, uint64_t value) { __atomic_store_n(cell, value, __ATOMIC_RELAXED); }

/// Keeps a read that neither of two others is ordered behind.
inline void KeepConcurrent(uint64_t* reads, uint64_t first, uint64_t second, uint64_t mine) {
  const auto who = [](uint64_t cell) { return cell >> kActorShift << kActorShift | (cell & kWarpMask); };
  if (who(first) == who(second) && who(first) != who(mine)) StoreCell(&reads[1], mine);
}

inline void KeepRead(uint64_t* reads, uint64_t mine) {
  const uint64_t first = LoadCell(&reads[0]), second = LoadCell(&reads[1]);
  if (first == mine || second == mine) return;
  const auto replaced = [mine](uint64_t old) {
    return old == 0 || ((old & ~mine & kAllBytes) == 0 && Ordered(old));
  };
  if (replaced(first)) {
    StoreCell(&reads[0], mine);
    if (second != 0 && replaced(second)) StoreCell(&reads[1], 0);
  } else if (replaced(second)) {
    StoreCell(&reads[1], mine);
  } else {
    KeepConcurrent(reads, first, second, mine);
  }
}

inline void ReadWord(uint64_t* cells, uint64_t mine, uintptr_t at) {
  const uint64_t low = LoadCell(&cells[0]), high = LoadCell(&cells[1]);
  if (low != 0 && Races(low, mine)) ReportRace(at, mine, false, low, true);
  if (high != low && high != 0 && Races(high, mine)) ReportRace(at, mine, false, high, true);
  KeepRead(cells + 2, mine);
}

inline void WriteWord(uint64_t* cells, uint64_t mine, uintptr_t at) {
  const uint64_t low = LoadCell(&cells[0]), high = LoadCell(&cells[1]);
  if (low != 0 && Races(low, mine)) ReportRace(at, mine, true, low, true);
  if (high != low && high != 0 && Races(high, mine)) ReportRace(at, mine, true, high, true);
  for (int i = 2; i < kCellsPerWord; ++i) {
    const uint64_t read = LoadCell(&cells[i]);
    if (read == 0) continue;
    if (Races(read, mine)) ReportRace(at, mine, true, read, false);
    if ((read & ~mine & kAllBytes) == 0) StoreCell(&cells[i], 0);  // who is behind the write is behind it too
  }
  if ((mine & 0x3) != 0) StoreCell(&cells[0], mine);
  if ((mine & 0xc) != 0) StoreCell(&cells[1], mine);
}

template <size_t kBytes>
inline bool AllWritten(const uint8_t* states) {
  static constexpr uint64_t kPattern = 0x0202020202020202u;
  if constexpr (kBytes == 16) {
    return AllWritten<8>(states) && AllWritten<8>(states + 8);
  } else {
    uint64_t found = 0;
    std::memcpy(&found, states, kBytes);
    return found == (kPattern & (~uint64_t{0} >> (64 - 8 * kBytes)));
  }
}

/// An access of 1, 2, 4, 8 or 16 bytes, aligned to its size.
template <size_t kBytes, bool kWrite, bool kAtomic = false>
inline void Touch(const void* to) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(to);
  uint8_t* states;
  uint64_t* cells;
  if (at - kDeviceBase < kDeviceBytes) {
    states = DeviceStates(at);
    cells = DeviceCells(at);
  } else if (at - here.shared_base < kSharedBytes) {
    states = here.shared_states + (at - here.shared_base);
    cells = here.shared_cells + (at - here.shared_base) / 4 * kCellsPerWord;
  } else {
    if (here.in_kernel && at - here.stack_low >= here.stack_bytes) TouchUnwatched(at, kBytes, kWrite);
    return;
  }
  if (here.stamp == 0) return TouchFromHost(at, kBytes, kWrite);
  if (at % kBytes != 0) {
    ReportMisaligned(at, kBytes, kWrite);
    return TouchRange(to, kBytes, kWrite);
  }
  if (!AllWritten<kBytes>(states)) {
    if (kWrite) MarkWritten(at, states, kBytes);
    if (!kWrite || kAtomic) ReportStates(at, states, kBytes, kWrite);
  }
  constexpr uint64_t kMask = kBytes < 4 ? (1 << kBytes) - 1 : kAllBytes;
  const uint64_t mine = here.stamp | (kAtomic ? kAtomicBit : 0) | kMask << (kBytes < 4 ? at % 4 : 0);
  for (size_t i = 0; i < (kBytes + 3) / 4; ++i, cells += kCellsPerWord) {
    if (kWrite) {
      WriteWord(cells, mine, at + 4 * i);
    } else {
      ReadWord(cells, mine, at + 4 * i);
    }
  }
}

}  // namespace metp::emulation
