// Four moments of a step compete for the peak: the loss, the MLP's and attention's gradients in the last
// layer (whose input and all earlier layers are still kept), and the embedding's gradient at the end. Left
// out, of all peers: norm statistics (8 bytes a token), communication buffers of the library, fragmentation
// beyond what the profile reserves.

#include "server/planner/peer_memory.h"

#include <algorithm>

namespace metp {

namespace {

constexpr int64_t kSum = 4;  // fp32, of log-sum-exp, logits and sums of gradients

/// O and its log-sum-exp: what attention need not be run again for.
int64_t AttentionResult(const PeerShape& x) { return x.e * x.Share(x.q_width()) + kSum * x.Share(x.c.a); }

/// What one layer keeps from forward to backward.
///
/// Without recomputation, per token: Korthikanti et al. 2022, section 4.1, count in units of s b h bytes at
/// two bytes an element: QKV's input 2 (N1), Q and K 4, V 2, the output projection's input 2 (O), the norms'
/// inputs 4 (X, X2), W1's input 2 (N2), GELU's input 8 and output 8; its 34 less the dropout masks 2, there
/// being none, is 32. FlashAttention replaces its 5 a s/h by log-sum-exp, 4 a bytes. Here h becomes a d or g
/// d where heads say so (GQA), and 8 + 8 becomes m f elements: a gated MLP with a fused SwiGLU keeps gate, up
/// and their product (eager code one more; the fused one is kind). Of these TP divides all but X, N1, X2, N2:
/// its 8 + 24/p; the others all.
int64_t KeptInALayer(const PeerShape& x) {
  const int64_t stream = x.e * x.stream_rows() * x.c.h;
  if (x.means.remakes_attention()) return stream;
  const int64_t qkv = x.e * (x.Share(x.q_width()) + x.Share(x.kv_width()));
  if (x.means.remakes_projections()) return stream + AttentionResult(x);  // X; O, log-sum-exp
  if (x.means.equal) return 2 * stream + qkv + AttentionResult(x);        // X, X2; Q, K, V; O, log-sum-exp
  // Ulysses: attention keeps O by heads, the output projection the copy by tokens that all-to-all made.
  const int64_t second = x.ulysses() ? x.e * x.Share(x.q_width()) : 0;
  return 4 * stream + qkv + AttentionResult(x) + second + x.e * x.products() * x.Share(x.c.f);
}

/// Logits in fp32, softmax and gradient in place, and the gradient's copy for the products; N and dN beside
/// them.
int64_t LossAtWork(const PeerShape& x) {
  const int64_t logits = (kSum + (x.e == kSum ? 0 : x.e)) * x.tile() * x.vocab();
  const int64_t stream = x.e * x.stream_rows() * x.c.h;  // X of the final norm
  if (x.peer != Peer::kTensorSequence) return logits + 3 * stream;
  // Gathered N and the partial sums of dN are of all tokens; tile by tile only a tile's are, beside the own N
  // and dN.
  const int64_t gathered = 2 * x.e * x.tile() * x.c.h;
  return logits + gathered + (x.means.equal ? 3 : 1) * stream;
}

int64_t MlpAtWork(const PeerShape& x) {
  const int64_t stream = x.e * x.stream_rows() * x.c.h, m = x.products();
  const bool gathers = x.peer == Peer::kTensorSequence;
  if (!x.means.equal) {
    const int64_t units = x.e * x.Share(x.c.f);
    if (!gathers) return 2 * stream + m * units;  // dY, dN; gradients of what is between the products
    // First all of dY (for W2), then all of N and the partial sums of dN (for W1).
    const int64_t all = x.e * x.S * x.c.h;
    return stream + std::max(all + m * units, 2 * all + (m - 1) * units);
  }
  // A tile's values and gradients; N2, dY, dN; X2 and attention's result where they had to be made again.
  int64_t bytes = 2 * m * x.e * x.tile() * x.ffn() + 3 * stream;
  if (gathers) bytes += 2 * x.e * x.tile() * x.c.h;
  if (x.means.remakes_projections()) bytes += stream;
  if (x.means.remakes_attention()) bytes += AttentionResult(x);
  return bytes;
}

/// FlashAttention's backward: dO, dQ, dK, dV, and dQ's sum in fp32.
int64_t Kernel(const PeerShape& x, int64_t q, int64_t kv) {
  return x.e * (2 * q + kv) + (x.e == kSum ? 0 : kSum * q);
}

int64_t AttentionAtWork(const PeerShape& x) {
  const int64_t stream = x.e * x.stream_rows() * x.c.h;
  const int64_t q = x.Share(x.chunk_q()), kv = x.Share(x.chunk_kv());
  int64_t bytes = stream;              // the gradient that passes attention by
  if (x.means.equal) bytes += stream;  // N1 again
  if (x.means.remakes_projections()) bytes += x.e * (q + kv);
  if (x.means.remakes_attention()) bytes += AttentionResult(x);
  const int64_t all = x.e * x.S * x.c.h;
  switch (x.peer) {
    case Peer::kTensor:  // dN's partial sums are whole
      return bytes + std::max(Kernel(x, q, kv), x.e * (q + kv) + all);
    case Peer::kTensorSequence:  // and N is gathered beside them
      return bytes + std::max(Kernel(x, q, kv), x.e * (q + kv) + 2 * all);
    case Peer::kUlysses:  // all-to-all of dQ, dK, dV: from one buffer into another
      return bytes + std::max(Kernel(x, q, kv), 2 * x.e * (q + kv));
    case Peer::kUlyssesChunks:  // dO and dN by tokens are there for all rounds
      return bytes + x.e * x.Share(x.q_width()) + stream + std::max(Kernel(x, q, kv), 2 * x.e * (q + kv));
    case Peer::kRing:  // dO, dQ's sum; K, V at work and arriving; sums of dK, dV likewise, in fp32
      return bytes + (x.e + kSum) * q + 2 * (x.e + kSum) * kv;
  }
  return bytes;
}

/// Whose state a device holds. TP: vectors whole on every device; the position table shared out, though Megatron
/// keeps it whole.
int64_t Parameters(const PeerShape& x) {
  const int64_t matrices = x.c.layers * x.layer_matrices() + x.tables();
  const int64_t vectors = x.c.layers * x.layer_vectors() + x.final_vectors();
  return x.tensor_parallel() ? x.Ceil(matrices) + vectors : x.Ceil(matrices + vectors);
}

}  // namespace

std::map<std::string, int64_t> PeerMemory(const PeerShape& x, int64_t workspace_bytes) {
  const int64_t state = (x.state_bytes + (x.means.offload_optimizer ? 0 : x.optimizer_bytes)) * Parameters(x);
  // Offloaded: the layer at work and the one that arrives or leaves.
  const int64_t kept = (x.means.offload_activations ? std::min(2, x.c.layers) : x.c.layers) * KeptInALayer(x);
  // FSDP: a layer's weights, the next one's arriving (or nothing would overlap), and a layer's gradients.
  const bool gathers = !x.tensor_parallel() && x.p > 1;
  const int64_t layer = gathers ? 3 * x.e * x.layer_matrices() : 0;
  const int64_t head = gathers ? 2 * x.e * x.c.V * x.c.h : 0;
  const int64_t tables = gathers ? 2 * x.e * (x.c.V + x.c.max_positions) * x.c.h : 0;

  struct Moment {
    const char* name;
    int64_t kept, gathered, at_work;
  };
  const Moment moments[] = {{"loss", kept, head, LossAtWork(x)},
                            {"mlp", kept, layer, MlpAtWork(x)},
                            {"attention", kept, layer, AttentionAtWork(x)},
                            {"embedding", 0, tables, x.e * x.stream_rows() * x.c.h}};
  const Moment& fullest =
      *std::max_element(std::begin(moments), std::end(moments), [](const Moment& left, const Moment& right) {
        return left.kept + left.gathered + left.at_work < right.kept + right.gathered + right.at_work;
      });
  return {{"state", state},
          {"gathered", fullest.gathered},
          {"kept", fullest.kept},
          {fullest.name, fullest.at_work},
          {"workspace", workspace_bytes}};
}

int64_t PeerHostMemory(const PeerShape& x) {
  const int64_t kept = x.means.offload_activations ? (x.c.layers - 1) * KeptInALayer(x) : 0;
  return kept + (x.means.offload_optimizer ? 3 * kSum * Parameters(x) : 0);
}

int64_t SumOf(const std::map<std::string, int64_t>& bytes_by_part) {
  int64_t sum = 0;
  for (const auto& [part, bytes] : bytes_by_part) sum += bytes;
  return sum;
}

}  // namespace metp
