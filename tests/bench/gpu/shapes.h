#pragma once

// What is measured: one rank's part of Llama-3-8B in a ring of eight at 131,072 tokens, or shapes so small that an
// emulated device gets through them. Symbols as in metp.md.

#include <cstdint>

namespace metp::gpu_bench {

struct Shapes {
  int64_t n = 16384;  // rows of a rank
  int p = 8, groups = 8;
  int64_t h = 4096, f = 14336, V = 128256;
  int heads = 32, kv_heads = 8, d = 128;
  int layers = 2;            // of the training step
  int64_t tile_rows = 4096;  // of MLP, loss and tiled attention
  int64_t square = 8192;     // side of the product that is the ceiling
  int64_t copy_bytes = int64_t{1} << 30;
  int rounds = 25;  // timed ones, of which the median counts
  int steps = 20;   // training steps, likewise
  double link_bytes_per_second = 200e9;

  int64_t wq() const { return int64_t{heads} / groups * d; }     // columns of a head group's queries
  int64_t wk() const { return int64_t{kv_heads} / groups * d; }  // and of its keys
};

inline Shapes QuickShapes() {
  Shapes s;
  s.n = 32;
  s.h = 256;
  s.f = 256;
  s.V = 272;
  s.heads = 16;
  s.kv_heads = 8;
  s.d = 16;
  s.layers = 1;
  s.tile_rows = 16;
  s.square = 64;
  s.copy_bytes = 1 << 16;
  s.rounds = 2;
  s.steps = 1;
  return s;
}

}  // namespace metp::gpu_bench
