#include "tests/cuda_emulation/shadow.h"

#include <algorithm>

#include "tests/cuda_emulation/engine.h"
#include "tests/cuda_emulation/sanitizers.h"

namespace metp::emulation {
namespace {

/// Part of a range of addresses, all of device memory or all of the block's shared memory.
struct Piece {
  uintptr_t at;
  size_t bytes;
  uint8_t* states;
  uint64_t* cells;  // of the word that holds `at`
};

bool Locate(uintptr_t at, size_t bytes, Piece& piece) {
  piece = {at, bytes, nullptr, nullptr};
  if (at - kDeviceBase < kDeviceBytes) {
    piece.states = DeviceStates(at);
    piece.cells = DeviceCells(at);
  } else if (at - here.shared_base < kSharedBytes) {
    const uintptr_t offset = at - here.shared_base;
    piece.bytes = std::min(bytes, kSharedBytes - offset);
    piece.states = here.shared_states + offset;
    piece.cells = here.shared_cells + offset / 4 * kCellsPerWord;
  }
  return piece.states != nullptr;
}

bool AllAre(const uint8_t* states, size_t bytes, uint8_t state) {
  return bytes == 0 || (states[0] == state && std::memcmp(states, states + 1, bytes - 1) == 0);
}

void TouchWords(const Piece& piece, bool write) {
  uint64_t* cells = piece.cells;
  const uintptr_t end = piece.at + piece.bytes;
  for (uintptr_t at = piece.at; at < end; cells += kCellsPerWord) {
    const uintptr_t next = std::min((at & ~uintptr_t{3}) + 4, end);
    const uint64_t mine = here.stamp | ((uint64_t{1} << (next - at)) - 1) << at % 4;
    if (write) {
      WriteWord(cells, mine, at);
    } else {
      ReadWord(cells, mine, at);
    }
    at = next;
  }
}

}  // namespace

__thread Here here = {};

void MarkWritten(uintptr_t at, uint8_t* states, size_t bytes) {
  bool outside = false;
  for (size_t i = 0; i < bytes; ++i) {
    outside |= states[i] == kOutside;
    if (states[i] == kUnwritten) states[i] = kWritten;
  }
  if (outside) ReportStates(at, states, bytes, true);
}

void TouchRange(const void* from, size_t bytes, bool write) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(from);
  Piece piece;
  if (bytes == 0) return;
  if (!Locate(at, bytes, piece)) {
    if (here.in_kernel && at - here.stack_low >= here.stack_bytes) TouchUnwatched(at, bytes, write);
    return;
  }
  if (here.stamp == 0) return TouchFromHost(at, bytes, write);
  if (!AllAre(piece.states, piece.bytes, kWritten)) {
    if (write) {
      MarkWritten(at, piece.states, piece.bytes);
    } else {
      ReportStates(at, piece.states, piece.bytes, write);
    }
  }
  TouchWords(piece, write);
}

bool Watches() { return kWatched; }

void Read(const void* from, size_t bytes) {
  if (kWatched) TouchRange(from, bytes, false);
}

void Write(void* to, size_t bytes) {
  if (kWatched) TouchRange(to, bytes, true);
}

}  // namespace metp::emulation
