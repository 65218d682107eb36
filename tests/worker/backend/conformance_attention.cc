// Attention blocks, fused and materialised, against the softmax of the whole row in double precision.

#include <cstring>
#include <limits>

#include "tests/worker/backend/conformance.h"

namespace metp::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Mask { kNone, kCausal, kDocument, kBoth, kSparse };

struct Case {
  int64_t nq, nk;
  int heads, kv_heads, d;
  Mask mask;
  int64_t query_position;  // global position of the first query row; keys start at kKeyPosition
};
constexpr int64_t kKeyPosition = 100;

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.nq << " queries from " << c.query_position << ", " << c.nk << " keys from " << kKeyPosition
             << ", " << c.heads << "/" << c.kv_heads << " heads of " << c.d << ", mask "
             << static_cast<int>(c.mask);
}

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {1, 1, 1, 1, 2, Mask::kNone, 100},        {1, 5, 2, 1, 4, Mask::kNone, 100},
      {5, 1, 2, 2, 3, Mask::kCausal, 98},       {0, 4, 1, 1, 8, Mask::kNone, 100},
      {4, 0, 1, 1, 8, Mask::kNone, 100},        {9, 9, 4, 2, 16, Mask::kCausal, 100},
      {33, 33, 3, 1, 17, Mask::kCausal, 100},   {20, 37, 4, 4, 8, Mask::kBoth, 110},
      {31, 29, 2, 1, 8, Mask::kDocument, 95},   {65, 70, 2, 2, 12, Mask::kSparse, 100},
      {40, 40, 2, 1, 8, Mask::kCausal, 50},     {70, 90, 6, 2, 64, Mask::kCausal, 130},
      {300, 700, 2, 1, 16, Mask::kNone, 100},   {530, 530, 2, 1, 16, Mask::kCausal, 100},
      {300, 600, 4, 2, 8, Mask::kBoth, 400},    {600, 270, 3, 3, 8, Mask::kSparse, 100},
      {520, 1100, 1, 1, 8, Mask::kCausal, 700}, {257, 513, 2, 2, 8, Mask::kDocument, 200},
      {70, 75, 2, 1, 128, Mask::kCausal, 105},  {40, 45, 1, 1, 192, Mask::kBoth, 110},
      {40, 45, 2, 1, 250, Mask::kNone, 100},    {37, 70, 1, 1, 256, Mask::kCausal, 140}};
  return cases;
}

/// [first, last) of the keys that each query sees, in global positions.
Host Visible(const Case& c) {
  Host out(c.nq, 2);
  for (int64_t i = 0; i < c.nq; ++i) {
    const int64_t position = c.query_position + i;
    int64_t first = 0, last = 1 << 30;
    if (c.mask == Mask::kCausal || c.mask == Mask::kBoth) last = position + 1;
    if (c.mask == Mask::kDocument || c.mask == Mask::kBoth) {  // documents of 47 tokens
      first = position / 47 * 47;
      last = std::min(last, first + 47);
    }
    if (c.mask == Mask::kSparse) {  // anything that the interface allows: some rows see nothing, others a few
                                    // keys anywhere
      first = kKeyPosition + (i * 37) % (c.nk + 20) - 10;
      last = first + (i % 5 == 0 ? 0 : (i * 13) % 90);
    }
    out(i, 0) = first;
    out(i, 1) = last;
  }
  return out;
}

struct Inputs {
  Host q, k, v, visible, d_o;
};

Inputs MakeInputs(const Case& c, double range = 1) {
  return {Random(c.nq, c.heads * c.d, 91, -range, range), Random(c.nk, c.kv_heads * c.d, 92, -range, range),
          Random(c.nk, c.kv_heads * c.d, 93), Visible(c), Random(c.nq, c.heads * c.d, 94)};
}

struct Expected {
  Host o, lse, delta, dq, dk, dv;
  /// Largest sum of the magnitudes of which an element of delta, dq or dk is made. delta = sum p dp and p (dp - delta)
  /// cancels where all keys pull alike, and rounded operands leave an error in proportion to what cancelled.
  double delta_terms = 0, dq_terms = 0, dk_terms = 0;
};

/// The whole softmax at once; gradients by its derivative.
Expected Reference(const Case& c, const Inputs& in) {
  Expected out{Host(c.nq, c.heads * c.d), Host(c.nq, c.heads, -kInfinity), Host(c.nq, c.heads),
               Host(c.nq, c.heads * c.d), Host(c.nk, c.kv_heads * c.d),    Host(c.nk, c.kv_heads * c.d)};
  Host dk_terms(c.nk, c.kv_heads * c.d);
  const double scale = static_cast<float>(1 / std::sqrt(c.d));
  for (int64_t i = 0; i < c.nq; ++i) {
    const int64_t first = std::max<int64_t>(0, in.visible(i, 0) - kKeyPosition);
    const int64_t last = std::min<int64_t>(c.nk, in.visible(i, 1) - kKeyPosition);
    for (int64_t head = 0; head < c.heads && first < last; ++head) {
      const int64_t q0 = head * c.d, k0 = head * c.kv_heads / c.heads * c.d;
      std::vector<double> p(last - first), dp(last - first);
      double max = -kInfinity, sum = 0, delta = 0;
      for (int64_t j = first; j < last; ++j) {
        for (int64_t l = 0; l < c.d; ++l) p[j - first] += in.q(i, q0 + l) * in.k(j, k0 + l) * scale;
        max = std::max(max, p[j - first]);
      }
      for (double& x : p) sum += std::exp(x - max);
      out.lse(i, head) = max + std::log(sum);
      for (double& x : p) x = std::exp(x - out.lse(i, head));
      for (int64_t j = first; j < last; ++j) {
        for (int64_t l = 0; l < c.d; ++l) {
          out.o(i, q0 + l) += p[j - first] * in.v(j, k0 + l);
          dp[j - first] += in.d_o(i, q0 + l) * in.v(j, k0 + l);
          out.dv(j, k0 + l) += p[j - first] * in.d_o(i, q0 + l);
        }
        delta += p[j - first] * dp[j - first];
      }
      out.delta(i, head) = delta;
      for (int64_t j = first; j < last; ++j) {
        const double ds = p[j - first] * (dp[j - first] - delta) * scale;
        for (int64_t l = 0; l < c.d; ++l) {
          out.dq(i, q0 + l) += ds * in.k(j, k0 + l);
          out.dk(j, k0 + l) += ds * in.q(i, q0 + l);
        }
      }
      std::vector<double> dq_terms(c.d);
      double delta_terms = 0;
      for (int64_t j = first; j < last; ++j) {
        delta_terms += p[j - first] * std::abs(dp[j - first]);
        const double pull = p[j - first] * (std::abs(dp[j - first]) + std::abs(delta)) * scale;
        for (int64_t l = 0; l < c.d; ++l) {
          dq_terms[l] += pull * std::abs(in.k(j, k0 + l));
          dk_terms(j, k0 + l) += pull * std::abs(in.q(i, q0 + l));
        }
      }
      out.delta_terms = std::max(out.delta_terms, delta_terms);
      out.dq_terms = std::max(out.dq_terms, *std::max_element(dq_terms.begin(), dq_terms.end()));
    }
  }
  for (double x : dk_terms.values) out.dk_terms = std::max(out.dk_terms, x);
  return out;
}

/// One block's operands and results in a backend's memory, and the operations on them.
struct Attention {
  /// Uploads with strides; results start from what a first block finds, gradients from `gradient_start`.
  Attention(Backend& on, const Case& shape, Inputs& in, double gradient_start = 0)
      : backend(on),
        c(shape),
        q(Activations(in.q, 3)),
        k(Activations(in.k, 1)),
        v(Activations(in.v, 2)),
        visible(on, in.visible, DType::kI32, 1),
        d_o(Activations(in.d_o, 5)),
        o(F32(Host(c.nq, c.heads * c.d), 4)),
        lse(F32(Host(c.nq, c.heads, -kInfinity), 1)),
        delta(F32(Host(c.nq, c.heads), 2)),
        dq(F32(Host(c.nq, c.heads * c.d, gradient_start), 1)),
        dk(F32(Host(c.nk, c.kv_heads * c.d, gradient_start), 2)),
        dv(F32(Host(c.nk, c.kv_heads * c.d, gradient_start), 3)) {}

  /// In `pieces` blocks of keys, the last first: order must not matter.
  void Forward(bool tiled, int pieces) {
    for (int piece = pieces - 1; piece >= 0; --piece) {
      AttentionBlock block = Block(c.nk * piece / pieces, c.nk * (piece + 1) / pieces);
      const Device scores = F32(Host(tiled ? c.heads * c.nq : 0, block.k.rows, std::nan("")), 3);
      if (tiled) block.scores = scores;
      backend.AttentionForward(block, o, lse);
    }
  }
  void Backward(bool tiled, int pieces) {
    backend.AttentionDelta(d_o, o, c.d, delta);
    const Device merged(backend, Host(c.nq, c.heads * c.d), backend.activation(), 3);
    backend.Copy(o, merged);
    for (int piece = 0; piece < pieces; ++piece) {
      const int64_t first = c.nk * piece / pieces, last = c.nk * (piece + 1) / pieces;
      AttentionBlock block = Block(first, last);
      const Device scores = F32(Host(tiled ? 2 * c.heads * c.nq : 0, block.k.rows, std::nan("")), 3);
      if (tiled) block.scores = scores;
      backend.AttentionBackward(block, d_o, merged, lse, delta, dq, dk.view().Rows(first, last),
                                dv.view().Rows(first, last));
    }
  }
  /// Keys [first, last) as a block of their own.
  AttentionBlock Block(int64_t first, int64_t last) const {
    AttentionBlock block;
    block.q = q;
    block.k = k.view().Rows(first, last);
    block.v = v.view().Rows(first, last);
    block.visible = visible;
    block.key_position = kKeyPosition + first;
    if (c.mask == Mask::kNone) block.mask = BlockMask::kNone;
    if (c.mask == Mask::kCausal && c.query_position == block.key_position && c.nq == last - first)
      block.mask = BlockMask::kDiagonal;
    block.heads = c.heads;
    block.kv_heads = c.kv_heads;
    block.head_dim = c.d;
    block.scale = static_cast<float>(1 / std::sqrt(c.d));
    return block;
  }
  Device F32(const Host& host, int64_t pad) const { return Device(backend, host, DType::kF32, pad); }
  Device Activations(Host& host, int64_t pad) const {
    for (double& x : host.values) x = Rounded(x, backend.activation());
    return Device(backend, host, backend.activation(), pad);
  }

  Backend& backend;
  Case c;
  Device q, k, v, visible, d_o, o, lse, delta, dq, dk, dv;
};

}  // namespace

TEST_P(BackendConformance, AttentionForwardMatchesTheWholeSoftmaxInOneBlockAndInPieces) {
  for (const Case& c : Cases()) {
    for (bool tiled : {false, true}) {
      for (int pieces : {1, 3}) {
        SCOPED_TRACE(::testing::Message() << c << (tiled ? ", tiled, " : ", flash, ") << pieces << " pieces");
        Inputs in = MakeInputs(c);
        Attention run(backend(), c, in);
        run.Forward(tiled, pieces);
        const Expected expected = Reference(c, in);
        ExpectNear(run.o, expected.o);
        ExpectNear(run.lse, expected.lse);
      }
    }
  }
}

TEST_P(BackendConformance, AttentionBackwardMatchesTheWholeSoftmaxInOneBlockAndInPieces) {
  for (const Case& c : Cases()) {
    for (bool tiled : {false, true}) {
      for (int pieces : {1, 3}) {
        SCOPED_TRACE(::testing::Message() << c << (tiled ? ", tiled, " : ", flash, ") << pieces << " pieces");
        Inputs in = MakeInputs(c);
        Attention run(backend(), c, in, 0.5);
        run.Forward(tiled, 1);
        run.Backward(tiled, pieces);
        Expected expected = Reference(c, in);
        const bool rounded = activation() != DType::kF32;
        ExpectNear(run.delta, expected.delta, 1, rounded ? expected.delta_terms : 0);
        for (Host* gradient : {&expected.dq, &expected.dk, &expected.dv}) {
          for (double& x : gradient->values) x += 0.5;  // gradients are added to
        }
        ExpectNear(run.dq, expected.dq, 1, rounded ? expected.dq_terms : 0);
        ExpectNear(run.dk, expected.dk, 1, rounded ? expected.dk_terms : 0);
        ExpectNear(run.dv, expected.dv);
      }
    }
  }
}

TEST_P(BackendConformance, AnAttentionBlockThatARowDoesNotSeeLeavesItsResultAsItIs) {
  const Case c{70, 40, 2, 1, 8, Mask::kCausal, 60};  // rows 0..39 are before every key
  for (bool tiled : {false, true}) {
    Inputs in = MakeInputs(c);
    Attention run(backend(), c, in);
    const Host o = Random(c.nq, c.heads * c.d, 95), lse = Random(c.nq, c.heads, 96);
    run.o = F32(o, 1);
    run.lse = F32(lse, 1);
    run.Forward(tiled, 1);
    EXPECT_EQ(run.o.Get().Rows(0, 40).values, o.Rows(0, 40).values);
    EXPECT_EQ(run.lse.Get().Rows(0, 40).values, lse.Rows(0, 40).values);
    EXPECT_NE(run.lse.Get().Rows(40, 70).values, lse.Rows(40, 70).values);
  }
}

TEST_P(BackendConformance, ARowWhoseLogSumExpIsMinusInfinityGivesNoGradient) {
  const Case c{70, 40, 2, 1, 8, Mask::kNone, 100};
  for (bool tiled : {false, true}) {
    Inputs in = MakeInputs(c);
    Attention run(backend(), c, in, 0.25);
    run.Backward(tiled, 1);  // without a forward: o is 0, lse -inf
    ExpectNear(run.dq, Host(c.nq, c.heads * c.d, 0.25), 0);
    ExpectNear(run.dk, Host(c.nk, c.kv_heads * c.d, 0.25), 0);
    ExpectNear(run.dv, Host(c.nk, c.kv_heads * c.d, 0.25), 0);
  }
}

TEST_P(BackendConformance, HugeAttentionScoresNeitherOverflowNorLoseTheSmallRest) {
  const Case c{40, 300, 2, 1, 16, Mask::kCausal, 200};
  for (bool tiled : {false, true}) {
    Inputs in = MakeInputs(c, 30);  // scores up to some thousands: e^score is far beyond fp32
    Attention run(backend(), c, in, 0);
    run.Forward(tiled, 3);
    const Expected expected = Reference(c, in);
    // Scores of size 1e3 carry their own rounding, 1e3 * 6e-8, into every exponent.
    ExpectNear(run.o, expected.o, 50);
    ExpectNear(run.lse, expected.lse);
    run.Backward(tiled, 1);
    ExpectNear(run.dv, expected.dv, 50);
    ExpectNear(run.dq, expected.dq, 100);
  }
}

TEST_P(BackendConformance, AKeyThatIsNoNumberIsNotSwallowed) {
  const Case c{9, 40, 1, 1, 8, Mask::kNone, 100};
  for (bool tiled : {false, true}) {
    Inputs in = MakeInputs(c);
    Attention run(backend(), c, in);
    backend().Fill(run.k.view().Block(17, 1, 2, 1), std::numeric_limits<float>::quiet_NaN());
    run.Forward(tiled, 1);
    for (double x : run.lse.Get().values) EXPECT_TRUE(std::isnan(x));
  }
}

TEST_P(BackendConformance, RepeatedAttentionGivesTheSameBits) {
  for (const Case& c :
       {Case{530, 530, 4, 2, 16, Mask::kCausal, 100}, Case{300, 700, 2, 1, 16, Mask::kBoth, 500}}) {
    for (bool tiled : {false, true}) {
      std::vector<std::vector<char>> first;
      for (int round = 0; round < 3; ++round) {
        Inputs in = MakeInputs(c);
        Attention run(backend(), c, in);
        run.Forward(tiled, 2);
        run.Backward(tiled, 2);
        std::vector<std::vector<char>> got;
        for (const Device* x : {&run.o, &run.lse, &run.delta, &run.dq, &run.dk, &run.dv})
          got.push_back(x->Bytes());
        if (round == 0) first = got;
        EXPECT_EQ(got, first) << "round " << round;
      }
    }
  }
}

}  // namespace metp::testing
