// What cannot be exported is refused with its reason, and an export that fails leaves nothing.

#include <gmock/gmock.h>
#include <zlib.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/checkpoint/lying_files.h"
#include "tests/worker/checkpoint/written_checkpoint.h"
#include "worker/checkpoint/hugging_face.h"

namespace metp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kDirectory[] = "/checkpoints", kFrom[] = "/checkpoints/step-00000007",
               kTo[] = "/exports/model", kPartial[] = "/exports/model.partial";

absl::Status Export(FileSystem& files, const std::string& to = kTo) {
  return ExportHuggingFace(files, kFrom, to).status();
}

/// Everything that is not the checkpoint.
std::vector<std::string> Exported(const LyingFiles& files) {
  std::vector<std::string> paths;
  for (const std::string& path : files.Paths()) {
    if (!absl::StartsWith(path, kDirectory)) paths.push_back(path);
  }
  return paths;
}

bool IsThere(FileSystem& files, const std::string& folder) { return files.List(folder).ok(); }

class HuggingFaceRefusals : public ::testing::Test {
 protected:
  void Write(const v1::JobSpec& job) { ASSERT_THAT(WriteCheckpoint(files_, kDirectory, job, 2), IsOk()); }
  void Put(const std::string& path, const std::string& content) {
    const auto file = files_.Create(path);
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT((*file)->Append(content), IsOk());
  }
  /// Changes the manifest's content, checksum included.
  void Change(const std::function<void(nlohmann::ordered_json&)>& change) {
    std::string& manifest = *files_.Content(std::string(kFrom) + "/manifest.json");
    nlohmann::ordered_json whole = nlohmann::ordered_json::parse(manifest);
    change(whole["content"]);
    const std::string content = whole["content"].dump();
    whole["crc32"] = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
    manifest = whole.dump();
  }
  void ExpectRefused(absl::StatusCode code, const std::string& why) {
    EXPECT_THAT(Export(files_), StatusIs(code, HasSubstr(why)));
    EXPECT_THAT(Exported(files_), IsEmpty());
    EXPECT_FALSE(IsThere(files_, kTo));
    EXPECT_FALSE(IsThere(files_, kPartial));
  }
  LyingFiles files_;
};

TEST_F(HuggingFaceRefusals, ModelsThatTransformersHasNoClassFor) {
  for (const v1::JobSpec& job : {LlamaJob({"model.causal=false"}), Gpt2Job({"model.causal=false"})}) {
    files_ = LyingFiles();
    Write(job);
    ExpectRefused(absl::StatusCode::kFailedPrecondition, "model.causal: found false");
  }
  files_ = LyingFiles();
  Write(Gpt2Job({"model.head_dim=5"}));
  ExpectRefused(
      absl::StatusCode::kFailedPrecondition,
      "model.head_dim: found 5, and heads x head_dim is 30; GPT2LMHeadModel has no other than hidden (24)");
}

TEST_F(HuggingFaceRefusals, CheckpointsThatAreNotWhole) {
  ExpectRefused(absl::StatusCode::kNotFound, kFrom);
  Write(LlamaJob());
  std::string& shard = *files_.Content(std::string(kFrom) + "/shard-00001-of-00002.safetensors");
  shard.back() = static_cast<char>(shard.back() ^ 1);
  ExpectRefused(absl::StatusCode::kDataLoss, "shard-00001-of-00002.safetensors: its checksum is wrong");
}

TEST_F(HuggingFaceRefusals, JobsThatCannotBeRead) {
  const std::string manifest = std::string(kFrom) + "/manifest.json: its job cannot be read (";
  Write(LlamaJob());
  Change([](nlohmann::ordered_json& content) { content["job"]["model"]["of_the_future"] = 1; });
  ExpectRefused(absl::StatusCode::kFailedPrecondition, manifest);
  EXPECT_THAT(CheckpointReader::Open(files_, kFrom), IsOk());  // training does not ask for it
  Change([](nlohmann::ordered_json& content) { content["job"] = nullptr; });
  ExpectRefused(absl::StatusCode::kFailedPrecondition, manifest);
  Change([](nlohmann::ordered_json& content) { content["job"] = {{"name", "x"}, {"max_restarts", 1}}; });
  ExpectRefused(absl::StatusCode::kFailedPrecondition, manifest);
}

TEST_F(HuggingFaceRefusals, TensorsThatAreNotTheJobsModels) {
  Write(LlamaJob());
  Change([](nlohmann::ordered_json& content) { content["job"]["model"]["ffn"] = 31; });
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "is [20, 30], and in the job's model [20, 31]");
  Change([](nlohmann::ordered_json& content) { content["job"]["model"]["ffn"] = 30; });
  Change([](nlohmann::ordered_json& content) { content["job"]["model"]["layers"] = 1; });
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "it has a tensor l1.");
  Change([](nlohmann::ordered_json& content) { content["job"]["model"]["layers"] = 0; });
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "does not give all sizes");
}

TEST_F(HuggingFaceRefusals, TheReaderKnowsTheJobThatWroteTheCheckpoint) {
  const v1::JobSpec job = Gpt2Job();
  Write(job);
  const auto reader = CheckpointReader::Open(files_, kFrom);
  ASSERT_THAT(reader, IsOk());
  const auto read = (*reader)->Job();
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->SerializeAsString(), job.SerializeAsString());
}

TEST_F(HuggingFaceRefusals, AFolderThatHoldsSomethingStaysAsItIs) {
  Write(LlamaJob());
  Put(std::string(kTo) + "/notes.txt", "mine");
  EXPECT_THAT(Export(files_), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("it holds notes.txt")));
  EXPECT_THAT(Exported(files_), ElementsAre("/exports/model/notes.txt"));
  EXPECT_THAT(Export(files_, std::string(kTo) + "/"), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Export(files_, ""), StatusIs(absl::StatusCode::kInvalidArgument));
  // So does one whose name an export would need for a while.
  ASSERT_THAT(files_.Remove(kTo), IsOk());
  Put(std::string(kPartial) + "/notes.txt", "mine");
  EXPECT_THAT(Export(files_), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("model.partial")));
  EXPECT_THAT(Exported(files_), ElementsAre("/exports/model.partial/notes.txt"));
}

TEST_F(HuggingFaceRefusals, AnEmptyFolderAndAnUnfinishedExportAreReplaced) {
  Write(LlamaJob());
  ASSERT_THAT(files_.MakeFolder(kTo), IsOk());
  for (const char* name : {"config.json", "model-00001-of-00007.safetensors"})
    Put(std::string(kPartial) + "/" + name, "unfinished");
  EXPECT_THAT(Export(files_, std::string(kTo) + "//"), IsOk());
  EXPECT_THAT(Exported(files_),
              ElementsAre("/exports/model/config.json", "/exports/model/model.safetensors"));
  EXPECT_FALSE(IsThere(files_, kPartial));
}

/// A disk whose nth change is refused, and whose others are not.
class OneRefusal final : public FileSystem {
 public:
  OneRefusal(FileSystem& files, int nth) : files_(files), left_(nth) {}
  bool refused() const { return left_ < 1; }

  absl::Status MakeFolder(const std::string& path) override {
    return Refused() ? Full() : files_.MakeFolder(path);
  }
  absl::StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) override {
    if (Refused()) return Full();
    absl::StatusOr<std::unique_ptr<FileWriter>> file = files_.Create(path);
    if (!file.ok()) return file.status();
    return std::make_unique<Writer>(*this, *std::move(file));
  }
  absl::StatusOr<std::unique_ptr<FileBytes>> Read(const std::string& path) override {
    return files_.Read(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return files_.List(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Refused() ? Full() : files_.Rename(from, to);
  }
  absl::Status SyncFolder(const std::string& path) override {
    return Refused() ? Full() : files_.SyncFolder(path);
  }
  absl::Status Remove(const std::string& path) override { return files_.Remove(path); }

 private:
  class Writer final : public FileWriter {
   public:
    Writer(OneRefusal& disk, std::unique_ptr<FileWriter> file) : disk_(disk), file_(std::move(file)) {}
    absl::Status Append(std::string_view bytes) override {
      return disk_.Refused() ? Full() : file_->Append(bytes);
    }
    absl::Status Sync() override { return disk_.Refused() ? Full() : file_->Sync(); }

   private:
    OneRefusal& disk_;
    const std::unique_ptr<FileWriter> file_;
  };
  static absl::Status Full() { return absl::ResourceExhaustedError("disk full"); }
  bool Refused() { return --left_ == 0; }

  FileSystem& files_;
  int left_;
};

TEST_F(HuggingFaceRefusals, WhateverFailsNothingStays) {
  Write(Gpt2Job());
  for (int nth = 1; nth < 1000; ++nth) {
    OneRefusal disk(files_, nth);
    const absl::Status exported = Export(disk);
    if (!disk.refused()) {
      ASSERT_THAT(exported, IsOk());
      EXPECT_GT(nth, 30);
      return;
    }
    SCOPED_TRACE(nth);
    EXPECT_THAT(exported, StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(Exported(files_), IsEmpty());
    EXPECT_FALSE(IsThere(files_, kTo));
    EXPECT_FALSE(IsThere(files_, kPartial));
  }
  FAIL() << "nothing was ever exported";
}

TEST_F(HuggingFaceRefusals, WheneverThePowerFailsTheFolderIsWholeOrNotThere) {
  Write(Gpt2Job());
  LyingFiles good = files_;
  ASSERT_THAT(Export(good), IsOk());
  for (int64_t operation = 1; operation < 1000; ++operation) {
    LyingFiles files = files_;
    files.FailAfter(operation);
    const absl::Status exported = Export(files);
    if (!files.failed()) {
      ASSERT_THAT(exported, IsOk());
      return;
    }
    EXPECT_FALSE(exported.ok());
    files.PowerOn(static_cast<uint32_t>(operation));
    SCOPED_TRACE(operation);
    if (!IsThere(files, kTo)) {
      ASSERT_THAT(Export(files), IsOk());  // over what the first has left
    }
    EXPECT_THAT(Exported(files),
                ElementsAre("/exports/model/config.json", "/exports/model/model.safetensors"));
    for (const std::string& path : Exported(good))
      EXPECT_EQ(*files.Content(path), *good.Content(path)) << path;
  }
  FAIL() << "nothing was ever exported";
}

}  // namespace
}  // namespace metp::testing
