// The golden vectors over real processes: three ranks, each a process of its own, joined by Gloo over TCP.
// The test program starts itself again as each rank.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/support/golden.h"
#include "tests/support/temp_folder.h"
#include "worker/rank/process.h"
#include "worker/rank/rendezvous.h"
#include "worker/rank/rendezvous_link.h"

namespace metp::testing {
namespace {

constexpr int kRanks = 3;

/// What a rank leaves behind: its loss and the elements of every piece of its gradients.
struct Result {
  double loss = 0;
  Tensors gradients;
};

void WriteResult(const std::string& path, double loss, GoldenRank& model) {
  std::ofstream file(path, std::ios::binary);
  file.precision(17);  // every fp32 and fp64 value survives
  file << loss << "\n";
  model.parameters().Export(Parameters::kGradients, [&](const Piece& piece, int64_t i, int64_t j,
                                                        float value) {
    file << piece.name << " " << piece.rows * piece.cols << " " << i * piece.cols + j << " " << value << "\n";
  });
}

void ReadResult(const std::string& path, Result& result) {
  std::ifstream file(path);
  ASSERT_TRUE(file >> result.loss) << path;
  std::string name;
  int64_t size, at;
  double value;
  while (file >> name >> size >> at >> value) {
    auto& whole = result.gradients[name];
    whole.resize(size, std::nan(""));
    whole[at] = value;
  }
}

/// Every head group count, with and without row tiles, both kinds of attention.
std::vector<Cut> Cuts() {
  std::vector<Cut> cuts;
  for (int c : {1, 2, 3}) {
    for (int64_t tile_rows : {0, 2}) {
      for (bool tiled : {false, true}) cuts.push_back({kRanks, c, tile_rows, tiled});
    }
  }
  return cuts;
}

/// argv: golden-rank MODEL RANK PACKED FILE --fd N. Leaves FILE.0, FILE.1, ... for the cuts.
int RunRankProcess(char** argv) {
  const std::string name = argv[2], path = argv[5];
  const int rank = std::stoi(argv[3]);
  const bool packed = std::strcmp(argv[4], "packed") == 0;
  RankLink link(std::stoi(argv[7]), [](const absl::Status&) { _exit(3); });
  ChannelRendezvous rendezvous(link);
  auto communicator = MakeGlooCommunicator(rank, kRanks, "127.0.0.1", rendezvous);
  if (!communicator.ok()) {
    std::fprintf(stderr, "%s\n", communicator.status().ToString().c_str());
    return 1;
  }
  const Golden golden = Golden::Load(name);
  try {
    int number = 0;
    for (const Cut& cut : Cuts()) {
      GoldenRank model(golden, cut, **communicator);
      const StepTotals totals = model.Gradients(packed);
      WriteResult(path + "." + std::to_string(number++), totals.loss, model);
    }
    ThrowIfError((*communicator)->Barrier());
  } catch (const StepError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

/// Starts the ranks, answers their rendezvous, waits for their end.
class Ranks {
 public:
  void Run(const std::string& model, bool packed, const std::string& folder) {
    for (int rank = 0; rank < kRanks; ++rank) {
      RankCommand command;
      command.program = std::filesystem::read_symlink("/proc/self/exe");
      command.arguments = {"golden-rank", model, std::to_string(rank), packed ? "packed" : "plain",
                           Path(folder, rank)};
      RankCallbacks callbacks;
      callbacks.on_message = [this, rank](const v1::FromRank& message) { OnMessage(rank, message); };
      callbacks.on_output = [rank](std::string_view line) {
        std::cerr << "rank " << rank << ": " << line << "\n";
      };
      callbacks.on_exit = [](const RankExit&) {};
      MutexLock lock(mutex_);  // no message is handled before all are known
      auto process = RankProcess::Start(command, callbacks);
      ASSERT_TRUE(process.ok()) << process.status();
      processes_[rank] = std::move(*process);
    }
    for (auto& process : processes_) {
      const RankExit exit = process->Wait();
      EXPECT_TRUE(exit.clean()) << exit.Describe();
    }
  }

  static std::string Path(const std::string& folder, int rank) { return folder + "/" + std::to_string(rank); }

 private:
  void OnMessage(int rank, const v1::FromRank& message) {
    MutexLock lock(mutex_);
    if (message.has_put()) {
      EXPECT_TRUE(hub_.Put(message.put().key(), message.put().value()).ok());
    } else if (message.has_get()) {
      hub_.Get(message.get().key(), [this, rank, key = message.get().key()](const std::string& value) {
        v1::ToRank reply;
        reply.mutable_value()->set_key(key);
        reply.mutable_value()->set_value(value);
        EXPECT_TRUE(processes_[rank]->Send(reply).ok());
      });
    }
  }
  Mutex mutex_;
  RendezvousHub hub_;
  std::unique_ptr<RankProcess> processes_[kRanks];
};

class GlooGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(GlooGolden, ThreeProcessesEqualTheReference) {
  const Golden golden = Golden::Load(GetParam());
  for (bool packed : {false, true}) {
    const TempFolder folder;
    Ranks ranks;
    ranks.Run(GetParam(), packed, folder.path());
    for (size_t cut = 0; cut < Cuts().size(); ++cut) {
      SCOPED_TRACE(::testing::Message() << "cut " << cut << (packed ? ", packed" : ""));
      Result result;
      for (int rank = 0; rank < kRanks; ++rank) {
        ReadResult(Ranks::Path(folder.path(), rank) + "." + std::to_string(cut), result);
        const double loss = golden.meta.at(packed ? "loss_packed" : "loss");
        EXPECT_NEAR(result.loss, loss, 2e-5 * loss);
      }
      ExpectEqualsGolden(golden, packed ? "grad_packed." : "grad.", result.gradients);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Processes, GlooGolden,
                         ::testing::Values("gpt2", "llama", "bidirectional", "llama_d64"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace metp::testing

int main(int argc, char** argv) {
  if (argc == 8 && std::strcmp(argv[1], "golden-rank") == 0) return metp::testing::RunRankProcess(argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
