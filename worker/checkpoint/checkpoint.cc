#include "worker/checkpoint/checkpoint.h"

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/util/delimited_message_util.h"
#include "google/protobuf/util/json_util.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/safetensors.h"

namespace metp {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr char kManifest[] = "manifest.json", kPartial[] = ".partial", kOwner[] = "owner",
               kHistory[] = "history.bin";
constexpr const char* kKindNames[] = {"master", "first_moment", "second_moment"};

std::string ShardName(int rank, int ranks) {
  return absl::StrFormat("shard-%05d-of-%05d.safetensors", rank, ranks);
}
std::string NotesName(int rank) { return absl::StrFormat("shard-%05d.json", rank); }

std::string KeyOf(StateKind kind, const TensorSlice& slice) {
  return absl::StrCat(kKindNames[static_cast<int>(kind)], "/", slice.name, "/", slice.row.begin, ":",
                      slice.row.end, "/", slice.col.begin, ":", slice.col.end);
}

uint32_t Crc(uint32_t crc, std::string_view bytes) {
  return static_cast<uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// Appends, and keeps the account that the manifest needs.
class CountingWriter {
 public:
  explicit CountingWriter(FileWriter& file) : file_(file) {}
  absl::Status Append(std::string_view bytes) {
    crc_ = Crc(crc_, bytes);
    size_ += bytes.size();
    return file_.Append(bytes);
  }
  uint32_t crc() const { return crc_; }
  size_t size() const { return size_; }

 private:
  FileWriter& file_;
  uint32_t crc_ = 0;
  size_t size_ = 0;
};

absl::Status WriteWhole(FileSystem& files, const std::string& path, const std::string& content) {
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> file, files.Create(path));
  METP_RETURN_IF_ERROR(file->Append(content));
  return file->Sync();
}

/// The safetensors header of a shard.
std::string HeaderOf(const std::vector<TensorSlice>& slices) {
  Json header = Json::object();
  int64_t at = 0;
  for (const TensorSlice& slice : slices) {
    for (const StateKind kind : kStateKinds) {
      const int64_t end = at + slice.size() * static_cast<int64_t>(sizeof(float));
      header[KeyOf(kind, slice)] = {
          {"dtype", "F32"}, {"shape", {slice.row.size(), slice.col.size()}}, {"data_offsets", {at, end}}};
      at = end;
    }
  }
  return SafetensorsBeginning(header);
}

absl::StatusOr<Json> ReadJson(FileSystem& files, const std::string& path) {
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<FileBytes> file, files.Read(path));
  Json json = Json::parse(file->bytes(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::DataLossError(absl::StrCat(path, ": it is no JSON"));
  return json;
}

template <typename Message>
Json MessageJson(const Message& message) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return nullptr;
  return Json::parse(text);
}

std::string NameOf(int step) { return absl::StrFormat("step-%08d", step); }

/// The step of a folder's name; nullopt for any other name.
std::optional<int> StepOf(absl::string_view name) {
  int step = 0;
  if (!absl::StartsWith(name, "step-") || !absl::SimpleAtoi(name.substr(5), &step)) return std::nullopt;
  if (name != NameOf(step)) return std::nullopt;
  return step;
}

}  // namespace

std::string CheckpointFolder(const std::string& directory, int step) {
  return absl::StrCat(directory, "/", NameOf(step));
}

std::string PartialFolder(const std::string& directory, int step, const std::string& run) {
  std::string name = run;  // "job-7/2": an attempt
  std::replace(name.begin(), name.end(), '/', '.');
  return absl::StrCat(CheckpointFolder(directory, step), ".", name, kPartial);
}

namespace {

/// How many attempts later of one job `b` ("job-7/3") is than `a` ("job-7/2"); 0 for any others.
int64_t AttemptsLater(absl::string_view a, absl::string_view b) {
  const size_t slash = a.rfind('/');
  int64_t first = 0, second = 0;
  const bool one_job = slash != absl::string_view::npos && b.substr(0, slash + 1) == a.substr(0, slash + 1) &&
                       absl::SimpleAtoi(a.substr(slash + 1), &first) &&
                       absl::SimpleAtoi(b.substr(slash + 1), &second);
  return one_job ? second - first : 0;
}

absl::Status TakenBy(const std::string& directory, const std::string& owner, const std::string& run) {
  return absl::FailedPreconditionError(absl::StrCat(directory, ": ", owner, " writes here now, no longer ",
                                                    run,
                                                    "; give every job a checkpoint.directory of its own"));
}

absl::StatusOr<std::string> OwnerOf(FileSystem& files, const std::string& directory) {
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<FileBytes> owner,
                        files.Read(absl::StrCat(directory, "/", kOwner)));
  return std::string(owner->bytes());
}

}  // namespace

absl::Status ClaimCheckpoints(FileSystem& files, const std::string& directory, const std::string& run) {
  METP_RETURN_IF_ERROR(files.MakeFolder(directory));
  const absl::StatusOr<std::string> owner = OwnerOf(files, directory);
  if (owner.ok() && AttemptsLater(run, *owner) > 0) return TakenBy(directory, *owner, run);
  return WriteWhole(files, absl::StrCat(directory, "/", kOwner), run);
}

absl::Status CheckClaim(FileSystem& files, const std::string& directory, const std::string& run) {
  METP_ASSIGN_OR_RETURN(const std::string owner, OwnerOf(files, directory));
  if (owner == run) return absl::OkStatus();
  if (AttemptsLater(owner, run) > 0)  // one that nobody could stop has written its name late
    return absl::NotFoundError(absl::StrCat(directory, ": ", owner, ", which is over, has claimed it"));
  return TakenBy(directory, owner, run);
}

absl::Status WriteShard(FileSystem& files, const std::string& folder, int rank, int ranks,
                        const SliceSource& source) {
  const std::string name = ShardName(rank, ranks);
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> file, files.Create(folder + "/" + name));
  CountingWriter out(*file);
  const std::string header = HeaderOf(source.slices());
  METP_RETURN_IF_ERROR(out.Append(header));
  Json tensors = Json::object();
  std::vector<float> values;
  size_t at = header.size();
  for (size_t i = 0; i < source.slices().size(); ++i) {
    const TensorSlice& slice = source.slices()[i];
    values.resize(static_cast<size_t>(slice.size()));
    Json offsets = Json::array();
    for (const StateKind kind : kStateKinds) {
      source.Get(i, kind, values.data());
      offsets.push_back(at);
      METP_RETURN_IF_ERROR(
          out.Append({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}));
      at = out.size();
    }
    Json& tensor = tensors[slice.name];
    tensor["shape"] = {slice.rows, slice.cols};
    tensor["parts"].push_back({{"file", name},
                               {"rows", {slice.row.begin, slice.row.end}},
                               {"cols", {slice.col.begin, slice.col.end}},
                               {"offsets", offsets}});
  }
  METP_RETURN_IF_ERROR(file->Sync());
  const Json notes = {{"file", {{"name", name}, {"bytes", out.size()}, {"crc32", out.crc()}}},
                      {"tensors", tensors}};
  return WriteWhole(files, folder + "/" + NotesName(rank), notes.dump());
}

absl::Status WriteHistory(FileSystem& files, const std::string& folder,
                          const std::vector<v1::StepPoint>& points) {
  std::string content;
  google::protobuf::io::StringOutputStream stream(&content);
  for (const v1::StepPoint& point : points)
    google::protobuf::util::SerializeDelimitedToZeroCopyStream(point, &stream);
  return WriteWhole(files, folder + "/" + kHistory, content);
}

namespace {

/// Everything but the rename.
absl::Status WriteManifest(FileSystem& files, const std::string& partial, int step, int ranks,
                           const DataOrder& order, const v1::JobSpec& job, const v1::Plan& plan) {
  Json content = {{"format", kFormat},
                  {"step", step},
                  {"data",
                   {{"sequences", order.sequences},
                    {"seed", order.seed},
                    {"sequence_length", order.sequence_length},
                    {"tokens", order.tokens}}},
                  {"job", MessageJson(job)},
                  {"plan", MessageJson(plan)},
                  {"files", Json::array()},
                  {"tensors", Json::object()}};
  for (int rank = 0; rank < ranks; ++rank) {
    METP_ASSIGN_OR_RETURN(const Json notes, ReadJson(files, partial + "/" + NotesName(rank)));
    content["files"].push_back(notes.at("file"));
    for (const auto& [name, tensor] : notes.at("tensors").items()) {
      Json& all = content["tensors"][name];
      all["shape"] = tensor.at("shape");
      for (const Json& part : tensor.at("parts")) all["parts"].push_back(part);
    }
  }
  const absl::StatusOr<std::unique_ptr<FileBytes>> history = files.Read(partial + "/" + kHistory);
  if (history.ok()) {
    const std::string_view bytes = (*history)->bytes();
    content["files"].push_back({{"name", kHistory}, {"bytes", bytes.size()}, {"crc32", Crc(0, bytes)}});
  } else if (!absl::IsNotFound(history.status())) {
    return history.status();
  }
  const Json manifest = {{"crc32", Crc(0, content.dump())}, {"content", content}};
  METP_RETURN_IF_ERROR(WriteWhole(files, partial + "/" + kManifest, manifest.dump(1)));
  for (int rank = 0; rank < ranks; ++rank)
    METP_RETURN_IF_ERROR(files.Remove(partial + "/" + NotesName(rank)));
  return files.SyncFolder(partial);
}

}  // namespace

absl::Status CommitCheckpoint(FileSystem& files, const std::string& directory, int step,
                              const std::string& run, int ranks, const DataOrder& order,
                              const v1::JobSpec& job, const v1::Plan& plan) {
  const std::string partial = PartialFolder(directory, step, run);
  absl::Status made = WriteManifest(files, partial, step, ranks, order, job, plan);
  if (made.ok()) made = CheckClaim(files, directory, run);
  if (made.ok()) made = files.Rename(partial, CheckpointFolder(directory, step));
  if (!made.ok()) {
    files.Remove(partial).IgnoreError();  // its room may be what is missing
    return made;
  }
  return files.SyncFolder(directory);
}

absl::Status RemoveUnfinished(FileSystem& files, const std::string& directory, int step) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  METP_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, kPartial)) continue;
    const std::optional<int> of = StepOf(absl::string_view(name).substr(0, NameOf(0).size()));
    if (of && *of <= step) METP_RETURN_IF_ERROR(files.Remove(absl::StrCat(directory, "/", name)));
  }
  return absl::OkStatus();
}

absl::Status RemoveOldCheckpoints(FileSystem& files, const std::string& directory, int step, int keep) {
  METP_ASSIGN_OR_RETURN(std::vector<int> complete, CompleteCheckpoints(files, directory));
  std::erase_if(complete, [&](int other) { return other > step; });
  for (size_t i = static_cast<size_t>(std::max(keep, 1)); i < complete.size(); ++i)
    METP_RETURN_IF_ERROR(files.Remove(CheckpointFolder(directory, complete[i])));
  return RemoveUnfinished(files, directory, step);
}

absl::StatusOr<std::vector<int>> CompleteCheckpoints(FileSystem& files, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (absl::IsNotFound(names.status())) return std::vector<int>{};
  METP_RETURN_IF_ERROR(names.status());
  std::vector<int> steps;
  for (const std::string& name : *names) {
    if (const std::optional<int> step = StepOf(name); step) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

absl::Status SetLaterAside(FileSystem& files, const std::string& directory, int step) {
  METP_ASSIGN_OR_RETURN(const std::vector<int> steps, CompleteCheckpoints(files, directory));
  bool any = false;
  for (const int later : steps) {
    if (later <= step) continue;
    const std::string folder = CheckpointFolder(directory, later), aside = folder + ".abandoned";
    absl::Status renamed = files.Rename(folder, aside);
    for (int number = 2; absl::IsAlreadyExists(renamed); ++number)
      renamed = files.Rename(folder, absl::StrCat(aside, "-", number));
    METP_RETURN_IF_ERROR(renamed);
    any = true;
  }
  return any ? files.SyncFolder(directory) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(FileSystem& files,
                                                                         const std::string& folder) {
  const std::string path = folder + "/" + kManifest;
  METP_ASSIGN_OR_RETURN(const Json whole, ReadJson(files, path));
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader);
  reader->folder_ = folder;
  try {
    const Json& manifest = whole.at("content");
    if (Crc(0, manifest.dump()) != whole.at("crc32").get<uint32_t>())
      return absl::DataLossError(absl::StrCat(path, ": its checksum is wrong"));
    if (const int format = manifest.at("format"); format != kFormat) {
      return absl::FailedPreconditionError(absl::StrCat(path, ": found format ", format, ", expected ",
                                                        kFormat, "; another version of metp wrote it"));
    }
    reader->step_ = manifest.at("step");
    reader->job_ = manifest.at("job").dump();
    const Json& data = manifest.at("data");
    reader->order_ = {data.at("sequences"), data.at("seed"), data.at("sequence_length"), data.at("tokens")};
    std::map<std::string, size_t> at;
    for (const Json& file : manifest.at("files")) {
      const std::string name = file.at("name"), where = folder + "/" + name;
      absl::StatusOr<std::unique_ptr<FileBytes>> content = files.Read(where);
      if (absl::IsNotFound(content.status()))
        return absl::DataLossError(std::string(content.status().message()));
      METP_RETURN_IF_ERROR(content.status());
      const std::string_view bytes = (*content)->bytes();
      if (const size_t expected = file.at("bytes"); bytes.size() != expected)
        return absl::DataLossError(
            absl::StrCat(where, ": found ", bytes.size(), " bytes, expected ", expected));
      if (Crc(0, bytes) != file.at("crc32").get<uint32_t>())
        return absl::DataLossError(absl::StrCat(where, ": its checksum is wrong"));
      at[name] = reader->files_.size();
      if (name == kHistory) reader->history_ = content->get();
      reader->files_.push_back(*std::move(content));
    }
    for (const auto& [name, tensor] : manifest.at("tensors").items()) {
      Tensor& to = reader->tensors_[name];
      to.rows = tensor.at("shape").at(0);
      to.cols = tensor.at("shape").at(1);
      for (const Json& part : tensor.at("parts")) {
        Part& p = to.parts.emplace_back();
        p.file = at.at(part.at("file"));
        p.row = {part.at("rows").at(0), part.at("rows").at(1)};
        p.col = {part.at("cols").at(0), part.at("cols").at(1)};
        const size_t bytes = static_cast<size_t>(p.row.size() * p.col.size()) * sizeof(float);
        for (int kind = 0; kind < 3; ++kind) {
          p.offset[kind] = part.at("offsets").at(kind);
          if (p.offset[kind] + bytes > reader->files_[p.file]->bytes().size())
            return absl::DataLossError(absl::StrCat(path, ": a part of ", name, " is beyond its file"));
        }
      }
    }
  } catch (const std::exception& error) {  // of a key, a type or an index
    return absl::DataLossError(absl::StrCat(path, ": ", error.what()));
  }
  return reader;
}

absl::StatusOr<v1::JobSpec> CheckpointReader::Job() const {
  v1::JobSpec job;
  const auto parsed = google::protobuf::util::JsonStringToMessage(job_, &job);
  if (parsed.ok() && job.has_model()) return job;
  return absl::FailedPreconditionError(
      absl::StrCat(folder_, "/", kManifest, ": its job cannot be read (",
                   parsed.ok() ? "it has no model" : std::string(parsed.message()),
                   "); expected one that this version of metp knows"));
}

std::vector<v1::StepPoint> CheckpointReader::History() const {
  std::vector<v1::StepPoint> points;
  if (history_ == nullptr) return points;
  const std::string_view bytes = history_->bytes();
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  v1::StepPoint point;
  bool end = false;
  while (google::protobuf::util::ParseDelimitedFromZeroCopyStream(&point, &stream, &end))
    points.push_back(point);
  return points;
}

absl::Status CheckpointReader::Check(const std::vector<TensorSlice>& slices, bool all_names) const {
  std::set<std::string> names;
  for (const TensorSlice& slice : slices) {
    names.insert(slice.name);
    const auto found = tensors_.find(slice.name);
    if (found == tensors_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat(folder_, ": it has no tensor ", slice.name, ", which the job's model has"));
    }
    const Tensor& tensor = found->second;
    if (tensor.rows != slice.rows || tensor.cols != slice.cols) {
      return absl::FailedPreconditionError(
          absl::StrCat(folder_, ": tensor ", slice.name, " is [", tensor.rows, ", ", tensor.cols,
                       "], and in the job's model [", slice.rows, ", ", slice.cols, "]"));
    }
  }
  for (const auto& [name, tensor] : tensors_) {
    if (all_names && names.count(name) == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(folder_, ": it has a tensor ", name, ", which the job's model does not have"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::Read(const TensorSlice& slice, StateKind kind, float* to) const {
  const auto found = tensors_.find(slice.name);
  if (found == tensors_.end()) return absl::NotFoundError(absl::StrCat(folder_, ": no tensor ", slice.name));
  int64_t copied = 0;
  for (const Part& part : found->second.parts) {
    const Range row = {std::max(part.row.begin, slice.row.begin), std::min(part.row.end, slice.row.end)};
    const Range col = {std::max(part.col.begin, slice.col.begin), std::min(part.col.end, slice.col.end)};
    if (row.size() <= 0 || col.size() <= 0) continue;
    const char* values = files_[part.file]->bytes().data() + part.offset[static_cast<int>(kind)];
    for (int64_t i = row.begin; i < row.end; ++i) {
      const int64_t from = (i - part.row.begin) * part.col.size() + col.begin - part.col.begin;
      std::memcpy(to + (i - slice.row.begin) * slice.col.size() + col.begin - slice.col.begin,
                  values + from * static_cast<int64_t>(sizeof(float)),
                  static_cast<size_t>(col.size()) * sizeof(float));
    }
    copied += row.size() * col.size();
  }
  if (copied == slice.size()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(folder_, ": ", copied, " of ", slice.size(),
                                          " elements of a slice of ", slice.name, " are there"));
}

}  // namespace metp
