#pragma once

// One job cut over p devices as a peer cuts it. Letters as in metp.md. Pure.
//
// Sources. TP: Shoeybi et al. 2019 (Megatron-LM). TP + SP: Korthikanti et al. 2022. Ulysses: Jacobs et al.
// 2023. Head chunks: ALST (Bekman et al. 2025), UPipe (Ghadia et al. 2026). Ring: Liu et al. 2023, with
// zigzag. Sharded state: ZeRO-3 (Rajbhandari et al. 2020), FSDP2 as in torchtitan.

#include <algorithm>
#include <cstdint>

#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"
#include "metp/v1/profile.pb.h"
#include "worker/model/config.h"

namespace metp {

enum class Peer { kTensor, kTensorSequence, kUlysses, kUlyssesChunks, kRing };

/// What a peer does against its memory: nothing, or what METP's plan does.
struct PeerMeans {
  bool equal = false;
  v1::ParallelSpec::Recompute recompute = v1::ParallelSpec::RECOMPUTE_NONE;  // read where equal
  int64_t tile_rows = 0;                                                     // of MLP and loss; 0: whole
  bool offload_activations = false;  // what layers keep goes to host memory
  bool offload_optimizer = false;    // masters and moments do

  /// X and what attention needs are made again in backward; METP's `none` keeps Q, K, V and X2.
  bool remakes_projections() const { return equal && recompute != v1::ParallelSpec::RECOMPUTE_NONE; }
  bool remakes_attention() const { return equal && recompute == v1::ParallelSpec::RECOMPUTE_FULL; }
};

struct PeerShape {
  PeerShape(Peer method, const PeerMeans& how, const v1::JobSpec& job, int degree,
            const v1::DeviceProfile& profile)
      : peer(method),
        means(how),
        c(MakeModelConfig(job.model())),
        p(degree),
        b(job.train().micro_batch()),
        s(job.data().sequence_length()),
        S(b * s),
        n(b * Ceil(s)),
        e(profile.precision() == v1::DeviceProfile::PRECISION_BF16 ? 2 : 4),
        state_bytes(e == 2 ? 6 : 8),
        optimizer_bytes(e == 2 ? 12 : 8) {}

  bool tensor_parallel() const { return peer == Peer::kTensor || peer == Peer::kTensorSequence; }
  bool ulysses() const { return peer == Peer::kUlysses || peer == Peer::kUlyssesChunks; }
  bool by_heads() const { return peer != Peer::kRing; }  // a device has whole heads, of all tokens

  int64_t Ceil(int64_t size) const { return (size + p - 1) / p; }
  /// Elements of all tokens x `width` that a device has: all tokens of a p-th of the width, or the own tokens
  /// of all of it.
  int64_t Share(int64_t width) const { return tensor_parallel() ? S * Ceil(width) : n * width; }

  /// Rows of the residual stream X, X2 and their gradients: TP keeps them whole on every device.
  int64_t stream_rows() const { return peer == Peer::kTensor ? S : n; }
  /// Rows that run through a device's MLP and LM head, and the widths of those there.
  int64_t rows() const { return tensor_parallel() ? S : n; }
  int64_t ffn() const { return tensor_parallel() ? Ceil(c.f) : c.f; }
  int64_t vocab() const { return tensor_parallel() ? Ceil(c.V) : c.V; }
  int64_t tile() const {
    return means.equal && means.tile_rows > 0 ? std::min(rows(), means.tile_rows) : rows();
  }

  int64_t products() const { return c.llama ? 3 : 2; }  // m
  int64_t q_width() const { return int64_t{c.a} * c.d; }
  /// Of K and V together. Where there are fewer key/value heads than devices each has a copy of its own.
  int64_t kv_width() const { return 2 * int64_t{by_heads() ? std::max(c.g, p) : c.g} * c.d; }
  /// Rounds of attention by head chunks: each round is one query head a device (UPipe's U = p).
  int64_t chunks() const { return peer == Peer::kUlyssesChunks ? std::max(1, c.a / p) : 1; }
  /// Of one round: p query heads, and one key/value head a device.
  int64_t chunk_q() const { return peer == Peer::kUlyssesChunks ? int64_t{p} * c.d : q_width(); }
  int64_t chunk_kv() const { return peer == Peer::kUlyssesChunks ? 2 * int64_t{p} * c.d : kv_width(); }

  // Parameters: of one layer's matrices and vectors, of the tables (tokens, positions, LM head), of
  // everything.
  int64_t layer_matrices() const {
    return c.h * (2 * q_width() + 2 * int64_t{c.g} * c.d) + products() * c.h * c.f;
  }
  int64_t layer_vectors() const {
    return c.llama ? 2 * c.h : 6 * c.h + q_width() + 2 * int64_t{c.g} * c.d + c.f;
  }
  int64_t final_vectors() const { return (c.llama ? 1 : 2) * c.h; }
  int64_t tables() const { return ((c.tied ? 1 : 2) * c.V + c.max_positions) * c.h; }

  const Peer peer;
  const PeerMeans means;
  const ModelConfig c;
  const int p;
  const int64_t b, s, S, n;  // S: all tokens of a micro-batch; n: those of one device
  const int64_t e;           // bytes of a weight or activation at work
  // Of a parameter: compute weight and gradient; master (where that is not the compute weight) and two moments. At
  // work on the host the master is one of its own.
  const int64_t state_bytes, optimizer_bytes;
};

}  // namespace metp
