// Peers, modelled: bytes counted by hand for a small shape, what more memory and METP's own means do, what is
// impossible, and, printed and not asserted, how METP compares and how the model compares with what was
// published.

#include "server/planner/peers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "server/planner/planner.h"
#include "tests/support/planned_jobs.h"

namespace metp {
namespace {

using Bytes = std::map<std::string, int64_t>;

v1::JobSpec Llama7B(int64_t s) {
  return PlannedJob("family: llama, layers: 32, hidden: 4096, heads: 32, ffn: 11008, vocab: 32000", s);
}

/// The shape on which METP's authors report lengths.
v1::JobSpec WideGpt(int64_t s) {
  return PlannedJob("family: gpt2, layers: 8, hidden: 12288, heads: 96, ffn: 49152, vocab: 50257", s,
                    {"parallel.degree=8", "parallel.recompute=selective"});
}

v1::Plan Plan(int degree, v1::ParallelSpec::Recompute recompute, int tile_rows) {
  v1::Plan plan;
  plan.set_degree(degree);
  plan.set_head_groups(1);
  plan.set_recompute(recompute);
  plan.set_tile_rows(tile_rows);
  return plan;
}

const PeerEstimate& Of(const std::vector<PeerEstimate>& peers, const std::string& method, bool equal) {
  const auto found = std::find_if(peers.begin(), peers.end(), [&](const PeerEstimate& peer) {
    return peer.method == method && peer.equal_means == equal;
  });
  EXPECT_NE(found, peers.end()) << method;
  return *found;
}

/// L 2, h 8, a 4, g 2, d 2, f 12, V 10; 16 tokens on 2 devices, so S = 16, n = 8; recompute selective, tiles
/// of 3 rows. A layer has h (2a + 2g) d + 3 h f = 192 + 288 = 480 weights and 2 h = 16 of norms; tables 2 V h
/// = 160; the last norm 8.
class SmallShape : public ::testing::Test {
 protected:
  std::vector<PeerEstimate> peers_ = [] {
    v1::DeviceProfile profile = Profile("a100-80g");
    profile.set_workspace_bytes(0);
    v1::JobSpec job = PlannedJob("family: llama, layers: 2, hidden: 8, heads: 4, kv_heads: 2, ffn: 12", 16);
    job.mutable_model()->set_vocab(10);  // smaller than any tokenizer's
    return ComparePeers(job, Plan(2, v1::ParallelSpec::RECOMPUTE_SELECTIVE, 3), profile);
  }();
  void ExpectBytes(const std::string& method, bool equal, Bytes bytes) {
    SCOPED_TRACE(::testing::Message() << method << (equal ? ", equal means" : ""));
    const PeerEstimate& peer = Of(peers_, method, equal);
    int64_t sum = 0;
    for (const auto& [part, size] : bytes) sum += size;
    bytes["workspace"] = 0;
    EXPECT_EQ(peer.bytes_by_part, bytes);
    EXPECT_EQ(peer.peak_bytes, sum);
  }
  static constexpr int64_t kSharded = 18 * (2 * 480 + 160 + 2 * 16 + 8) / 2;   // ZeRO-3, FSDP
  static constexpr int64_t kTensor = 18 * ((2 * 480 + 160) / 2 + 2 * 16 + 8);  // norms whole
  static constexpr int64_t kLayer = 2 * 480 + 2 * 480 + 2 * 480;               // at work, arriving, gradient
  static constexpr int64_t kX = 2 * 8 * 8, kWhole = 2 * 16 * 8;                // n h, S h in bf16
  static constexpr int64_t kQ = 2 * 8 * 4 * 2, kKv = 2 * 8 * 2 * 2 * 2;        // n a d, n 2 g d
  static constexpr int64_t kLse = 4 * 8 * 4;                                   // n a in fp32
  static constexpr int64_t kF = 2 * 8 * 12;                                    // n f
  static constexpr int64_t kKernel = 2 * kQ + kKv + 2 * kQ;  // dO, dQ; dK, dV; dQ's sum in fp32
};

TEST_F(SmallShape, TensorParallelismKeepsTheStreamWholeOnEveryDevice) {
  ExpectBytes("TP", false,
              {{"state", kTensor},
               {"gathered", 0},
               // X, N1, X2, N2; Q; K, V; O and its log-sum-exp; gate, up, product
               {"kept", 2 * (4 * kWhole + kQ + kKv + kQ + kLse + 3 * kF)},
               {"loss", 16 * 5 * (4 + 2) + 3 * kWhole}});  // logits of V/2; X, N, dN
  ExpectBytes("TP", true,
              {{"state", kTensor},
               {"gathered", 0},
               {"kept", 2 * (kWhole + kQ + kLse)},                       // X; O; LSE
               {"attention", kWhole + kWhole + (kQ + kKv) + kKernel}});  // dX2; N1, Q, K, V again
}

TEST_F(SmallShape, SequenceParallelismSharesTheStreamAndGathersIt) {
  ExpectBytes("TP + sequence parallelism", false,
              {{"state", kTensor},
               {"gathered", 0},
               {"kept", 2 * (4 * kX + kQ + kKv + kQ + kLse + 3 * kF)},
               {"loss", 16 * 5 * (4 + 2) + kX + 2 * kWhole}});  // X; N gathered, dN's partial sums
  ExpectBytes("TP + sequence parallelism", true,
              {{"state", kTensor},
               {"gathered", 0},
               {"kept", 2 * (kX + kQ + kLse)},
               {"attention", kX + kX + (kQ + kKv) + (kQ + kKv) + 2 * kWhole}});  // again; dQ, dK, dV; N, dN
}

TEST_F(SmallShape, UlyssesKeepsTheAttentionResultTwiceAndGathersALayer) {
  ExpectBytes("Ulysses + ZeRO-3", false,
              {{"state", kSharded},
               {"gathered", kLayer},
               {"kept", 2 * (4 * kX + kQ + kKv + 2 * kQ + kLse + 3 * kF)},  // O by heads and by tokens
               {"mlp", 2 * kX + 3 * kF}});                                  // dY, dN; gradients between
  ExpectBytes("Ulysses + ZeRO-3", true,
              {{"state", kSharded},
               {"gathered", kLayer},
               {"kept", 2 * (kX + kQ + kLse)},
               {"attention", kX + kX + (kQ + kKv) + kKernel}});
}

TEST_F(SmallShape, HeadChunksNeedOneRoundOfHeadsAtATime) {
  ExpectBytes("Ulysses by head chunks + FSDP", false,
              {{"state", kSharded},
               {"gathered", kLayer},
               {"kept", 2 * (4 * kX + kQ + kKv + 2 * kQ + kLse + 3 * kF)},
               {"mlp", 2 * kX + 3 * kF}});
  // A round is 2 of 4 query heads and both key/value heads.
  ExpectBytes("Ulysses by head chunks + FSDP", true,
              {{"state", kSharded},
               {"gathered", kLayer},
               {"kept", 2 * (kX + kQ + kLse)},
               {"attention", kX + kX + (kQ / 2 + kKv) + kQ + kX + (2 * (kQ / 2) + kKv + 2 * (kQ / 2))}});
}

TEST_F(SmallShape, TheRingHoldsTwoBlocksOfKeysAndOfTheirGradients) {
  const int64_t ring = (kQ + 2 * kQ) + 2 * (kKv + 2 * kKv);  // dO, dQ's sum; K, V twice, dK, dV twice in fp32
  ExpectBytes("ring context parallelism + FSDP", false,
              {{"state", kSharded},
               {"gathered", kLayer},
               {"kept", 2 * (4 * kX + kQ + kKv + kQ + kLse + 3 * kF)},
               {"attention", kX + ring}});
  ExpectBytes("ring context parallelism + FSDP", true,
              {{"state", kSharded},
               {"gathered", kLayer},
               {"kept", 2 * (kX + kQ + kLse)},
               {"attention", kX + kX + (kQ + kKv) + ring}});
}

TEST(Peers, CopyKeyAndValueHeadsWhereThereAreFewerThanDevices) {
  const auto model = [](int kv) {
    return PlannedJob(
        "family: llama, layers: 1, hidden: 64, heads: 8, kv_heads: " + std::to_string(kv) + ", ffn: 8",
        8 * 1024);
  };
  const v1::Plan plan = Plan(8, v1::ParallelSpec::RECOMPUTE_NONE, 1);
  for (const char* method :
       {"TP", "TP + sequence parallelism", "Ulysses + ZeRO-3", "Ulysses by head chunks + FSDP"}) {
    const auto kept = [&](int kv) {
      return Of(ComparePeers(model(kv), plan, Profile("h200")), method, false).bytes_by_part.at("kept");
    };
    EXPECT_EQ(kept(2), kept(8)) << method;
  }
}

TEST(Peers, MoreMemoryAndEqualMeansNeverShortenTheLongestSequence) {
  v1::DeviceProfile profile = Profile("a100-80g");
  for (const v1::JobSpec& job : {Llama8B(65536), Llama7B(65536), WideGpt(65536)}) {
    for (const auto recompute : {v1::ParallelSpec::RECOMPUTE_NONE, v1::ParallelSpec::RECOMPUTE_SELECTIVE,
                                 v1::ParallelSpec::RECOMPUTE_FULL}) {
      std::vector<int64_t> before(10);
      for (int64_t gigabytes : {10, 30, 60, 85, 200}) {
        profile.set_memory_bytes(gigabytes * 1'000'000'000);
        const std::vector<PeerEstimate> peers = ComparePeers(job, Plan(8, recompute, 2048), profile);
        ASSERT_EQ(peers.size(), 10u);
        for (size_t i = 0; i < peers.size(); ++i) {
          EXPECT_GE(peers[i].max_sequence, before[i]) << peers[i].method << ", " << gigabytes << " GB";
          EXPECT_EQ(peers[i].peak_bytes <= UsableBytes(profile),
                    job.data().sequence_length() <= peers[i].max_sequence)
              << peers[i].method;
          before[i] = peers[i].max_sequence;
          if (!peers[i].equal_means) continue;
          EXPECT_GE(peers[i].max_sequence, Of(peers, peers[i].method, false).max_sequence) << peers[i].method;
        }
      }
      for (int64_t longest : before) EXPECT_GT(longest, 0);
    }
  }
}

TEST(Peers, OffloadAtEqualMeansKeepsTwoLayersOnTheDeviceAndTheOthersOnTheHost) {
  const v1::DeviceProfile profile = Profile("h100-80g");
  v1::Plan plan = Plan(8, v1::ParallelSpec::RECOMPUTE_FULL, 2048);
  const std::vector<PeerEstimate> without = ComparePeers(Llama8B(65536), plan, profile);
  plan.set_offload_activations(true);
  const std::vector<PeerEstimate> with = ComparePeers(Llama8B(65536), plan, profile);
  ASSERT_EQ(with.size(), without.size());
  for (size_t i = 0; i < with.size(); ++i) {
    if (!with[i].equal_means) {
      EXPECT_EQ(with[i].peak_bytes, without[i].peak_bytes);
      EXPECT_EQ(with[i].host_bytes, 0);
      continue;
    }
    const int64_t kept = without[i].bytes_by_part.at("kept") / 32;  // of a layer
    EXPECT_EQ(with[i].bytes_by_part.at("kept"), 2 * kept) << with[i].method;
    EXPECT_EQ(with[i].host_bytes, 31 * kept) << with[i].method;
    EXPECT_GT(with[i].max_sequence, without[i].max_sequence) << with[i].method;
  }
}

TEST(Peers, ThatCannotCutTheModelSayWhyInOneSentence) {
  const v1::Plan plan = Plan(64, v1::ParallelSpec::RECOMPUTE_SELECTIVE, 2048);
  const std::vector<PeerEstimate> peers = ComparePeers(Llama8B(65536), plan, Profile("h100-80g"));
  for (const char* method :
       {"TP", "TP + sequence parallelism", "Ulysses + ZeRO-3", "Ulysses by head chunks + FSDP"}) {
    for (bool equal : {false, true}) {
      const PeerEstimate& peer = Of(peers, method, equal);
      EXPECT_FALSE(peer.possible);
      EXPECT_EQ(peer.why_not, "each device needs a query head of its own, and there are 32 for 64 devices.");
      EXPECT_EQ(peer.max_sequence, 0);
    }
  }
  EXPECT_TRUE(Of(peers, "ring context parallelism + FSDP", true).possible);

  const auto why_not = [](int heads, int kv, int degree) {
    const v1::JobSpec job =
        PlannedJob("family: llama, layers: 1, hidden: 48, heads: " + std::to_string(heads) +
                       ", kv_heads: " + std::to_string(kv) + ", ffn: 8",
                   64);
    return Of(ComparePeers(job, Plan(degree, v1::ParallelSpec::RECOMPUTE_FULL, 0), Profile("h200")),
              "Ulysses + ZeRO-3", true)
        .why_not;
  };
  EXPECT_EQ(why_not(12, 12, 8), "12 query heads do not divide among 8 devices.");
  EXPECT_EQ(why_not(12, 4, 6),
            "4 key/value heads neither divide among 6 devices nor can each be copied to equally many.");
  EXPECT_EQ(why_not(12, 3, 6), "");
}

TEST(Peers, TakeLongerForWhatTheyMakeAgain) {
  const v1::JobSpec job = Llama8B(262144);
  std::vector<double> before(10);
  for (const auto recompute : {v1::ParallelSpec::RECOMPUTE_NONE, v1::ParallelSpec::RECOMPUTE_SELECTIVE,
                               v1::ParallelSpec::RECOMPUTE_FULL}) {
    const auto peers = ComparePeers(job, Plan(8, recompute, 2048), Profile("h100-80g"));
    for (size_t i = 0; i < peers.size(); ++i) {
      if (!peers[i].equal_means) continue;
      EXPECT_GT(peers[i].step_seconds, Of(peers, peers[i].method, false).step_seconds) << peers[i].method;
      EXPECT_GT(peers[i].step_seconds, before[i]) << peers[i].method;
      before[i] = peers[i].step_seconds;
    }
  }
}

/// Prints; what METP is worth against peers is to be read, not to be asserted.
TEST(Peers, BesideMetpOnTheShapeOfItsAuthors) {
  const v1::DeviceProfile profile = Profile("a100-80g");
  const auto longest = MaxSequence(WideGpt(4096), profile, 8);
  ASSERT_THAT(longest, IsOk());
  const v1::JobSpec job = WithSequence(WideGpt(4096), longest->tokens);
  const auto prediction = Predict(job, longest->plan, profile);
  ASSERT_THAT(prediction, IsOk());
  std::printf("METP: %lld tokens, %.1f s a step; c %d, tiles of %d rows; bytes at %lld tokens:\n",
              static_cast<long long>(longest->tokens), prediction->step_seconds(),
              longest->plan.head_groups(), longest->plan.tile_rows(),
              static_cast<long long>(longest->tokens));
  for (const auto& [part, bytes] : prediction->peak_bytes_by_category())
    std::printf("  %-12s %6.2f GB\n", part.c_str(), static_cast<double>(bytes) / 1e9);
  std::map<bool, const PeerEstimate*> best;
  const std::vector<PeerEstimate> peers = ComparePeers(job, longest->plan, profile);
  for (const PeerEstimate& peer : peers) {
    std::printf("%s%s: %lld tokens; at METP's: %.1f s a step,", peer.method.c_str(),
                peer.equal_means ? ", equal means" : "", static_cast<long long>(peer.max_sequence),
                peer.step_seconds);
    for (const auto& [part, bytes] : peer.bytes_by_part)
      std::printf(" %s %.2f", part.c_str(), static_cast<double>(bytes) / 1e9);
    std::printf(" GB\n");
    const PeerEstimate*& top = best[peer.equal_means];
    if (top == nullptr || peer.max_sequence > top->max_sequence) top = &peer;
  }
  for (const auto& [equal, peer] : best) {
    ASSERT_GT(peer->max_sequence, 0);
    const double ratio = static_cast<double>(longest->tokens) / static_cast<double>(peer->max_sequence);
    const std::string means = equal ? "at equal means" : "without recomputation";
    RecordProperty(equal ? "times_longest_peer_at_equal_means" : "times_longest_peer_without_recomputation",
                   std::to_string(ratio));
    std::printf("METP %.2f times the longest peer %s (%s)\n", ratio, means.c_str(), peer->method.c_str());
  }
}

/// Prints the rows of server/planner/README.md, "Peers, modelled". No rate or size is fitted to a row.
TEST(Peers, BesideWhatWasPublished) {
  struct Row {
    const char* what;
    v1::JobSpec job;
    const char* profile;
    const char* method;
    v1::ParallelSpec::Recompute recompute;
    int tile_rows;
    const char* published;
  };
  const auto selective = v1::ParallelSpec::RECOMPUTE_SELECTIVE, full = v1::ParallelSpec::RECOMPUTE_FULL;
  const char* ring = "ring context parallelism + FSDP";
  const Row rows[] = {
      {"torchtitan, 262,144", Llama8B(262144), "h100-96g", ring, full, 0, "548, 84.5 GiB"},
      {"torchtitan, 262,144", Llama8B(262144), "h100-96g", ring, selective, 0, "(full was run)"},
      {"BurstEngine, 524,288", Llama7B(524288), "a800-80g", ring, full, 2048, "299"},
      {"BurstEngine, 524,288", Llama7B(524288), "a800-80g", ring, selective, 2048, "299"},
      {"BurstEngine's TP, 524,288", Llama7B(524288), "a800-80g", "TP", full, 2048, "250"},
      {"BurstEngine's TP, 524,288", Llama7B(524288), "a800-80g", "TP + sequence parallelism", full, 2048,
       "250"},
      {"UPipe, 131,072", Llama8B(131072), "h100-80g", "Ulysses by head chunks + FSDP", full, 2048, "2,280"},
  };
  for (const Row& row : rows) {
    const PeerEstimate peer = Of(
        ComparePeers(row.job, Plan(8, row.recompute, row.tile_rows), Profile(row.profile)), row.method, true);
    const double rate = row.job.data().sequence_length() / peer.step_seconds / 8;
    std::printf("%-26s %-30s %-9s %5.0f tokens/s per GPU, %5.1f GiB, longest %lld; published %s\n", row.what,
                row.method, row.recompute == full ? "full" : "selective", rate,
                static_cast<double>(peer.peak_bytes) / (1 << 30), static_cast<long long>(peer.max_sequence),
                row.published);
    EXPECT_GT(rate, 0);
  }
}

}  // namespace
}  // namespace metp
