#include "worker/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "tests/worker/checkpoint/lying_files.h"
#include "tests/worker/checkpoint/written_checkpoint.h"
#include "worker/model/layout.h"

namespace metp {
namespace {

using ::testing::ElementsAre;
using testing::ElementSource;
using ::testing::HasSubstr;
using testing::kRun;

constexpr char kDirectory[] = "/checkpoints";

/// Every element of every kind has a value of its own.
float Value(const std::string& name, StateKind kind, int64_t i, int64_t j, int generation) {
  return static_cast<float>(std::hash<std::string>()(name) % 97) + 1000.0f * static_cast<float>(i) +
         static_cast<float>(j) + 0.25f * static_cast<float>(kind) + 0.5f * static_cast<float>(generation);
}

class CheckpointTest : public ::testing::Test {
 protected:
  v1::JobSpec job_ =
      PlannedJob("family: llama, layers: 2, hidden: 20, heads: 10, kv_heads: 2, ffn: 30, vocab: 257", 16,
                 {"train.sequences_per_step=3"});

  /// Own slices of rank `rank` of p, ring `ring` of `rings`.
  std::vector<TensorSlice> Slices(int p, int rank, int ring = 0, int rings = 1) const {
    const ParameterLayout layout(MakeModelConfig(job_.model()), p, rank, 2);
    std::vector<TensorSlice> slices;
    for (const ArenaSlice& place :
         layout.Slices(Part(layout.matrix_size(), rings, ring), rank == 0 && ring == 0))
      slices.push_back(place.slice);
    return slices;
  }
  absl::Status Write(FileSystem& files, int step, int p, int rings = 1, int keep = 3) {
    const std::string folder = PartialFolder(kDirectory, step, kRun);
    if (absl::Status made = ClaimCheckpoints(files, kDirectory, kRun); !made.ok()) return made;
    if (absl::Status made = files.MakeFolder(folder); !made.ok()) return made;
    v1::Plan plan;
    for (int rank = 0; rank < p * rings; ++rank) {
      const ElementSource source(Slices(p, rank % p, rank / p, rings),
                                 [step](const std::string& name, StateKind kind, int64_t i, int64_t j) {
                                   return Value(name, kind, i, j, step);
                                 });
      if (absl::Status wrote = WriteShard(files, folder, rank, p * rings, source); !wrote.ok()) return wrote;
    }
    if (absl::Status wrote = WriteHistory(files, folder, Steps(step)); !wrote.ok()) return wrote;
    const absl::Status made =
        CommitCheckpoint(files, kDirectory, step, kRun, p * rings, {3 * step, 7, 16, 1000}, job_, plan);
    return made.ok() ? RemoveOldCheckpoints(files, kDirectory, step, keep) : made;
  }
  static std::vector<v1::StepPoint> Steps(int last) {
    std::vector<v1::StepPoint> points(static_cast<size_t>(last));
    for (int i = 0; i < last; ++i) points[static_cast<size_t>(i)].set_step(i + 1);
    return points;
  }
  void ExpectContent(const CheckpointReader& reader, int p, int generation) {
    const std::vector<v1::StepPoint> history = reader.History();
    ASSERT_EQ(history.size(), static_cast<size_t>(reader.step()));
    EXPECT_EQ(history.back().step(), reader.step());
    for (int rank = 0; rank < p; ++rank) {
      ASSERT_THAT(reader.Check(Slices(p, rank), rank == 0), IsOk());
      for (const TensorSlice& slice : Slices(p, rank)) {
        for (const StateKind kind : kStateKinds) {
          std::vector<float> values(static_cast<size_t>(slice.size()), -1);
          ASSERT_THAT(reader.Read(slice, kind, values.data()), IsOk());
          size_t at = 0;
          for (int64_t i = slice.row.begin; i < slice.row.end; ++i) {
            for (int64_t j = slice.col.begin; j < slice.col.end; ++j)
              ASSERT_EQ(values[at++], Value(slice.name, kind, i, j, generation)) << slice.name;
          }
        }
      }
    }
  }
  LyingFiles files_;
};

TEST_F(CheckpointTest, OfAnyRanksAndRingsIsReadByAnyOthers) {
  int step = 0;
  for (const auto& [p, rings] : {std::pair{1, 1}, {3, 1}, {4, 2}, {2, 3}, {5, 1}}) {
    ASSERT_THAT(Write(files_, ++step, p, rings), IsOk());
    const auto reader = CheckpointReader::Open(files_, CheckpointFolder(kDirectory, step));
    ASSERT_THAT(reader, IsOk());
    EXPECT_EQ((*reader)->step(), step);
    EXPECT_EQ((*reader)->order().sequences, 3 * step);
    EXPECT_EQ((*reader)->order().seed, 7);
    EXPECT_EQ((*reader)->order().tokens, 1000);
    for (int q : {1, 2, 3, 4}) ExpectContent(**reader, q, step);
  }
}

TEST_F(CheckpointTest, ShardsAreSafetensorsFiles) {
  ASSERT_THAT(Write(files_, 1, 2), IsOk());
  const std::string& bytes = *files_.Content("/checkpoints/step-00000001/shard-00001-of-00002.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), 8);
  EXPECT_EQ(size % 8, 0);
  const auto header = nlohmann::json::parse(bytes.substr(8, size));
  size_t end = 0;
  for (const auto& [key, tensor] : header.items()) {
    EXPECT_EQ(tensor.at("dtype"), "F32");
    const size_t from = tensor.at("data_offsets").at(0), to = tensor.at("data_offsets").at(1);
    EXPECT_EQ(to - from, 4 * tensor.at("shape").at(0).get<size_t>() * tensor.at("shape").at(1).get<size_t>());
    end = std::max(end, to);
  }
  EXPECT_EQ(8 + size + end, bytes.size());
  EXPECT_TRUE(header.contains("second_moment/l0.n1.w/0:1/0:20") ||
              header.contains("master/l1.w2/15:30/0:20"));
}

TEST_F(CheckpointTest, KeepsTheNewestAndRemovesWhatWasLeftUnfinished) {
  ASSERT_THAT(files_.MakeFolder(PartialFolder(kDirectory, 15, "an-earlier/1")), IsOk());
  for (int step : {10, 20, 30}) ASSERT_THAT(Write(files_, step, 2, 1, /*keep=*/2), IsOk());
  const auto steps = CompleteCheckpoints(files_, kDirectory);
  ASSERT_THAT(steps, IsOk());
  EXPECT_THAT(*steps, ElementsAre(30, 20));
  EXPECT_THAT(*files_.List(kDirectory), ElementsAre("owner", "step-00000020", "step-00000030"));
  EXPECT_THAT(*CompleteCheckpoints(files_, "/nowhere"), ElementsAre());
}

TEST_F(CheckpointTest, ALaterAttemptOfAJobTakesADirectoryOverAndAnEarlierOneCannot) {
  ASSERT_THAT(ClaimCheckpoints(files_, kDirectory, "job-7/9"), IsOk());
  EXPECT_THAT(CheckClaim(files_, kDirectory, "job-7/9"), IsOk());
  ASSERT_THAT(ClaimCheckpoints(files_, kDirectory, "job-7/10"), IsOk());
  EXPECT_THAT(CheckClaim(files_, kDirectory, "job-7/9"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("job-7/10 writes here now, no longer job-7/9")));
  EXPECT_THAT(ClaimCheckpoints(files_, kDirectory, "job-7/9"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(CheckClaim(files_, kDirectory, "job-7/11"), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_THAT(ClaimCheckpoints(files_, kDirectory, "other-8/1"), IsOk());
  EXPECT_THAT(CheckClaim(files_, kDirectory, "job-7/10"), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(CheckpointTest, FindsWhatIsBroken) {
  const std::string folder = CheckpointFolder(kDirectory, 1),
                    shard = folder + "/shard-00001-of-00003.safetensors";
  ASSERT_THAT(Write(files_, 1, 3), IsOk());
  std::string& bytes = *files_.Content(shard);
  const std::string good = bytes;
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  EXPECT_THAT(CheckpointReader::Open(files_, folder),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(shard + ": its checksum is wrong")));
  bytes = good.substr(0, good.size() - 1);
  EXPECT_THAT(CheckpointReader::Open(files_, folder),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(" bytes, expected ")));
  bytes = good;
  EXPECT_THAT(CheckpointReader::Open(files_, folder), IsOk());
  ASSERT_THAT(files_.Remove(shard), IsOk());
  EXPECT_THAT(CheckpointReader::Open(files_, folder),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(shard)));
  EXPECT_THAT(CheckpointReader::Open(files_, "/nowhere"), StatusIs(absl::StatusCode::kNotFound));

  std::string& manifest = *files_.Content(folder + "/manifest.json");
  const std::string whole = manifest;
  nlohmann::ordered_json other = nlohmann::ordered_json::parse(whole);
  other["content"]["format"] = 7;
  const std::string content = other["content"].dump();
  other["crc32"] = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
  manifest = other.dump();
  EXPECT_THAT(CheckpointReader::Open(files_, folder),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found format 7, expected 1")));
  manifest = whole.substr(0, whole.size() / 2);
  EXPECT_THAT(CheckpointReader::Open(files_, folder), StatusIs(absl::StatusCode::kDataLoss));
  manifest = "{}";
  EXPECT_THAT(CheckpointReader::Open(files_, folder), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(CheckpointTest, NoByteOfItsManifestCanChangeUnnoticed) {
  const std::string folder = CheckpointFolder(kDirectory, 1);
  ASSERT_THAT(Write(files_, 1, 2), IsOk());
  std::string& manifest = *files_.Content(folder + "/manifest.json");
  for (size_t i = 0; i < manifest.size(); i += 7) {
    const char good = manifest[i];
    manifest[i] = static_cast<char>(good ^ 1);
    const auto reader = CheckpointReader::Open(files_, folder);
    // White space around values says nothing.
    EXPECT_TRUE(!reader.ok() || good == ' ' || good == '\n') << "byte " << i;
    manifest[i] = good;
  }
  EXPECT_THAT(CheckpointReader::Open(files_, folder), IsOk());
}

TEST_F(CheckpointTest, RetentionLooksAtEarlierStepsOnly) {
  for (int step : {10, 20, 30}) ASSERT_THAT(Write(files_, step, 1, 1, /*keep=*/9), IsOk());
  ASSERT_THAT(files_.MakeFolder(std::string(kDirectory) + "/step-7"), IsOk());  // somebody else's
  ASSERT_THAT(RemoveOldCheckpoints(files_, kDirectory, 20, 1), IsOk());
  EXPECT_THAT(*CompleteCheckpoints(files_, kDirectory), ElementsAre(30, 20));
}

TEST_F(CheckpointTest, OfAnotherModelIsRefusedNamingBothSides) {
  ASSERT_THAT(Write(files_, 1, 2), IsOk());
  const auto reader = CheckpointReader::Open(files_, CheckpointFolder(kDirectory, 1));
  ASSERT_THAT(reader, IsOk());
  job_.mutable_model()->set_ffn(31);
  EXPECT_THAT((*reader)->Check(Slices(1, 0), true),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("tensor l0.w1 is [20, 30], and in the job's model [20, 31]")));
  job_.mutable_model()->set_ffn(30);
  job_.mutable_model()->set_layers(3);
  EXPECT_THAT((*reader)->Check(Slices(1, 0), true),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("it has no tensor l2.")));
  job_.mutable_model()->set_layers(1);
  EXPECT_THAT((*reader)->Check(Slices(1, 0), true),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("it has a tensor l1.")));
}

TEST_F(CheckpointTest, AnywhereThePowerFailsTheOneBeforeOrTheOneAfterIsWhole) {
  int crashes = 0;
  for (int64_t operation = 1; operation < 100'000; ++operation) {
    bool survived = false;
    for (uint32_t seed = 0; seed < 3; ++seed) {
      LyingFiles files;
      ASSERT_THAT(Write(files, 1, 2), IsOk());
      files.FailAfter(operation);
      const absl::Status second = Write(files, 2, 2, 1, /*keep=*/1);
      survived = !files.failed();
      if (survived) {
        ASSERT_THAT(second, IsOk());
        break;
      }
      ++crashes;
      files.PowerOn(seed);
      SCOPED_TRACE(::testing::Message() << "operation " << operation << ", seed " << seed);
      const auto steps = CompleteCheckpoints(files, kDirectory);
      ASSERT_THAT(steps, IsOk());
      ASSERT_FALSE(steps->empty());
      ASSERT_TRUE(!second.ok() || steps->front() == 2);
      const auto reader = CheckpointReader::Open(files, CheckpointFolder(kDirectory, steps->front()));
      ASSERT_THAT(reader, IsOk());
      ExpectContent(**reader, 1, steps->front());
    }
    if (survived) {
      EXPECT_GT(crashes, 100);
      return;
    }
  }
  FAIL() << "the second checkpoint was never written";
}

TEST_F(CheckpointTest, ADiskThatIsFullLeavesTheOneBefore) {
  ASSERT_THAT(Write(files_, 1, 2), IsOk());
  files_.Refuse(absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(Write(files_, 2, 2), StatusIs(absl::StatusCode::kResourceExhausted));
  files_.Refuse(absl::OkStatus());
  EXPECT_THAT(*CompleteCheckpoints(files_, kDirectory), ElementsAre(1));
  EXPECT_THAT(Write(files_, 2, 2), IsOk());
}

}  // namespace
}  // namespace metp
