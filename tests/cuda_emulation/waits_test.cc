// Every wait of one stream for another that rank 0 makes in a ring's hops, a sum and a training step is needed: work in which any
// single one is left out has a fault. Which waits others make superfluous is said for each. Not looked at: waits while a
// communicator is made or cancelled, loopback, rings across.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <future>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/cuda_emulation/engine.h"
#include "tests/worker/comm/device_ring.h"
#include "worker/model/optimizer.h"
#include "worker/model/transformer.h"

namespace metp {
namespace {

using testing::IsEmpty;

/// Lets the ranks post each hop from the last one to rank 0, so that rank 0 makes the same waits in every run: whoever of
/// two neighbours comes second makes those of both.
class Turns {
 public:
  explicit Turns(int p) : posted_(p) {}
  void Await(int rank) {
    std::unique_lock lock(mutex_);
    const int hop = posted_[rank] + 1;
    changed_.wait(lock, [&] {
      return std::all_of(posted_.begin() + rank + 1, posted_.end(),
                         [&](int posted) { return posted >= hop; });
    });
  }
  void Done(int rank) {
    const std::lock_guard lock(mutex_);
    ++posted_[rank];
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> posted_;
};

/// A rank's communicator that says of each wait made on its thread which call made it.
class Noted final : public Communicator {
 public:
  /// `turns` may be null: the ranks make their own waits only.
  Noted(std::unique_ptr<Communicator> of, Turns* turns) : of_(std::move(of)), turns_(turns) {}
  Whereabouts& where() { return where_; }
  /// What each wait so far is: the communicator's by pass, call and number in the call, other ones "host link".
  std::vector<std::string> Waits() {
    for (int i = 0; static_cast<int>(waits_.size()) < emulation::WaitsMade(); ++i) {
      waits_.push_back(Place() + " host link " + std::to_string(i));
    }
    return waits_;
  }

  int rank() const override { return of_->rank(); }
  int size() const override { return of_->size(); }
  HopId Post(Exchange exchange, const Event& after) override {
    if (turns_ != nullptr) turns_->Await(rank());
    const HopId hop = Note("Post", [&] { return of_->Post(std::move(exchange), after); });
    if (turns_ != nullptr) turns_->Done(rank());
    return hop;
  }
  absl::Status Await(HopId hop) override {
    return Note("Await", [&] { return of_->Await(hop); });
  }
  absl::Status AllReduce(const Matrix& values) override {
    return Note("AllReduce", [&] { return of_->AllReduce(values); });
  }
  absl::Status Barrier() override { return of_->Barrier(); }
  void Abort(absl::Status reason) override { of_->Abort(std::move(reason)); }
  std::vector<HopRecord> TakeRecords() override { return of_->TakeRecords(); }

 private:
  /// "mlp_forward"; "" outside any pass.
  std::string Place() const {
    const std::string text = where_.Describe(), comma = ", ";
    const size_t begin = text.find(comma);
    return begin == std::string::npos ? "" : text.substr(begin + 2, text.find(comma, begin + 2) - begin - 2);
  }
  template <typename Call>
  std::invoke_result_t<Call> Note(const std::string& name, const Call& call) {
    const int first = static_cast<int>(Waits().size());
    auto result = call();
    for (int i = first; i < emulation::WaitsMade(); ++i) {
      waits_.push_back(Place() + " " + name + " " + std::to_string(i - first));
    }
    return result;
  }

  const std::unique_ptr<Communicator> of_;
  Turns* const turns_;
  Whereabouts where_;
  std::vector<std::string> waits_;
};

/// Ranks that do the same work again and again.
class Ranks {
 public:
  using Work = std::function<void(cuda::CudaBackend&, Noted&)>;
  Ranks(Wire wire, int p, Work work) : wire_(wire), work_(std::move(work)) {
    for (int rank = 0; rank < p; ++rank) {
      ranks_.push_back(std::make_unique<DeviceRank>(wire == Wire::kLocal ? 0 : rank));
    }
  }

  /// What was wrong when rank 0 left out its wait number `dropped` (-1: none).
  std::vector<std::string> Run(int dropped) {
    emulation::TakeFaults();
    Turns turns(static_cast<int>(ranks_.size()));
    LocalRendezvous rendezvous;
    std::vector<std::unique_ptr<Communicator>> ring(ranks_.size());
    if (wire_ == Wire::kLocal) ring = Local();
    std::latch synchronized(static_cast<std::ptrdiff_t>(ranks_.size()));
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        cuda::CudaBackend& backend = *ranks_[rank]->backend;
        cudaSetDevice(backend.device());
        cudaDeviceSynchronize();         // whatever the run before has left out
        synchronized.arrive_and_wait();  // it would order what other ranks do on the device now
        if (wire_ == Wire::kNccl) ring[rank] = Nccl(static_cast<int>(rank), rendezvous);
        Noted noted(std::move(ring[rank]), wire_ == Wire::kLocal ? &turns : nullptr);
        emulation::DropWait(rank == 0 ? dropped : -1);
        work_(backend, noted);
        if (rank == 0) waits_ = noted.Waits();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& rank : ranks_) {  // memory goes in the streams' order, after the threads have ended
      cudaSetDevice(rank->backend->device());
      cudaDeviceSynchronize();
    }
    return emulation::TakeFaults();
  }
  /// Of rank 0 in the last run.
  const std::vector<std::string>& waits() const { return waits_; }

  /// Those of rank 0's waits that `asked` names and that can be left out one at a time.
  std::vector<std::string> Superfluous(const std::function<bool(const std::string&)>& asked) {
    EXPECT_THAT(Run(-1), IsEmpty());
    const std::vector<std::string> waits = waits_;
    std::vector<std::string> superfluous;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (!asked(waits[i])) continue;
      if (Run(static_cast<int>(i)).empty()) superfluous.push_back(waits[i]);
      EXPECT_EQ(waits_, waits);
    }
    return superfluous;
  }

 private:
  std::vector<std::unique_ptr<Communicator>> Local() {
    std::vector<cuda::CudaBackend*> backends;
    for (const auto& rank : ranks_) backends.push_back(rank->backend.get());
    auto ring = MakeLocalDeviceCommunicators(backends);
    EXPECT_TRUE(ring.ok()) << ring.status();
    return *std::move(ring);
  }
  std::unique_ptr<Communicator> Nccl(int rank, Rendezvous& rendezvous) {
    auto made =
        MakeNcclCommunicator(*ranks_[rank]->backend, rank, static_cast<int>(ranks_.size()), rendezvous);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  const Wire wire_;
  const Work work_;
  std::vector<std::unique_ptr<DeviceRank>> ranks_;
  std::vector<std::string> waits_;
};

bool Any(const std::string& wait) { return true; }

/// Not one of those that a local ring makes behind the wait for `after`: which rank needs them depends on what a hop
/// carries, and Exchanges needs them all.
bool OwnWait(const std::string& wait) {
  return wait.find(" Post ") == std::string::npos || wait.ends_with(" Post 0");
}

/// Hops whose every buffer is written by compute before and after, then a sum of what compute wrote.
void Exchanges(cuda::CudaBackend& backend, Noted& communicator) {
  const auto make = [&] {
    Tensor made = backend.Allocate(1, 64, DType::kF32, MemoryCategory::kTransient);
    backend.Fill(made, 1);
    return made;
  };
  const Tensor slots[2] = {make(), make()}, sum = make();
  for (int t = 0; t < 3; ++t) {
    const Matrix here = slots[t % 2], there = slots[(t + 1) % 2];
    const HopId hop = communicator.Post({{here}, {there}}, backend.Record());
    backend.Add(here, sum);
    ThrowIfError(communicator.Await(hop));
    backend.Add(sum, there);
    backend.Fill(here, 0);
  }
  ThrowIfError(communicator.AllReduce(sum));
}

/// What a training step is made of.
struct Variant {
  Wire wire = Wire::kLocal;
  int p = 2;
  bool offload = false;  // activations and the optimizer
  std::vector<std::string> superfluous;
};

ModelConfig Config(bool offload) {
  ModelConfig config;
  config.llama = true;
  config.layers = offload ? 2 : 1;
  config.h = 8;
  config.a = config.g = 2;
  config.d = 4;
  config.f = 8;
  config.V = 8;
  return config;
}

/// A rank's rows, 4 a rank, with tokens of every rank's part of the vocabulary.
SequenceRows RowsOf(int64_t V) {
  SequenceRows rows;
  rows.document_starts = {0};
  for (int i = 0; i < 4; ++i) {
    rows.ids.push_back(static_cast<int32_t>(i * V / 4));
    rows.targets.push_back(static_cast<int32_t>(i * V / 4 + 1));
  }
  return rows;
}

void TrainingStep(bool offload, cuda::CudaBackend& backend, Noted& communicator) {
  const ModelConfig config = Config(offload);
  Ring ring(backend, communicator);
  ring.set_whereabouts(&communicator.where());
  Replicas replicas(backend, nullptr);
  Parameters parameters(backend, ParameterLayout(config, ring.size(), ring.rank(), 1), {{}, offload});
  // Tiled: products by the library, which take the emulation much less time than attention's kernels.
  Transformer transformer(ring, config, parameters,
                          {true, 0, offload ? Recompute::kNone : Recompute::kFull, offload});
  v1::TrainSpec train;
  train.add_betas(0.9);
  train.add_betas(0.95);
  train.set_eps(1e-8);
  Optimizer optimizer(ring, replicas, parameters, train);
  InitializeWeights(parameters, config, 1);
  const Zigzag split{4 * ring.size(), ring.size()};
  const TokenRows tokens = MakeTokenRows(ring, config, split.s, {RowsOf(config.V)});
  const Tensor loss = backend.Allocate(1, 1, DType::kF64, MemoryCategory::kWorkspace);
  backend.Fill(loss, 0);
  transformer.ForwardBackward(tokens, split.s, loss);
  ring.Drain(Pass::kFinish);
  optimizer.Apply(optimizer.Reduce(loss, split.s, false), 1, 0.01);
  backend.SumSquares(parameters.weight_matrices(), loss);  // what the next step begins with
}

class CudaWaits : public testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::Watches())
      GTEST_SKIP() << "the sanitizer of this build looks at accesses, not the emulation";
    emulation::Configure({.devices = 4});
  }
};

class CudaWaitsOfHops : public CudaWaits, public testing::WithParamInterface<std::tuple<Wire, int>> {};

TEST_P(CudaWaitsOfHops, AreAllNeeded) {
  const auto& [wire, p] = GetParam();
  Ranks ranks(wire, p, Exchanges);
  EXPECT_THAT(ranks.Superfluous(Any), IsEmpty());
  EXPECT_EQ(ranks.waits().size(), 3u * (wire == Wire::kLocal ? p + 4 : 2) + 1);
}

class CudaWaitsOfTraining : public CudaWaits, public testing::WithParamInterface<Variant> {};

// Each of these is left out alone. In the order in which they are made:
//   mlp_forward, loss_forward, loss_backward Post 0 (and with p = 3 embedding_forward's second hop): the hop sends weights
//       from home, or what a hop before it brought, and receives into memory never used before. All that the wait orders is
//       that memory's allocation, which the emulation does not look at.
//   AllReduce 0 of the gradients' vectors: written before the last hop was posted, which waited for compute then.
//   host link, copies out of one layer and in for one layer: behind the first of them on the same stream, whose own wait
//       is for the same point (out), or for all but the allocation of what it copies into (in).
//   host link, waits for copies in: all of them are on one stream, so the last one's holds for all.
//   host link, the optimizer's first and third: the copies of gradients out and of weights in wait for compute, which the
//       host has waited for since, to learn the gradients' norm.
std::vector<Variant> Variants() {
  const std::vector<std::string> two = {"mlp_forward Post 0", "loss_backward Post 0", "finish AllReduce 0"};
  const std::vector<std::string> three = {"embedding_forward Post 0", "mlp_forward Post 0",
                                          "mlp_forward Post 0",       "loss_forward Post 0",
                                          "loss_backward Post 0",     "finish AllReduce 0"};
  std::vector<std::string> offloaded;
  const auto link = [&](const std::string& pass, std::vector<int> numbers) {
    for (const int number : numbers) offloaded.push_back(pass + " host link " + std::to_string(number));
  };
  link("attention_forward", {1, 2, 3, 4, 5});  // X, O, LSE, X2, Q, KV of the first layer go out
  offloaded.insert(offloaded.end(), {"mlp_forward Post 0", "loss_forward Post 0", "loss_backward Post 0"});
  link("mlp_backward", {1, 2, 3, 4, 5});  // are fetched
  link("mlp_backward", {0, 1, 2, 3, 4});  // and are used
  offloaded.push_back("finish AllReduce 0");
  link("finish", {0, 2});
  return {{Wire::kLocal, 2, false, two},
          {Wire::kNccl, 2, false, two},
          {Wire::kNccl, 3, false, three},
          {Wire::kNccl, 2, true, offloaded}};
}

TEST_P(CudaWaitsOfTraining, AreNeeded) {
  const Variant& variant = GetParam();
  Ranks ranks(variant.wire, variant.p, [&](cuda::CudaBackend& backend, Noted& communicator) {
    TrainingStep(variant.offload, backend, communicator);
  });
  EXPECT_THAT(ranks.Superfluous(OwnWait), testing::ElementsAreArray(variant.superfluous));
}

// What a host function does with host memory the emulation does not see, so this goes by values: behind a copy out that is
// held, nothing happens.
TEST_F(CudaWaits, OfTheHostLinkHoldWhatIsBehind) {
  constexpr int64_t kSize = 64;
  DeviceRank rank(0);
  HostLink& link = rank.backend->host_link();
  const std::vector<float> ones(kSize, 1);
  const Tensor gradient = rank.ToDevice(ones), weights = rank.ToDevice(ones);
  HostBlock blocks[4];
  for (HostBlock& block : blocks) {
    block = link.Allocate(kSize * sizeof(float), MemoryCategory::kOptimizer);
    std::fill_n(static_cast<float*>(block.data()), kSize, 0.0f);
  }
  const auto& [g, m, v, w] = blocks;
  std::promise<void> gate;
  const cuda::Stream held;
  cudaLaunchHostFunc(
      held, [](void* opened) { static_cast<std::promise<void>*>(opened)->get_future().wait(); }, &gate);
  const Event after = rank.backend->events().Record(held);

  AdamWStep step;
  step.learning_rate = 0.5f;
  step.beta1 = 0.9f;
  step.beta2 = 0.9f;
  step.eps = 1e-8f;
  step.correction1 = step.correction2 = 0.1f;
  const HostTask out = link.CopyOut(gradient, g, after);
  const HostTask update = link.AdamW(step, kSize, g, m, v, w, nullptr, {out});
  const HostTask in = link.CopyIn(w, weights, {}, {update});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(*static_cast<const float*>(w.data()), 0.0f);
  gate.set_value();
  link.Await(in);
  for (const float value : rank.ToHost(weights)) EXPECT_NEAR(value, -0.5f, 1e-3f);
  rank.backend->Synchronize();
}

INSTANTIATE_TEST_SUITE_P(Rings, CudaWaitsOfHops,
                         testing::Combine(testing::Values(Wire::kLocal, Wire::kNccl), testing::Values(2, 3)),
                         RingName);
INSTANTIATE_TEST_SUITE_P(Steps, CudaWaitsOfTraining, testing::ValuesIn(Variants()), [](const auto& info) {
  return std::string(info.param.wire == Wire::kLocal ? "Local" : "Nccl") + std::to_string(info.param.p) +
         (info.param.offload ? "Offloaded" : "");
});

}  // namespace
}  // namespace metp
