#include "tests/worker/checkpoint/lying_files.h"

#include <algorithm>
#include <random>
#include <set>

namespace metp {

namespace {

class Writer final : public FileWriter {
 public:
  Writer(LyingFiles& disk, std::string path) : disk_(disk), path_(std::move(path)) {}
  absl::Status Append(std::string_view bytes) override {
    if (const absl::Status status = disk_.Change(); !status.ok()) return status;
    std::string* content = disk_.Content(path_);
    if (content == nullptr) return absl::NotFoundError(path_);
    content->append(bytes);
    return absl::OkStatus();
  }
  absl::Status Sync() override;

 private:
  LyingFiles& disk_;
  const std::string path_;
};

class Bytes final : public FileBytes {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string_view bytes() const override { return bytes_; }

 private:
  const std::string bytes_;
};

std::string ParentOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

absl::Status LyingFiles::Change() {
  if (!refuse_.ok()) return refuse_;
  if (left_ > 0 && --left_ == 0) failed_ = true;
  return failed_ ? absl::UnavailableError("the disk is gone") : absl::OkStatus();
}

absl::Status LyingFiles::MakeFolder(const std::string& path) {
  if (const absl::Status status = Change(); !status.ok()) return status;
  folders_[path] = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileWriter>> LyingFiles::Create(const std::string& path) {
  if (const absl::Status status = Change(); !status.ok()) return status;
  files_[path] = {};
  return std::make_unique<Writer>(*this, path);
}

absl::Status Writer::Sync() {
  if (const absl::Status status = disk_.Change(); !status.ok()) return status;
  return disk_.SyncFolder(path_);  // a file here: see there
}

absl::StatusOr<std::unique_ptr<FileBytes>> LyingFiles::Read(const std::string& path) {
  const auto found = files_.find(path);
  if (found == files_.end()) return absl::NotFoundError(path + ": no such file");
  return std::make_unique<Bytes>(found->second.bytes);
}

absl::StatusOr<std::vector<std::string>> LyingFiles::List(const std::string& path) {
  std::set<std::string> names;
  const auto add = [&](const std::string& inside) {
    if (Inside(inside, path))
      names.insert(inside.substr(path.size() + 1, inside.find('/', path.size() + 1) - path.size() - 1));
  };
  for (const auto& [name, file] : files_) add(name);
  for (const auto& [name, there] : folders_) add(name);
  if (names.empty() && folders_.count(path) == 0) return absl::NotFoundError(path + ": no such folder");
  return std::vector<std::string>(names.begin(), names.end());
}

absl::Status LyingFiles::Rename(const std::string& from, const std::string& to) {
  if (const absl::Status status = Change(); !status.ok()) return status;
  if (folders_.count(to) > 0 ||
      std::any_of(files_.begin(), files_.end(), [&](const auto& file) { return Inside(file.first, to); }))
    return absl::AlreadyExistsError(to + ": is there");
  std::map<std::string, File> moved;
  for (auto at = files_.begin(); at != files_.end();) {
    if (Inside(at->first, from)) {
      moved[to + at->first.substr(from.size())] = std::move(at->second);
      at = files_.erase(at);
    } else {
      ++at;
    }
  }
  files_.merge(moved);
  folders_.erase(from);
  folders_[to] = true;
  renames_.emplace_back(from, to);
  return absl::OkStatus();
}

absl::Status LyingFiles::SyncFolder(const std::string& path) {
  if (const auto file = files_.find(path); file != files_.end()) {
    file->second.synced = file->second.bytes.size();
    return absl::OkStatus();
  }
  if (const absl::Status status = Change(); !status.ok()) return status;
  std::erase_if(renames_, [&](const auto& rename) { return ParentOf(rename.second) == path; });
  return absl::OkStatus();
}

absl::Status LyingFiles::Remove(const std::string& path) {
  if (const absl::Status status = Change(); !status.ok()) return status;
  std::erase_if(files_, [&](const auto& file) { return file.first == path || Inside(file.first, path); });
  std::erase_if(folders_,
                [&](const auto& folder) { return folder.first == path || Inside(folder.first, path); });
  return absl::OkStatus();
}

std::string* LyingFiles::Content(const std::string& path) {
  const auto found = files_.find(path);
  return found == files_.end() ? nullptr : &found->second.bytes;
}

std::vector<std::string> LyingFiles::Paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, file] : files_) paths.push_back(path);
  return paths;
}

void LyingFiles::PowerOn(uint32_t seed) {
  std::mt19937 random(seed);
  failed_ = false;
  left_ = 0;
  const auto renames = std::exchange(renames_, {});
  for (auto rename = renames.rbegin(); rename != renames.rend(); ++rename) {
    if (random() % 2 == 0) Rename(rename->second, rename->first).IgnoreError();  // it had not happened
  }
  renames_.clear();
  for (auto& [path, file] : files_) {
    const size_t more = file.bytes.size() - std::min(file.synced, file.bytes.size());
    if (more > 0) file.bytes.resize(file.synced + random() % (more + 1));
    file.synced = file.bytes.size();
  }
}

}  // namespace metp
